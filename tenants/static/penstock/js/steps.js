// The provisioning stepper: asks for the operation every 300 ms and shows what came. A reload shows the same.

import { parsePart, untaken } from "./page.js";

const PERIOD_MS = 300;
const PERIOD_MS_MAX = 3_000;

export function startSteps(root) {
  untaken(root, "[data-operation]").forEach(follow);
}

function follow(panel) {
  let period = PERIOD_MS;

  async function ask() {
    if (document.hidden) {
      setTimeout(ask, PERIOD_MS);
      return;
    }
    try {
      const answer = await fetch(panel.dataset.operation, { headers: { "HX-Request": "true" } });
      if (answer.status === 401) return location.reload();
      if (!answer.ok) throw new Error(String(answer.status));
      show(await answer.text());
      period = PERIOD_MS;
    } catch {
      period = Math.min(period * 2, PERIOD_MS_MAX); // the web process restarts; the operation goes on without it
    }
    if (!panel.querySelector("[data-finished]")) setTimeout(ask, period);
  }

  function show(html) {
    const fresh = parsePart(html);
    if (panel.innerHTML !== fresh.innerHTML) panel.replaceChildren(...fresh.childNodes);
    const next = panel.querySelector("[data-go]");
    if (next) location.assign(next.dataset.go);
    const busy = document.querySelector("[data-elapsed]");
    const elapsed = panel.querySelector("[data-elapsed-s]");
    if (busy && elapsed) busy.textContent = busy.dataset.elapsed.replace("{n}", elapsed.dataset.elapsedS);
  }

  if (!panel.querySelector("[data-finished]")) setTimeout(ask, PERIOD_MS);
}
