// Theme at once and without a reload; language with a reload that keeps what was typed.

import { postForm } from "./page.js";

const KEPT_KEY = "penstock.kept-form";

function setTheme(value) {
  const root = document.documentElement;
  if (value === "system") delete root.dataset.theme;
  else root.dataset.theme = value;
  for (const button of document.querySelectorAll("[data-theme-switch] button")) {
    button.setAttribute("aria-pressed", String(button.value === value));
  }
}

function fields() {
  return [...document.querySelectorAll("main [name], .entry [name]")].filter(
    (field) => !["hidden", "password", "submit", "file"].includes(field.type) && field.tagName !== "BUTTON",
  );
}

function keepFields() {
  const values = fields().map((field) => [field.name, field.type === "radio" || field.type === "checkbox" ? [field.value, field.checked] : field.value]);
  sessionStorage.setItem(KEPT_KEY, JSON.stringify({ path: location.pathname, values }));
}

function restoreFields() {
  const kept = JSON.parse(sessionStorage.getItem(KEPT_KEY) ?? "null");
  sessionStorage.removeItem(KEPT_KEY);
  if (kept?.path !== location.pathname) return;
  const left = [...kept.values];
  for (const field of fields()) {
    const at = left.findIndex(([name, value]) => name === field.name && (!Array.isArray(value) || value[0] === field.value));
    if (at < 0) continue;
    const [[, value]] = left.splice(at, 1);
    if (Array.isArray(value)) field.checked = value[1];
    else field.value = value;
    field.dispatchEvent(new Event("input", { bubbles: true }));
  }
}

export function startPreferences() {
  restoreFields();
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.matches("[data-language]")) keepFields();
    if (form.matches("[data-theme-switch]")) {
      event.preventDefault();
      setTheme(event.submitter.value);
      postForm(form, event.submitter);
    }
  });
  for (const field of document.querySelectorAll("input[data-time-zone]")) {
    field.value = Intl.DateTimeFormat().resolvedOptions().timeZone ?? "UTC";
  }
}
