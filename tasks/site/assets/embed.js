"use strict";
// The report inside of a page turns light or dark together with it.
(() => {
  const frame = document.getElementById("report");
  document.getElementById("theme").addEventListener("click", () => {
    const inside = frame.contentDocument; // none where files may not look into one another
    if (inside) inside.documentElement.dataset.theme = document.documentElement.dataset.theme;
    else frame.src = frame.src; // it reads what was chosen when it is opened anew
  });
})();
