// Single keys, none with modifiers, none while typing; all of them can be switched off.

import { isTyping } from "./page.js";
import { openPalette } from "./palette.js";

const OFF_KEY = "penstock.keys-off";
const SIDE_KEY = "penstock.side-closed";
const SEQUENCE_MS = 1_200;

let pendingUntil = 0;

const click = (selector) => document.querySelector(selector)?.click();

function moveRow(step) {
  const rows = [...document.querySelectorAll("main tbody tr")].filter((row) => row.querySelector("a.name"));
  if (!rows.length) return;
  const at = rows.findIndex((row) => row.classList.contains("current"));
  const next = rows[Math.max(0, Math.min(rows.length - 1, at + step))];
  rows.forEach((row) => row.classList.toggle("current", row === next));
  next.querySelector("a.name").focus();
}

function openKeys() {
  document.getElementById("keys")?.showModal();
}

const acts = {
  "/": openPalette,
  "?": openKeys,
  c: () => click("[data-act='create']"),
  e: () => click("[data-act='edit']"),
  j: () => moveRow(1),
  k: () => moveRow(-1),
  z: () => click("[data-undo]"),
  "[": () => localStorage.setItem(SIDE_KEY, document.body.classList.toggle("side-closed") ? "1" : ""),
};

export function startKeys() {
  document.body.classList.toggle("side-closed", localStorage.getItem(SIDE_KEY) === "1");
  const isOn = document.querySelector("[data-keys-switch]");
  if (isOn) {
    isOn.checked = localStorage.getItem(OFF_KEY) !== "1";
    isOn.addEventListener("change", () => localStorage.setItem(OFF_KEY, isOn.checked ? "" : "1"));
  }
  document.querySelectorAll("[data-keys-open]").forEach((button) => button.addEventListener("click", openKeys));
  document.getElementById("keys")?.addEventListener("click", (event) => event.target.id === "keys" && event.target.close());
  document.addEventListener("keydown", (event) => {
    const isPlain = !event.ctrlKey && !event.metaKey && !event.altKey;
    if (!isPlain || isTyping(event.target) || document.querySelector("dialog[open]") || localStorage.getItem(OFF_KEY) === "1") return;
    if (event.timeStamp < pendingUntil) {
      pendingUntil = 0;
      click(`[data-key='g ${CSS.escape(event.key)}']`);
      return;
    }
    if (event.key === "g") {
      pendingUntil = event.timeStamp + SEQUENCE_MS;
      return;
    }
    const act = acts[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
}
