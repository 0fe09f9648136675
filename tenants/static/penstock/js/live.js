// Parts of a page that keep themselves fresh: fetched in a period, replaced only when they differ, muted when stale.

import { focusScrolling, parsePart, untaken } from "./page.js";
import { clock } from "./scale.js";

const STALE_AFTER_PERIODS = 3;

class LivePart {
  constructor(box) {
    this.box = box;
    this.period = Number(box.dataset.period);
    this.lastOkMs = 0;
    this.ask();
    document.addEventListener("visibilitychange", () => !document.hidden && this.ask());
  }

  async ask() {
    clearTimeout(this.timer);
    if (document.hidden) return;
    // Without an address of its own a part is the page's, whose filter changes the address while the part stays.
    const url = this.box.dataset.live || location.href;
    try {
      const answer = await fetch(url, { headers: { "HX-Request": "true" } });
      if (answer.status === 401) return location.reload(); // signed out meanwhile: to the login, and back here
      // While something is wrong, the server asks to be asked more often than the page says.
      this.soon = Number(answer.headers.get("Live-Period")) || 0;
      const html = await answer.text();
      const isCurrent = url === (this.box.dataset.live || location.href);
      if (isCurrent && (answer.ok || !this.lastOkMs)) this.show(html);
      if (!answer.ok) throw new Error(String(answer.status));
      this.lastOkMs = Date.now();
      this.box.classList.remove("stale");
      this.box.removeAttribute("title");
    } catch {
      this.tellStale();
    }
    if (this.period) this.timer = setTimeout(() => this.ask(), this.soon ? Math.min(this.soon, this.period) : this.period);
  }

  tellStale() {
    if (!this.lastOkMs || Date.now() - this.lastOkMs < STALE_AFTER_PERIODS * this.period) return;
    this.box.classList.add("stale");
    this.box.title = this.box.dataset.textStale?.replace("{n}", clock(new Date(this.lastOkMs))) ?? "";
  }

  show(html) {
    if (html === this.shown || this.box.contains(document.activeElement)) return; // never under somebody's fingers
    this.shown = html;
    const fresh = parsePart(html);
    this.box.replaceChildren(...fresh.childNodes);
    this.box.removeAttribute("aria-busy");
    focusScrolling(this.box);
  }
}

export function startLive(root) {
  untaken(root, "[data-live]").forEach((box) => new LivePart(box));
}
