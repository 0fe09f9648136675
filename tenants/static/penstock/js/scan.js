// A filter that reads on by itself: page after page until the list is full, a number of bytes was read, or the reader stops it.

import { untaken } from "./page.js";

const RETRY_MS = 1_000;
const RETRIES_MAX = 10;
const PENDING = new Set([429, 503]); // others read, or the bandwidth of the instance is used up

class Scan {
  constructor(line) {
    this.line = line;
    this.words = line.querySelector("[data-scan-words]");
    this.bar = line.querySelector("progress");
    this.button = line.querySelector("button");
    const { next, found, scanned, bytes } = line.dataset;
    this.next = next;
    [this.found, this.scanned, this.bytes] = [found, scanned, bytes].map(Number);
    this.spentMs = 0;
    this.button.hidden = false;
    this.button.addEventListener("click", () => (this.reading ? this.stop() : this.go()));
    addEventListener("pagehide", () => this.reading?.abort());
    this.go();
  }

  async go() {
    const reading = (this.reading = new AbortController());
    const bytesMax = this.bytes + Number(this.line.dataset.bytesMax);
    const began = performance.now() - this.spentMs;
    let outcome = "";
    this.bar.hidden = false;
    this.none(true);
    this.bar.max = bytesMax;
    this.button.textContent = this.line.dataset.textStop;
    try {
      while (this.next && this.found < Number(this.line.dataset.rowsMax) && this.bytes < bytesMax) {
        this.say(began, bytesMax);
        const page = await this.read(reading.signal);
        if (reading.signal.aborted) return; // a second click began another one
        if (typeof page === "string") {
          outcome = page;
          break;
        }
        this.show(page);
      }
      if (!this.next) outcome = this.line.dataset.textEnd;
    } catch (error) {
      if (error.name !== "AbortError") outcome = this.line.dataset.textLost;
    }
    if (this.reading !== reading) return;
    this.say(began, bytesMax);
    this.spentMs = performance.now() - began;
    this.end(outcome, this.bytes >= bytesMax);
  }

  stop() {
    this.reading.abort();
    this.end(this.line.dataset.textStopped, false);
  }

  end(outcome, isUsedUp) {
    this.reading = null;
    this.bar.hidden = true;
    this.none(false);
    if (outcome) this.words.textContent += ` ${outcome}`;
    this.button.hidden = !this.next || this.found >= Number(this.line.dataset.rowsMax);
    this.button.textContent = isUsedUp ? this.line.dataset.textMore : this.line.dataset.textOn;
  }

  /** While it reads on, nobody is asked to. */
  none(isHidden) {
    const band = document.querySelector(".empty")?.closest(".band");
    if (band) band.hidden = isHidden;
  }

  /** The next page, or why there is none. */
  async read(signal) {
    const url = `${location.pathname}?${this.line.dataset.query}&page_token=${encodeURIComponent(this.next)}`;
    for (let tries = 1; ; tries += 1) {
      const answer = await fetch(url, { signal, headers: { "HX-Request": "true" } });
      if (answer.status === 401) location.reload();
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (answer.ok) return page;
      if (!PENDING.has(answer.status) || tries === RETRIES_MAX) return page.querySelector("[role=alert] span")?.textContent ?? this.line.dataset.textLost;
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
      signal.throwIfAborted();
    }
  }

  show(page) {
    const { next, scanned, bytes } = page.querySelector("[data-scanned]").dataset;
    this.next = next;
    this.scanned += Number(scanned);
    this.bytes += Number(bytes);
    const rows = [...page.querySelectorAll(".message-list [data-place]")];
    this.found += rows.length;
    const list = document.querySelector(".message-list");
    if (rows.length && list?.querySelector("[data-place]")) {
      if (this.line.dataset.prepends) list.querySelector("[data-place]").before(...rows);
      else list.append(...rows);
    } else if (rows.length) {
      list?.remove();
      document.querySelector(".empty")?.closest(".band").replaceWith(page.querySelector(".message-list"));
    } else if (!this.next && !this.found) {
      document.querySelector(".empty")?.closest(".band").replaceWith(page.querySelector(".empty").closest(".band"));
    }
    this.link(page, this.line.dataset.onward);
    document.querySelector("[data-of-one-page]")?.remove(); // files are of one page, and the list no longer is
  }

  /** The link to the page behind this one leads behind what was read. */
  link(page, rel) {
    const [ours, theirs] = [document, page].map((whole) => whole.querySelector(`.message-foot [rel=${rel}]`));
    if (theirs && ours) ours.replaceWith(theirs);
    else ours?.remove();
  }

  say(began, bytesMax) {
    const megabytes = (bytes) => (bytes / 1e6).toFixed(1);
    const values = {
      n: this.found.toLocaleString("en"), m: this.scanned.toLocaleString("en"), b: megabytes(this.bytes),
      c: megabytes(bytesMax), s: ((performance.now() - began) / 1_000).toFixed(1),
    };
    this.bar.value = this.bytes;
    this.words.textContent = this.line.dataset.textRead.replace(/\{(\w)\}/g, (_, name) => values[name]);
  }
}

export function startScan(root) {
  untaken(root, "[data-scan]").forEach((line) => new Scan(line));
}
