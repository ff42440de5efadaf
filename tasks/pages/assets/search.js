"use strict";
/**
 * A box with suggestions, after the combobox pattern of the ARIA Authoring Practices.
 *
 * @param {HTMLElement} box holds an input, a listbox and a status line.
 * @param {(text: string) => {title: string, detail: string, choose: () => void}[]} find what suits
 *   the text, best first.
 */
function searchBox(box, find) {
  const input = box.querySelector("input");
  const list = box.querySelector("[role=listbox]");
  const status = box.querySelector("[role=status]");
  let found = [];
  let active = -1;

  function activate(position) {
    active = position;
    [...list.children].forEach((option, at) => option.setAttribute("aria-selected", at === active));
    if (active < 0) {
      input.removeAttribute("aria-activedescendant");
    } else {
      input.setAttribute("aria-activedescendant", list.children[active].id);
      list.children[active].scrollIntoView({ block: "nearest" });
    }
  }

  function offer(suggestions) {
    found = suggestions;
    list.replaceChildren(...found.map(option));
    list.hidden = found.length === 0;
    input.setAttribute("aria-expanded", String(!list.hidden));
    activate(-1);
  }

  function option(suggestion, position) {
    const element = document.createElement("li");
    const detail = document.createElement("small");
    detail.textContent = suggestion.detail;
    element.id = `${list.id}-${position}`;
    element.setAttribute("role", "option");
    element.append(suggestion.title, detail);
    element.addEventListener("pointerdown", (event) => {
      event.preventDefault(); // the box keeps the focus
      choose(suggestion);
    });
    return element;
  }

  function choose(suggestion) {
    offer([]);
    input.value = "";
    status.textContent = `Showing ${suggestion.title}.`;
    suggestion.choose();
  }

  input.addEventListener("input", () => {
    offer(find(input.value));
    if (!input.value.trim()) status.textContent = "";
    else if (found.length === 0) status.textContent = "Nothing of that name.";
    else status.textContent = `${found.length} suggestion${found.length === 1 ? "" : "s"}.`;
  });
  input.addEventListener("blur", () => offer([]));
  input.addEventListener("keydown", (event) => {
    if (found.length === 0) return;
    if (event.key === "ArrowDown") activate((active + 1) % found.length);
    else if (event.key === "ArrowUp") activate((active <= 0 ? found.length : active) - 1);
    else if (event.key === "Enter") choose(found[Math.max(active, 0)]);
    else if (event.key === "Escape") offer([]);
    else return;
    event.preventDefault();
  });
}
