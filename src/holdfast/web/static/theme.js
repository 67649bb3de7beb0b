// Sets the chosen colours before the page is drawn; without a choice the system decides.
(() => {
  const chosen = localStorage.getItem("holdfast-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
