// Review by keys: j and k go forward and back, p and f choose, then a reason; Enter in it records.
"use strict";
(() => {
  const one = (selector) => document.querySelector(selector);
  const storeName = (name) => { try { localStorage.setItem("waza-reviewer", name); } catch { /* not stored */ } };
  const storedName = () => { try { return localStorage.getItem("waza-reviewer") || ""; } catch { return ""; } };

  // A name given before is used again, so that what one has judged is known.
  const query = new URLSearchParams(location.search);
  if (query.has("run") && !query.has("by") && storedName()) {
    query.set("by", storedName());
    location.replace(`${location.pathname}?${query}`);
    return;
  }

  // A page without a referrer sends a form without its origin; a request of a script has one.
  function send(form) {
    const request = new XMLHttpRequest();
    request.open("POST", form.getAttribute("action"));
    request.responseType = "document";
    request.onload = () => {
      if (request.status === 200) location.assign(request.responseURL);
      else report(request.response?.querySelector("main p")?.textContent || `not recorded (${request.status})`);
    };
    request.onerror = () => report("The server does not answer: nothing was recorded.");
    request.send(new URLSearchParams(new FormData(form)));
  }

  function report(words) {
    one("#trouble").textContent = words;
  }

  document.addEventListener("submit", (event) => {
    if (event.target.method !== "post") return;
    event.preventDefault();
    if (event.target.id === "verdict-form") storeName(one("#by").value.trim());
    send(event.target);
  });

  function choose(answer) {
    const radio = one(`#answer-${answer}`);
    if (!radio) return;
    radio.checked = true;
    one("#reason").focus();
  }

  const keys = {
    "j": () => one("#after")?.click(),
    "k": () => one("#before")?.click(),
    "p": () => choose("pass"),
    "f": () => choose("fail"),
  };
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest?.("input[type=text], select, textarea, dialog")) return;
    const act = keys[event.key];
    if (act) { event.preventDefault(); act(); }
  }, true);
})();
