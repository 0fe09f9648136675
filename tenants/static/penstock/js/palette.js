// Search and jump: the server lists what the member may open, the palette narrows it while typing.

import { getJson } from "./page.js";

const SHOWN_MAX = 12;

let entries = null;
let shown = [];
let chosen = 0;

function narrow(query) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  return (entries ?? []).filter((entry) => words.every((word) => `${entry.label} ${entry.hint}`.toLowerCase().includes(word))).slice(0, SHOWN_MAX);
}

function draw(list, field) {
  shown = narrow(field.value);
  chosen = Math.min(chosen, Math.max(0, shown.length - 1));
  list.replaceChildren(
    ...shown.map((entry, at) => {
      const item = document.createElement("li");
      item.role = "option";
      item.id = `palette-${at}`;
      item.ariaSelected = String(at === chosen);
      item.classList.toggle("chosen", at === chosen);
      const link = Object.assign(document.createElement("a"), { href: entry.url, textContent: entry.label, tabIndex: -1 });
      link.append(Object.assign(document.createElement("small"), { textContent: entry.hint }));
      item.append(link);
      return item;
    }),
  );
  if (!shown.length && entries) list.append(Object.assign(document.createElement("li"), { textContent: list.dataset.empty, className: "muted" }));
  field.setAttribute("aria-activedescendant", shown.length ? `palette-${chosen}` : "");
}

export async function openPalette() {
  const dialog = document.getElementById("palette");
  if (!dialog || dialog.open) return;
  const field = dialog.querySelector("input");
  const list = dialog.querySelector("ul");
  field.value = "";
  chosen = 0;
  dialog.showModal();
  entries ??= (await getJson(dialog.dataset.source)).entries;
  draw(list, field);
}

export function startPalette() {
  const dialog = document.getElementById("palette");
  if (!dialog) return;
  const field = dialog.querySelector("input");
  const list = dialog.querySelector("ul");
  field.addEventListener("input", () => {
    chosen = 0;
    draw(list, field);
  });
  field.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      chosen = Math.max(0, Math.min(shown.length - 1, chosen + step));
      draw(list, field);
    } else if (event.key === "Enter" && shown[chosen]) {
      location.assign(shown[chosen].url);
    }
  });
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  document.querySelectorAll("[data-palette-open]").forEach((button) => button.addEventListener("click", openPalette));
}
