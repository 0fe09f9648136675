// Toasts, the undo bar, menus and the drawer.

import { text } from "./page.js";

const TOAST_MS = 6_000;
const UNDO_MS = 10_000;
const UNDO_STEP_MS = 250;

function startToast(toast) {
  toast.querySelector(".close")?.addEventListener("click", () => toast.remove());
  if (!toast.hasAttribute("data-stays")) setTimeout(() => toast.remove(), TOAST_MS);
}

function startUndo(bar) {
  const label = bar.querySelector(".left");
  let left = UNDO_MS;
  const timer = setInterval(() => {
    if (!bar.matches(":hover, :focus-within")) left -= UNDO_STEP_MS;
    label.textContent = text("seconds").replace("{n}", Math.ceil(left / 1000));
    if (left <= 0) {
      clearInterval(timer);
      bar.remove();
    }
  }, UNDO_STEP_MS);
}

export function startNotices() {
  document.querySelectorAll(".toast").forEach(startToast);
  document.querySelectorAll(".undo").forEach(startUndo);
  const drawer = document.querySelector("[data-drawer]");
  drawer?.addEventListener("click", () => {
    drawer.setAttribute("aria-expanded", String(document.body.classList.toggle("drawer-open")));
  });
  document.addEventListener("click", (event) => {
    for (const menu of document.querySelectorAll("details.menu[open]")) {
      if (!menu.contains(event.target)) menu.open = false;
    }
    if (!event.target.closest(".side, [data-drawer]")) document.body.classList.remove("drawer-open");
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    const menu = document.querySelector("details.menu[open]");
    if (menu) {
      menu.open = false;
      menu.querySelector("summary").focus();
    }
    document.body.classList.remove("drawer-open");
  });
}
