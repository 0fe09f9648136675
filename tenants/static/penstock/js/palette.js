// Search and jump: the server looks for what is typed; topics and groups come from brokers, so they may come later.

import { getJson } from "./page.js";

const ASK_AFTER_MS = 120;
const NAMES_WITHIN_MS = 3_000;
const SHOWN_MAX = 30;
const PARTS = ["places", "names"];

let found = { places: [], names: [] };
let isPartial = false;
let isAsking = false;
let shown = [];
let chosen = 0;
let asked = null;
let timer = 0;

function matching(query) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const all = PARTS.flatMap((part) => found[part]);
  return all.filter((entry) => words.every((word) => `${entry.label} ${entry.hint}`.toLowerCase().includes(word))).slice(0, SHOWN_MAX);
}

function draw(list, field) {
  shown = matching(field.value);
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
  const note = isPartial ? list.dataset.partial : !shown.length && !isAsking ? list.dataset.empty : "";
  if (note) list.append(Object.assign(document.createElement("li"), { textContent: note, className: "muted" }));
  field.setAttribute("aria-activedescendant", shown.length ? `palette-${chosen}` : "");
}

/** Both parts for what is typed. What is asked for later takes the place of what was asked for before. */
async function search(dialog, field, list) {
  asked?.abort();
  const mine = (asked = new AbortController());
  isAsking = true;
  const ask = async (part, signal) => {
    const query = new URLSearchParams({ q: field.value, instance: dialog.dataset.instance, part });
    let answer = { entries: [], is_partial: true };
    try {
      answer = await getJson(`${dialog.dataset.source}?${query}`, signal);
    } catch {
      // no answer is a partial one
    }
    if (mine !== asked) return;
    found[part] = answer.entries;
    if (part === "names") isPartial = answer.is_partial;
    draw(list, field);
  };
  await Promise.all([ask("places", mine.signal), ask("names", AbortSignal.any([mine.signal, AbortSignal.timeout(NAMES_WITHIN_MS)]))]);
  if (mine !== asked) return;
  isAsking = false;
  draw(list, field);
}

export async function openPalette() {
  const dialog = document.getElementById("palette");
  if (!dialog || dialog.open) return;
  const field = dialog.querySelector("input");
  field.value = "";
  chosen = 0;
  dialog.showModal();
  await search(dialog, field, dialog.querySelector("ul"));
}

export function startPalette() {
  const dialog = document.getElementById("palette");
  if (!dialog) return;
  const field = dialog.querySelector("input");
  const list = dialog.querySelector("ul");
  field.addEventListener("input", () => {
    chosen = 0;
    isAsking = true;
    draw(list, field);
    clearTimeout(timer);
    timer = setTimeout(() => search(dialog, field, list), ASK_AFTER_MS);
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
