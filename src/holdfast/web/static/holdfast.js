// Keeps an open page true: it listens for changes, reads the page again when it is out of date, and says so
// while the gateway does not answer. Also dialogs, keys, times and charts. Everything else is HTML.
(() => {
  "use strict";
  const $ = (selector, within = document) => within.querySelector(selector);
  const $$ = (selector, within = document) => [...within.querySelectorAll(selector)];
  const main = () => $("#live");

  // --- live

  const LEAST_MS = 1500; // between two readings
  const RETRY_MS = 1000;
  const CROWDED_MS = 15000; // between two questions whether there is room, if the gateway does not say
  const SILENT_MS = 40000; // the gateway sends a sign of life every 15 s; a frozen one sends none
  let source = null;
  let retry = null;
  let boot = null;
  let heardAt = 0;
  let readAt = 0;
  let pending = null;
  let isReading = false;
  let isOutOfDate = false;
  let wasRefused = false;
  let isCrowded = false; // too many pages are live: this one reads itself now and then

  const setState = (state, text) => {
    const shown = $("#live-state");
    if (shown.dataset.state !== state) shown.dataset.state = state;
    if (shown.textContent !== text) shown.textContent = text;
    const stale = $("#stale");
    if (stale.hidden === (state === "away")) {
      stale.hidden = state !== "away";
      $("time", stale).dateTime = $(".as-of time").dateTime;
      drawTimes();
    }
    const crowded = $("#crowded");
    if (crowded.hidden === (state === "crowded")) {
      crowded.hidden = state !== "crowded";
      $("span", crowded).textContent = String(everyS());
    }
  };
  const everyS = () => Number(main().dataset.every || 20);

  // Whether a change concerns this page; what it cannot know, it reads.
  const concerns = (change) => {
    if (change.kinds === null) return true;
    if (change.kinds.length === 0) return false;
    const page = main().dataset;
    if (page.task && change.tasks.includes(page.task)) return true;
    const follows = (page.follows || "").split(" ").filter((one) => one && one !== "task");
    return change.kinds.some((kind) => follows.some((start) => kind.startsWith(start)));
  };

  const read = async () => {
    pending = null;
    if (document.hidden) {
      isOutOfDate = true;
      return;
    }
    // Do not change the page under a person who decides.
    if (isReading || $("dialog[open]")) {
      schedule();
      return;
    }
    isReading = true;
    isOutOfDate = false;
    readAt = Date.now();
    try {
      await htmx.ajax("GET", location.pathname + location.search, {
        target: "#live",
        select: "#live",
        swap: "morph:outerHTML",
      });
    } catch {
      // The state in the header says that the gateway does not answer; the next change reads again.
    }
    isReading = false;
  };

  const schedule = () => {
    if (pending === null) pending = setTimeout(read, Math.max(0, readAt + LEAST_MS - Date.now()));
  };

  // When the page is read again, it keeps what a person did to it: a form that is filled in but not sent, a part
  // that was opened or closed, and what has data-keep.
  const isFilledIn = (form) =>
    [...form.elements].some((one) => {
      if (one.matches("select")) return one.selectedIndex !== Math.max(0, [...one.options].findIndex((choice) => choice.defaultSelected));
      if (one.matches("[type=checkbox], [type=radio]")) return one.checked !== one.defaultChecked;
      return one.matches("input, textarea") && one.value !== one.defaultValue;
    });
  const isKept = (old) => old instanceof Element && (old.hasAttribute("data-keep") || (old.matches("form") && isFilledIn(old)));
  Idiomorph.defaults.callbacks.beforeNodeMorphed = (old) => !isKept(old);
  Idiomorph.defaults.callbacks.beforeAttributeUpdated = (name, old) => !((name === "open" && old.matches("details")) || (name === "tabindex" && old.matches("tr")));

  const connect = () => {
    clearTimeout(retry);
    retry = null;
    if (source) source.close();
    if (document.hidden) return; // hidden pages leave the connections to the others
    const mine = new EventSource("/dashboard/live");
    source = mine;
    heardAt = Date.now();
    mine.addEventListener("alive", () => (heardAt = Date.now()));
    mine.onmessage = (event) => {
      if (source !== mine) return;
      heardAt = Date.now();
      wasRefused = false;
      const change = JSON.parse(event.data);
      const isNew = boot !== null && boot !== change.boot;
      boot = change.boot;
      setState(change.status === "serving" ? "live" : "busy", change.status === "serving" ? "live" : change.status);
      if (isNew || isOutOfDate || concerns(change)) schedule();
      if (isNew) toast("The gateway was restarted; this page shows what it found.");
    };
    mine.addEventListener("bye", () => source === mine && lost());
    mine.onerror = () => {
      if (source !== mine) return;
      // A stream that was refused is closed: ask why at once, but not again and again.
      const isFirst = mine.readyState === EventSource.CLOSED && !wasRefused;
      wasRefused = mine.readyState === EventSource.CLOSED;
      lost(isFirst ? 0 : RETRY_MS);
    };
  };

  // The gateway does not answer, or may not: what the page shows may be out of date.
  const lost = (afterMs = RETRY_MS) => {
    if (source) source.close();
    source = null;
    isCrowded = false;
    isOutOfDate = true;
    setState("away", "reconnecting");
    clearTimeout(retry);
    retry = setTimeout(askThenConnect, afterMs);
  };

  // A stream that is refused says no reason, so ask first: a person who is signed out must sign in.
  const askThenConnect = async () => {
    try {
      const answer = await fetch("/dashboard/live", { method: "HEAD", signal: AbortSignal.timeout(10000) });
      if (answer.status === 401) {
        const next = location.pathname + location.search;
        location.replace(`/dashboard/sign-in?${new URLSearchParams({ next })}`);
        return;
      }
      isCrowded = answer.headers.has("Retry-After");
      if (isCrowded) {
        wasRefused = false;
        // Spread over twice the time, so that the pages that wait do not all ask at once.
        const waitMs = 1000 * Number(answer.headers.get("Retry-After")) || CROWDED_MS;
        retry = setTimeout(askThenConnect, waitMs * (1 + Math.random()));
        setState("crowded", "not live");
        return;
      }
    } catch {
      retry = setTimeout(askThenConnect, RETRY_MS);
      return;
    }
    connect();
  };

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      if (source) source.close();
      source = null;
      isOutOfDate = true;
    } else {
      connect();
    }
  });

  setInterval(() => {
    if (source && Date.now() - heardAt > SILENT_MS) lost(0);
    const every = everyS() * 1000;
    if ((source || isCrowded) && every > 0 && Date.now() - readAt > every) schedule();
  }, 1000);

  // --- dialogs and actions

  const dialog = $("#dialog");

  document.body.addEventListener("htmx:afterSwap", (event) => {
    if (event.detail.target.id === "dialog-body" && !dialog.open) dialog.showModal();
    if (event.detail.target.id === "live" || event.detail.target.closest("#live")) {
      draw();
    }
  });

  document.body.addEventListener("htmx:afterRequest", (event) => {
    const form = event.detail.elt;
    if (!form.matches("form[data-action]")) return;
    const told = answerOf(event.detail.xhr);
    if (event.detail.successful) {
      if (form.closest("dialog")) dialog.close();
      if (form.hasAttribute("data-clear")) form.reset();
      const shown = $("[data-error]", form);
      if (shown) shown.hidden = true;
      renewKey(form);
      if (told.done !== "") toast(told.done || "Done.", false, told);
      schedule();
    } else {
      const error = $("[data-error]", form);
      failed.set(form, form.elements.message?.value);
      const words = told.error || form.dataset.away || "The gateway does not answer. Nothing may have changed: look before you try again.";
      if (error) {
        fill(error, words);
        error.hidden = false;
      } else {
        toast(words, true);
      }
    }
  });

  // A form with data-once sends its key with each attempt, so that a message arrives once. The next message
  // gets a new key, and so does a text that was changed after an attempt without an answer.
  const failed = new WeakMap();
  const renewKey = (form) => {
    failed.delete(form);
    const key = $("input[data-once]", form);
    if (key) key.value = [...crypto.getRandomValues(new Uint8Array(12))].map((one) => one.toString(16).padStart(2, "0")).join("");
  };
  document.body.addEventListener("input", (event) => {
    const form = event.target.closest("form[data-keep]");
    if (form && failed.has(form) && failed.get(form) !== form.elements.message?.value) renewKey(form);
  });
  document.body.addEventListener("keydown", (event) => {
    const form = event.target.closest("form[data-keep]");
    if (form && event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
  // A form of an action says so itself; see above.
  const unanswered = (event) => {
    lost();
    if (event.detail.elt.matches("button, form:not([data-action])")) toast("The gateway does not answer. Nothing was changed by this button: try again.", true);
  };
  document.body.addEventListener("htmx:sendError", unanswered);
  document.body.addEventListener("htmx:timeout", unanswered);

  const answerOf = (xhr) => {
    try {
      const told = JSON.parse(xhr.responseText);
      return typeof told.error === "object" ? { error: told.error.message } : told;
    } catch {
      return {};
    }
  };

  document.addEventListener("click", (event) => {
    const at = event.target.closest("[data-close], [data-menu], [data-help], [data-theme-button]");
    if (!at) return;
    if (at.matches("[data-close]")) at.closest("dialog").close();
    if (at.matches("[data-help]")) $("#help").showModal();
    if (at.matches("[data-theme-button]")) changeTheme();
    if (at.matches("[data-menu]")) {
      const isOpen = document.documentElement.classList.toggle("menu-open");
      at.setAttribute("aria-expanded", String(isOpen));
    }
  });

  // Text as text; what it has in backticks, such as a command, as code.
  const fill = (element, text) => {
    const parts = text.split("`");
    if (parts.length % 2 === 0) parts.splice(0, parts.length, text); // a backtick without its fellow
    element.replaceChildren(
      ...parts.map((part, place) => {
        if (place % 2 === 0) return part;
        const code = document.createElement("code");
        code.textContent = part;
        return code;
      }),
    );
  };

  // `told` may have a link to what was created.
  const toast = (text, isError = false, told = {}) => {
    const one = document.createElement("p");
    one.className = isError ? "toast error" : "toast";
    fill(one, text);
    if (told.href) {
      const link = document.createElement("a");
      link.href = told.href;
      link.textContent = told.link;
      one.append(" ", link);
    }
    $("#toasts").append(one);
    setTimeout(() => one.remove(), isError || told.href ? 12000 : 6000);
  };

  const changeTheme = () => {
    const order = ["", "light", "dark"];
    const next = order[(order.indexOf(document.documentElement.dataset.theme || "") + 1) % order.length];
    if (next) {
      document.documentElement.dataset.theme = next;
      localStorage.setItem("holdfast-theme", next);
    } else {
      delete document.documentElement.dataset.theme;
      localStorage.removeItem("holdfast-theme");
    }
    toast(next ? `Colours: ${next}` : "Colours: as the system has them");
    drawCharts();
  };

  // --- keys

  let isGoing = false;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.matches("input, textarea, select") || $("dialog[open]")) return;
    const key = event.key;
    if (isGoing) {
      isGoing = false;
      const entry = $(`.menu a[data-key="${CSS.escape(key)}"]`);
      if (entry) location.assign(entry.href);
    } else if (key === "g") {
      isGoing = true;
      setTimeout(() => (isGoing = false), 1200);
    } else if (key === "?") {
      $("#help").showModal();
    } else if (key === "/") {
      const search = $("#live input[type=search]");
      if (search) {
        event.preventDefault();
        search.focus();
      }
    } else if (key === "j" || key === "k") {
      move(key === "j" ? 1 : -1);
    }
  });

  const move = (step) => {
    const rows = $$("#live [data-row], #live tbody tr[id]").filter((row) => row.checkVisibility());
    if (!rows.length) return;
    const at = rows.findLastIndex((row) => row.contains(document.activeElement));
    const row = rows[Math.min(rows.length - 1, Math.max(0, at + step))];
    const target = row.matches("a") ? row : $("a.main", row) || $("a[href], button, summary", row) || row;
    if (target === row && !row.matches("a")) row.tabIndex = -1; // a row without a link, such as one of a worker
    target.focus();
  };

  // --- times

  const UNITS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const spanOf = (seconds) => {
    if (seconds < 60) return `${Math.round(seconds)} s`;
    let left = Math.floor(seconds);
    const parts = [];
    for (const [unit, size] of UNITS) {
      if (left >= size || parts.length) {
        if (Math.floor(left / size)) parts.push(`${Math.floor(left / size)} ${unit}`);
        left %= size;
        if (parts.length === 2 || unit === "s") break;
      }
    }
    return parts.slice(0, 2).join(" ");
  };
  const shown = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

  const drawTimes = () => {
    for (const one of $$("[data-zone]")) one.textContent = ` (${shown.resolvedOptions().timeZone})`;
    const now = Date.now();
    for (const one of $$("time[data-moment]")) {
      const at = Date.parse(one.dateTime);
      if (!Number.isNaN(at)) one.textContent = shown.format(at);
    }
    for (const one of $$("time[datetime]:not([data-moment])")) {
      const at = Date.parse(one.dateTime);
      if (Number.isNaN(at)) continue;
      const span = (now - at) / 1000;
      const text = Math.abs(span) < 1 ? "now" : span > 0 ? `${spanOf(span)} ago` : `in ${spanOf(-span)}`;
      if (one.textContent !== text) one.textContent = text;
      const title = shown.format(at);
      if (one.title !== title) one.title = title;
    }
  };
  setInterval(drawTimes, 5000);

  // --- charts: an element with data-chart has the series as JSON; see web/charts.py

  // 24 hours, and the day where it changes; for each distance of the ticks: at least so far apart, what every tick
  // says, and what is added where the year, month, day, hour, minute or second changes.
  const TICKS = [
    [31536000, "{YYYY}", null, null, null, null, null, null, 1],
    [2419200, "{MMM}", "\n{YYYY}", null, null, null, null, null, 1],
    [86400, "{D} {MMM}", "\n{YYYY}", null, null, null, null, null, 1],
    [60, "{HH}:{mm}", "\n{D} {MMM} {YYYY}", null, "\n{D} {MMM}", null, null, null, 1],
    [1, "{HH}:{mm}:{ss}", "\n{D} {MMM} {YYYY}", null, "\n{D} {MMM}", null, null, null, 1],
  ];
  const AROUND_ONE_S = 300; // a chart of one moment shows so much before and after it

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const charts = new Map();

  const drawCharts = () => {
    for (const [element, chart] of charts) {
      chart.destroy();
      charts.delete(element);
    }
    for (const element of $$("[data-chart]")) {
      const given = JSON.parse(element.dataset.chart);
      const axis = { stroke: colour("--text-dim"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "12px system-ui" };
      const series = given.series.map((one) => ({
        label: one.label,
        stroke: one.hidden ? "transparent" : colour(`--${one.tone}`),
        width: one.dash ? 1.5 : 2,
        dash: one.dash ? [6, 4] : undefined,
        fill: one.fill ? colour(`--${one.tone}-soft`) : undefined,
        points: { show: given.times.length < 3 },
        spanGaps: true,
      }));
      element.replaceChildren();
      charts.set(
        element,
        new uPlot(
          {
            width: Math.max(240, element.clientWidth),
            height: Number(element.dataset.height || 220),
            legend: { live: true },
            cursor: { drag: { x: false, y: false } },
            scales: {
              // Of one point uPlot makes years by itself.
              x: {
                range: ({ data: [times] }, low, high) =>
                  times.length > 1 ? [low, high] : [times[0] - AROUND_ONE_S, times[0] + AROUND_ONE_S],
              },
              y: { range: (_, low, high) => [Math.min(0, low), high > 0 ? high * 1.05 : 1] },
            },
            axes: [{ ...axis, values: TICKS }, { ...axis, size: 56 }],
            bands: (given.bands || []).map((pair) => ({ series: pair, fill: colour("--busy-soft") })),
            series: [{ label: "Time", value: "{YYYY}-{MM}-{DD} {HH}:{mm}" }, ...series],
          },
          [given.times, ...given.series.map((one) => one.values)],
          element,
        ),
      );
    }
  };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawCharts());
  let resizing = null;
  window.addEventListener("resize", () => {
    clearTimeout(resizing);
    resizing = setTimeout(drawCharts, 150);
  });

  // --- a log that grows at its end, such as a chat, stays at its end if the reader is there

  let wasAtEnd = true;
  document.body.addEventListener("htmx:beforeSwap", () => {
    const log = $("[data-log]");
    wasAtEnd = !log || log.scrollHeight - log.scrollTop - log.clientHeight < 40;
  });
  const drawLogs = () => {
    const log = $("[data-log]");
    if (log && wasAtEnd) log.scrollTop = log.scrollHeight;
  };

  const draw = () => {
    drawTimes();
    drawCharts();
    drawLogs();
  };

  readAt = Date.now();
  draw();
  connect();
})();
