// Keys, theme, how long ago. Text is only ever set as text; addresses come from links the server made.
"use strict";
(() => {
  const one = (selector) => document.querySelector(selector);
  const all = (selector) => [...document.querySelectorAll(selector)];

  function toggleTheme() {
    const root = document.documentElement;
    const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
    root.dataset.theme = (root.dataset.theme || system) === "dark" ? "light" : "dark";
    try { localStorage.setItem("waza-theme", root.dataset.theme); } catch { /* not stored */ }
    dispatchEvent(new Event("themechange"));
  }

  function ago(seconds) {
    for (const [size, word] of [[86400, "day"], [3600, "hour"], [60, "minute"]]) {
      const many = Math.floor(seconds / size);
      if (many >= 1) return `${many} ${word}${many === 1 ? "" : "s"} ago`;
    }
    return "just now";
  }

  function tellAges() {
    for (const time of all("time")) {
      const then = Date.parse(time.dateTime);
      if (then) time.title = ago((Date.now() - then) / 1000);
    }
  }

  // Rows: j and k move, Enter opens, n goes to the next that failed.
  const rows = () => all(".rows tbody tr, ul.rows > li");
  let place = -1;
  function move(next) {
    const list = rows();
    if (!list.length) return;
    list[place]?.classList.remove("here");
    place = Math.max(0, Math.min(list.length - 1, next));
    const row = list[place];
    row.classList.add("here");
    row.scrollIntoView({block: "nearest"});
    row.querySelector("a")?.focus({preventScroll: true});
  }
  function nextFailed() {
    const list = rows();
    const found = list.findIndex((row, at) => at > place && ["failed", "error"].includes(row.dataset.status));
    if (found >= 0) move(found);
  }

  const follow = (link) => link && link.click();
  const keys = {
    "/": () => one("#search")?.focus(),
    "j": () => move(place + 1),
    "k": () => move(place - 1),
    "n": nextFailed,
    "c": () => one(".here input[type=checkbox]")?.click(),
    "u": () => follow(all(".crumbs a").at(-1)),
    "[": () => follow(one("a[rel=prev]")),
    "]": () => follow(one("a[rel=next]")),
    "d": toggleTheme,
    "e": () => follow(one("#export")),
    "?": () => one("#keys")?.showModal(),
  };
  let isGoing = false;
  addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    const field = event.target.closest?.("input, select, textarea, dialog");
    if (field) {
      if (event.key === "Escape") field.blur?.();
      return;
    }
    if (isGoing) {
      isGoing = false;
      const link = one(`header nav a[data-key="${CSS.escape(event.key)}"]`);
      if (link) { event.preventDefault(); follow(link); }
      return;
    }
    if (event.key === "g") {
      isGoing = true;
      setTimeout(() => { isGoing = false; }, 1500);
      return;
    }
    const act = keys[event.key];
    if (act) { event.preventDefault(); act(); }
  });

  document.addEventListener("click", (event) => {
    if (event.target.closest("#theme")) toggleTheme();
    if (event.target.closest("#help")) one("#keys").showModal();
  });
  document.addEventListener("change", (event) => {
    if (event.target.matches(".filters select, .filters input[type=date]")) event.target.form.requestSubmit();
  });
  addEventListener("mainchange", () => { place = -1; tellAges(); });
  // Folded parts would be missing on paper.
  addEventListener("beforeprint", () => all("details:not(.chart details)").forEach((part) => { part.open = true; }));
  // Tables that a report made scroll sideways too, so they must be reachable by keys.
  for (const part of all(".wide:not([tabindex])")) {
    part.tabIndex = 0;
    part.setAttribute("role", "region");
    part.setAttribute("aria-label", "table");
  }
  tellAges();
})();
