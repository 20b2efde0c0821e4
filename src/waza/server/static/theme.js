// Before anything is drawn: the theme a person chose, else the system's.
"use strict";
try {
  const chosen = localStorage.getItem("waza-theme");
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
} catch { /* a browser without storage */ }
