// Busy buttons, confirmation by typing, focus on the first wrong field.

import { text } from "./page.js";

const BUSY_STEP_MS = 100;

function markBusy(form, button) {
  const act = button.dataset.busy;
  if (!act) return;
  button.style.minWidth = `${button.offsetWidth}px`;
  const started = performance.now();
  const tell = () => {
    button.textContent = act.replace("{n}", ((performance.now() - started) / 1000).toFixed(1));
  };
  button.setAttribute("aria-disabled", "true");
  tell();
  setInterval(tell, BUSY_STEP_MS);
}

function startTypedConfirmation(field) {
  const button = field.form.querySelector("[data-confirmed]");
  const check = () => {
    button.disabled = field.value !== field.dataset.confirm;
  };
  field.addEventListener("input", check);
  check();
}

function focusFirstFault() {
  const fault = document.querySelector("main [aria-invalid='true'], .entry [aria-invalid='true']");
  fault?.focus();
  // Where the address names a part of the page, the browser takes the focus away once it has scrolled there.
  if (fault && location.hash) addEventListener("load", () => setTimeout(() => fault.focus()));
}

// A file goes into a text field as it is, or as base64 where it is no text; the form itself sends no files.
async function readInto(input) {
  const file = input.files[0];
  const field = document.getElementById(input.dataset.readInto);
  const { formatInto, textBinary, textTooLarge } = input.dataset;
  input.setCustomValidity(file && textTooLarge && file.size > field.maxLength ? textTooLarge : "");
  if (!input.reportValidity() || !file || file.size > 2 * field.maxLength) return;
  const bytes = new Uint8Array(await file.arrayBuffer());
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    if (/[\x00-\x08\x0b\x0c\x0e-\x1f]/.test(text)) throw new TypeError("binary");
  } catch {
    if (textBinary) {
      input.setCustomValidity(textBinary);
      input.reportValidity();
      return;
    }
    text = null;
  }
  field.value = text ?? btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
  if (formatInto) document.getElementById(formatInto).value = text === null ? "base64" : "text";
}

export function startForms() {
  document.querySelectorAll("[data-confirm]").forEach(startTypedConfirmation);
  focusFirstFault();
  document.addEventListener("submit", (event) => {
    const form = event.target;
    const button = event.submitter ?? form.querySelector("button:not([type='button'])");
    if (event.defaultPrevented || !button) return;
    if (button.getAttribute("aria-disabled") === "true") {
      event.preventDefault(); // a second click does nothing
      return;
    }
    markBusy(form, button);
  });
  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-submit-on-change]")) event.target.form.requestSubmit();
    if (event.target.matches("[data-read-into]")) readInto(event.target);
  });
  document.body.addEventListener("htmx:responseError", () => tellUnreachable());
  document.body.addEventListener("htmx:sendError", () => tellUnreachable());
  addEventListener("pageshow", (event) => {
    if (event.persisted) location.reload(); // never show a page with a secret or a stale state out of the history
  });
}

function tellUnreachable() {
  document.getElementById("spoken").textContent = text("unreachable");
}
