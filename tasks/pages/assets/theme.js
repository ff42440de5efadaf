"use strict";
// Light or dark: as the system says until the reader says otherwise.
(() => {
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme || (dark.matches ? "dark" : "light")) === "dark";
  const label = () => { button.textContent = isDark() ? "Light mode" : "Dark mode"; };
  // A page opened from a disk may be refused a memory; it then starts as the system says.
  const remember = (action) => { try { return action(localStorage); } catch { return null; } };
  const chosen = remember((memory) => memory.getItem("pgsr-theme"));
  if (chosen === "dark" || chosen === "light") root.dataset.theme = chosen;
  button.hidden = false;
  label();
  dark.addEventListener("change", label);
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    remember((memory) => memory.setItem("pgsr-theme", root.dataset.theme));
    label();
  });
})();
