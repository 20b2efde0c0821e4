// A trial: steps by keys, calls opened all at once, and the one an address names.
"use strict";
(() => {
  const steps = () => [...document.querySelectorAll(".steps > li")];
  const calls = () => [...document.querySelectorAll(".call-step details")];
  let place = -1;

  function move(next) {
    const list = steps();
    if (!list.length) return;
    list[place]?.classList.remove("here");
    place = Math.max(0, Math.min(list.length - 1, next));
    list[place].classList.add("here");
    list[place].scrollIntoView({block: "nearest"});
    list[place].querySelector("summary")?.focus({preventScroll: true});
  }

  function openAll(isOpen) {
    calls().forEach((call) => { call.open = isOpen; });
  }

  const keys = {
    "j": () => move(place + 1),
    "k": () => move(place - 1),
    "n": () => {
      const found = steps().findIndex((step, at) => at > place && step.dataset.status === "failed");
      if (found >= 0) move(found);
    },
    "o": () => openAll(!calls().every((call) => call.open)),
  };
  // Before the keys of every page: here j and k go through the steps.
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input, select, textarea, dialog")) return;
    const act = keys[event.key];
    if (act) { event.preventDefault(); act(); }
  }, true);

  document.addEventListener("click", (event) => {
    if (event.target.closest("#open-all")) openAll(true);
    if (event.target.closest("#close-all")) openAll(false);
  });

  function show() {
    const name = decodeURIComponent(location.hash.slice(1));
    const target = name && document.getElementById(name);
    if (!name && /[?&]skip=/.test(location.search)) document.getElementById("transcript")?.scrollIntoView();
    if (target?.tagName !== "DETAILS") return;
    target.open = true;
    const at = steps().findIndex((step) => step.contains(target));
    if (at >= 0) move(at);
    target.scrollIntoView({block: "center"});
  }
  addEventListener("hashchange", show);
  show();
})();
