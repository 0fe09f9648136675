// Copy buttons: the whole value is the target; the icon becomes a tick for 1.5 s.

import { speak, text } from "./page.js";

const TICK_MS = 1_500;

async function write(value) {
  if (navigator.clipboard && window.isSecureContext) return navigator.clipboard.writeText(value);
  const field = Object.assign(document.createElement("textarea"), { value, className: "sr" });
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
}

const valueOf = (button) => button.dataset.copy ?? document.getElementById(button.dataset.copyFrom)?.textContent ?? "";

export function startCopy() {
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy], [data-copy-from]");
    if (!button) return;
    await write(valueOf(button));
    button.closest("[data-secret]")?.setAttribute("data-used", "");
    speak(text("copied"));
    const use = button.querySelector("use");
    if (!use || button.classList.contains("copied")) return;
    const before = use.getAttribute("href");
    use.setAttribute("href", before.replace("#copy", "#check"));
    button.classList.add("copied");
    setTimeout(() => {
      use.setAttribute("href", before);
      button.classList.remove("copied");
    }, TICK_MS);
  });
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-download]");
    if (!button) return;
    const file = new Blob([button.dataset.download], { type: "text/plain" });
    const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(file), download: button.dataset.fileName });
    link.click();
    URL.revokeObjectURL(link.href);
    button.closest("[data-secret]")?.setAttribute("data-used", "");
  });
  addEventListener("beforeunload", (event) => {
    const secret = document.querySelector("[data-secret]:not([data-used])");
    if (secret) event.preventDefault();
  });
}
