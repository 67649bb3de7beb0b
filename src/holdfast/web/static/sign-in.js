// Exchanges the single-use code of the link, or a token, for a cookie that scripts cannot read.
(() => {
  const say = document.getElementById("say");
  const form = document.getElementById("token-form");

  const there = () => {
    const next = new URLSearchParams(location.search).get("next") || "/";
    // Only pages of the dashboard: never another site.
    return /^\/(dashboard(\/|\?|$)|\?|$)/.test(next) && !next.startsWith("//") ? next : "/";
  };

  const exchange = async (given) => {
    say.textContent = "Signing in…";
    say.classList.remove("error");
    try {
      const answer = await fetch("/dashboard/sign-in", {
        method: "POST",
        headers: { "HX-Request": "true" },
        body: new URLSearchParams(given),
      });
      if (answer.ok) {
        location.replace(there());
        return;
      }
      const told = await answer.json();
      say.textContent = typeof told.error === "string" ? told.error : told.error.message;
    } catch {
      say.textContent = "The gateway does not answer. Is it running? Start it with: holdfast up";
    }
    say.classList.add("error");
  };

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    exchange({ token: form.token.value.trim() });
  });

  const start = async () => {
    const code = location.hash.slice(1);
    if (code) {
      // Remove the code from the address first, so that no history keeps it.
      history.replaceState(null, "", location.pathname + location.search);
      await exchange({ code });
      return;
    }
    // A link from elsewhere arrives without the cookie; a request of this page has it.
    const answer = await fetch("/dashboard/session", { headers: { "HX-Request": "true" } }).catch(() => null);
    if (answer && answer.ok) location.replace(there());
  };
  start();
  window.addEventListener("hashchange", start);
})();
