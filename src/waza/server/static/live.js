// What happens while one looks: the list of runs takes over new ones, the live view adds each result.
"use strict";
(() => {
  const one = (selector, inside = document) => inside.querySelector(selector);
  const MARKS = {passed: "✓", failed: "✗", error: "?", skipped: "–"};
  const WORDS = {passed: "passed", failed: "failed", error: "undecided", skipped: "not graded"};

  function showProgress(progress, done, planned) {
    if (!progress) return;
    const bar = one("progress", progress);
    if (bar) { bar.max = planned || 1; bar.value = done; }
    one(".amount", progress).textContent = planned ? `${done} of ${planned}` : `${done} done`;
  }

  function seconds(ms) {
    if (ms < 1000) return `${Math.round(ms)} ms`;
    return ms < 60000 ? `${(ms / 1000).toFixed(1)} s` : `${Math.floor(ms / 60000)} min ${Math.floor(ms % 60000 / 1000)} s`;
  }

  function span(text, name) {
    const made = document.createElement("span");
    made.textContent = text;
    made.className = name;
    return made;
  }

  // The list: the page is fetched again, and its content replaces this one's.
  function swap() {
    const ask = new XMLHttpRequest();
    ask.open("GET", location.href);
    ask.responseType = "document";
    ask.onload = () => {
      const next = ask.response && one("#main", ask.response);
      if (ask.status !== 200 || !next) return;
      // Somebody is typing a filter, or choosing runs to compare.
      if (document.activeElement?.closest(".filters") || one("#chosen :checked")) return;
      one("#main").replaceWith(document.adoptNode(next));
      dispatchEvent(new Event("mainchange"));
    };
    ask.send();
  }

  // A browser opens few connections to one host, so a hidden page closes its own.
  function follow(address, hear, onReturn = () => {}) {
    let events = null;
    let last = "";
    let isOver = false;
    function open() {
      events?.close();
      if (isOver) return;
      const url = new URL(address, location.origin);
      if (last) url.searchParams.set("from", last);
      events = new EventSource(url);
      for (const [kind, act] of Object.entries(hear)) {
        events.addEventListener(kind, (event) => {
          last = event.lastEventId || last;
          act(JSON.parse(event.data), () => { isOver = true; events.close(); });
        });
      }
    }
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) events?.close();
      else { onReturn(); open(); }
    });
    addEventListener("pagehide", () => events?.close());
    addEventListener("pageshow", (event) => { if (event.persisted) open(); });
    open();
  }

  function watchList() {
    follow("/events", {
      changed: swap,
      live: (runs) => {
        for (const run of runs) {
          const card = one(`#live [data-run="${CSS.escape(run.run)}"]`);
          if (card) showProgress(one(".progress", card), run.done, run.planned);
        }
      },
    }, swap);
  }

  function add(feed, watch, result) {
    const item = document.createElement("li");
    const link = document.createElement("a");
    const mark = span(MARKS[result.status] || "?", "mark");
    if (MARKS[result.status]) mark.classList.add(result.status);
    mark.setAttribute("role", "img");
    mark.setAttribute("aria-label", WORDS[result.status] || "unknown");
    const query = new URLSearchParams({id: result.task, trial: String(result.trial)});
    link.href = `${watch.dataset.task}?${query}`;
    link.textContent = result.task;
    const score = result.score === null ? "–" : result.score.toFixed(2);
    const why = result.reason ? ` · ${result.reason}` : "";
    item.append(mark, " ", link, span(` trial ${result.trial} · score ${score} · ${seconds(result.ms)}${why}`, "soft"));
    item.classList.add("new");
    item.dataset.task = result.task;
    item.dataset.trial = result.trial;
    const same = (other) => other.dataset.task === result.task && other.dataset.trial === String(result.trial);
    [...feed.children].filter(same).forEach((other) => other.remove());
    feed.prepend(item);
    while (feed.children.length > Number(feed.dataset.most)) feed.lastElementChild.remove();
  }

  function watchRun(watch) {
    const feed = one("#feed");
    function count(data) {
      showProgress(one("#progress .progress"), data.done, data.planned);
      for (const status of Object.keys(MARKS)) one(`#n-${status}`).textContent = data[status] || 0;
    }
    follow(watch.dataset.events, {
      result: (data) => {
        add(feed, watch, data);
        count(data);
      },
      note: (data) => {
        const item = document.createElement("li");
        item.textContent = data.note;
        feed.prepend(item);
      },
      over: (data, stop) => {
        stop();
        if (data.problem === undefined) count(data);
        one("#state").textContent = data.problem || "ended";
        one("#state").classList.remove("running");
        one("#whole").textContent = "the run with all its numbers";
      },
    });
  }

  const watch = one("#watch");
  if (watch) watchRun(watch);
  else watchList();
})();
