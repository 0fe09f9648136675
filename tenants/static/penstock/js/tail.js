// Live messages: rows that the server sends as events come first in the list, which keeps a bounded number of them.

import { untaken } from "./page.js";

const ROWS_MAX = 200;

class Tail {
  constructor(button) {
    this.button = button;
    this.start = button.textContent;
    this.state = document.getElementById("live-state");
    button.hidden = false;
    button.setAttribute("aria-pressed", "false");
    button.addEventListener("click", () => (this.source ? this.end("") : this.begin()));
    addEventListener("pagehide", () => this.source?.close());
  }

  begin() {
    this.shown = 0;
    this.source = new EventSource(this.button.dataset.liveTail);
    this.source.addEventListener("open", () => this.wait()); // from here on nothing is left out
    this.source.addEventListener("message", (event) => this.show(event.data));
    this.source.addEventListener("trouble", (event) => this.say("trouble", "detail", JSON.parse(event.data).detail));
    this.source.addEventListener("error", () => this.source?.readyState === EventSource.CLOSED && this.end(this.button.dataset.textLost));
    this.button.textContent = this.button.dataset.textStop;
    this.button.setAttribute("aria-pressed", "true");
  }

  wait() {
    if (this.shown) return; // it was opened again
    this.state.hidden = false;
    this.state.textContent = this.button.dataset.textWaiting;
  }

  end(words) {
    this.source.close();
    this.source = null;
    this.button.textContent = this.start;
    this.button.setAttribute("aria-pressed", "false");
    this.state.textContent = words;
    this.state.hidden = !words;
  }

  show(html) {
    const row = new DOMParser().parseFromString(html, "text/html").body.firstElementChild;
    const list = document.querySelector(".message-list");
    list.hidden = false;
    document.querySelector(".empty")?.closest(".band").remove();
    const place = row.dataset.place;
    if ([...list.querySelectorAll("[data-place]")].some((other) => other.dataset.place === place)) return; // it came twice
    const head = list.querySelector(".message-head");
    if (head) head.after(row);
    else list.prepend(row);
    const rows = list.querySelectorAll("[data-place]");
    for (const old of [...rows].slice(ROWS_MAX)) if (!old.open) old.remove();
    this.shown += 1;
    this.say("shown", "n", this.shown);
  }

  say(name, place, value) {
    this.state.hidden = false;
    this.state.textContent = this.button.dataset[`text${name[0].toUpperCase()}${name.slice(1)}`].replace(`{${place}}`, value);
  }
}

export function startTail(root) {
  untaken(root, "[data-live-tail]").forEach((button) => new Tail(button));
}
