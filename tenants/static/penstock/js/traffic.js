// The live traffic of an instance: asks each second, keeps 15 minutes, draws, answers hover and keys, fills the gauges.

import { Chart } from "./chart.js";
import { clock, clockUtc, rateText } from "./scale.js";
import { getJson, untaken } from "./page.js";

const PERIOD_MS = 1_000;
const HISTORY_PERIOD_MS = 30_000;
const SPAN_MS = 900_000;
const STALE_AFTER_MS = 3_000;
const HOT_PERCENT = 80;
const FULL_PERCENT = 99.5; // rates wander a little around a limit that is kept
const OVERLAP_MS = 2_000; // asked again: a broker's last second may have been told a moment late

const OWED_MS = 120_000; // so far back a broker that was silent is asked for what it missed to tell

/** Gaps in order, with neighbours that touch made one. */
function joined(gaps) {
  const found = [];
  for (const [from, to] of gaps.filter(([from, to]) => to > from)) {
    if (found.at(-1)?.[1] === from) found.at(-1)[1] = to;
    else found.push([from, to]);
  }
  return found;
}

/** Stretches before `since` as they were, then the new ones; those that touch and miss the same brokers made one. */
function joinedParts(parts) {
  const found = [];
  for (const [from, to, ids] of parts.filter(([from, to]) => to > from)) {
    const last = found.at(-1);
    if (last?.[1] === from && String(last[2]) === String(ids)) last[1] = to;
    else found.push([from, to, ids]);
  }
  return found;
}

class Traffic {
  constructor(box) {
    this.box = box;
    this.plot = box.querySelector(".chart-plot");
    this.tip = box.querySelector(".chart-tip");
    this.live = box.querySelector(".live");
    this.note = box.querySelector(".chart-note");
    this.table = box.querySelector(".chart-table");
    this.chart = new Chart(this.plot, { limit: box.dataset.textLimit, gap: box.dataset.textGap });
    this.points = [];
    this.gaps = [];
    this.partial = [];
    this.range = box.dataset.range ?? "15m"; // the chart of a topic has metered spans alone
    this.url = box.dataset.url;
    this.lastAnswerMs = 0;
    this.listen();
    this.ask();
  }

  listen() {
    this.plot.addEventListener("pointermove", (event) => this.show(this.chart.timeAt(event.offsetX)));
    this.plot.addEventListener("pointerleave", () => this.hide());
    this.plot.addEventListener("keydown", (event) => this.onKey(event));
    this.plot.addEventListener("blur", () => this.hide());
    new ResizeObserver(() => this.draw()).observe(this.plot);
    this.box.querySelector("[data-table]")?.addEventListener("click", (event) => {
      this.table.hidden = !this.table.hidden;
      event.target.setAttribute("aria-expanded", String(!this.table.hidden));
      this.fillTable();
    });
    this.box.querySelector("[data-pause]")?.addEventListener("click", (event) => {
      this.isPaused = !this.isPaused;
      event.target.textContent = this.isPaused ? event.target.dataset.resume : event.target.dataset.pause;
      this.live.classList.toggle("paused", this.isPaused);
      if (!this.isPaused) this.ask();
    });
    for (const button of this.box.querySelectorAll("[data-range]")) {
      button.addEventListener("click", () => this.choose(button));
    }
    document.addEventListener("visibilitychange", () => !document.hidden && this.ask());
  }

  choose(button) {
    for (const other of this.box.querySelectorAll("[data-range]")) other.setAttribute("aria-pressed", String(other === button));
    this.range = button.dataset.range;
    this.url = button.dataset.url;
    this.points = [];
    this.gaps = [];
    this.partial = [];
    this.chart.forget();
    this.ask();
  }

  async ask() {
    clearTimeout(this.timer);
    if (document.hidden || this.isPaused) return;
    this.inFlight?.abort();
    this.inFlight = new AbortController();
    const isLive = this.range === "15m";
    const since = isLive && this.points.length ? this.firstToAsk() : 0;
    try {
      const answer = await getJson(isLive ? `${this.box.dataset.traffic}?since_ms=${since}` : this.url, this.inFlight.signal);
      this.take(answer, isLive ? since : null);
    } catch (error) {
      if (error.name === "AbortError") return;
      this.tellStale();
    }
    this.timer = setTimeout(() => this.ask(), isLive ? PERIOD_MS : HISTORY_PERIOD_MS);
  }

  /** The latest seconds again, and those that a broker still owes: it may answer again and know them. */
  firstToAsk() {
    const last = this.points.at(-1)[0];
    const owed = this.partial.at(-1);
    return owed?.[1] > last ? Math.max(Math.min(owed[0], last - OVERLAP_MS), last - OWED_MS) : last - OVERLAP_MS;
  }

  /** `since` is the first moment this answer speaks about; null for a whole history. What is older stays as it was. */
  take(answer, since) {
    const isLive = since !== null;
    this.lastAnswerMs = Date.now();
    this.answer = answer;
    const floor = isLive ? Math.max(0, answer.now_ms - SPAN_MS) : Infinity;
    this.points = [...this.points.filter(([at]) => at < since && at >= floor), ...answer.points];
    this.gaps = joined([...this.gaps.filter(([, to]) => to > floor).map(([from, to]) => [from, Math.min(to, since)]), ...answer.gaps]);
    const kept = this.partial.filter(([, to]) => to > floor).map(([from, to, ids]) => [from, Math.min(to, since), ids]);
    this.partial = joinedParts([...kept, ...answer.partial]);
    this.live.classList.remove("paused");
    this.live.textContent = isLive ? this.box.dataset.textLive : this.box.dataset.textHistory;
    this.draw();
    this.fillTable();
    if (isLive) this.fillGauges();
  }

  tellStale() {
    if (Date.now() - this.lastAnswerMs < STALE_AFTER_MS) return;
    this.live.classList.add("paused");
    this.live.textContent = this.lastAnswerMs
      ? this.box.dataset.textStale.replace("{n}", clock(new Date(this.lastAnswerMs)))
      : this.box.dataset.textFailed;
  }

  draw() {
    if (!this.answer) return;
    const isEmpty = !this.points.length && !this.gaps.length;
    this.note.hidden = !isEmpty;
    if (isEmpty) this.note.textContent = this.answer.note || this.box.dataset.textEmpty;
    const said = this.box.querySelector("[data-said]");
    said.hidden = isEmpty || !this.answer.note;
    said.textContent = this.answer.note ?? "";
    const partialKey = this.box.querySelector("[data-partial-key]");
    if (partialKey) partialKey.hidden = !this.partial.length;
    this.chart.draw({
      fromMs: this.answer.from_ms ?? this.answer.now_ms - SPAN_MS,
      toMs: this.answer.now_ms,
      stepMs: this.answer.step_ms,
      points: this.points,
      gaps: this.gaps,
      partial: this.partial,
      limit: this.answer.limit_bytes_per_s,
    });
    const last = this.points.at(-1);
    this.plot.setAttribute("aria-label", this.box.dataset.textSummary
      .replace("{produce}", last ? rateText(last[1], this.chart.unit) : "—")
      .replace("{consume}", last ? rateText(last[2], this.chart.unit) : "—")
      .replace("{limit}", this.answer.limit_bytes_per_s ? rateText(this.answer.limit_bytes_per_s, this.chart.unit) : "—"));
    if (this.markedMs) this.show(this.markedMs);
  }

  show(time) {
    if (!this.answer) return;
    const point = this.chart.mark(time);
    if (!point) return;
    this.markedMs = point[0];
    const moment = new Date(point[0]);
    this.tip.querySelector("time").textContent = `${clock(moment)} · ${clockUtc(moment)}`;
    this.tip.querySelector("[data-produce]").textContent = rateText(point[1], this.chart.unit);
    this.tip.querySelector("[data-consume]").textContent = rateText(point[2], this.chart.unit);
    const delay = this.tip.querySelector("[data-delay]");
    if (delay) delay.textContent = point[3] > 0 ? `${Math.round(point[3]).toLocaleString("en")} ms` : "0 ms";
    const without = this.without(point[0]);
    const partial = this.tip.querySelector("[data-partial]");
    if (partial) Object.assign(partial, { hidden: !without, textContent: without });
    this.tip.hidden = false;
    const x = this.chart.x(point[0]);
    const left = x + 14 + this.tip.offsetWidth > this.plot.clientWidth ? x - 14 - this.tip.offsetWidth : x + 14;
    this.tip.style.left = `${Math.max(0, left)}px`;
    this.tip.style.top = `${this.chart.plot.y + this.chart.plot.height * 0.55}px`;
  }

  /** Says whose part a second is without; empty where every broker told. */
  without(time) {
    const ids = this.partial.find(([from, to]) => from <= time && time < to)?.[2];
    return ids ? this.box.dataset.textPartial.replace("{ids}", ids.join(", ")) : "";
  }

  hide() {
    this.markedMs = null;
    this.tip.hidden = true;
    this.chart.unmark();
  }

  onKey(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -60, PageDown: 60 }[event.key];
    if (event.key === "Escape") this.hide();
    if (!step || !this.points.length) return;
    event.preventDefault();
    const at = this.markedMs ? this.points.findIndex((point) => point[0] === this.markedMs) : this.points.length;
    this.show(this.points[Math.max(0, Math.min(this.points.length - 1, at + step))][0]);
  }

  fillTable() {
    if (this.table.hidden) return;
    const body = this.table.querySelector("tbody");
    const columns = this.table.querySelectorAll("th").length;
    body.replaceChildren(...this.points.toReversed().map(([time, produce, consume, delay]) => {
      const row = document.createElement("tr");
      const cells = [clock(new Date(time)), ...[produce, consume].map((value) => Math.round(value).toLocaleString("en")), Math.round(delay ?? 0).toLocaleString("en"), this.without(time)];
      cells.slice(0, columns).forEach((value, at) => row.append(Object.assign(document.createElement("td"), { textContent: value, className: at ? "right" : "num" })));
      return row;
    }));
  }

  fillGauges() {
    const last = this.points.at(-1);
    for (const [name, column] of [["produce", 1], ["consume", 2]]) {
      const gauge = document.querySelector(`[data-gauge='${name}']`);
      if (!gauge) continue;
      const isFresh = last && this.answer.now_ms - last[0] < STALE_AFTER_MS + 2_000;
      const now = isFresh ? last[column] : 0;
      const peak = this.points.reduce((top, point) => Math.max(top, point[column]), 0);
      const limit = Number(gauge.dataset.limit);
      const share = Math.min(100, (100 * now) / limit);
      gauge.querySelector("[data-figure]").textContent = (now / 1e6).toFixed(1);
      const meter = gauge.querySelector(".meter");
      meter.classList.toggle("hot", share >= HOT_PERCENT && share < FULL_PERCENT);
      meter.classList.toggle("full", share >= FULL_PERCENT);
      meter.setAttribute("aria-valuenow", String(Math.round(share)));
      meter.querySelector(".now").setAttribute("width", `${share}%`);
      meter.querySelector(".peak")?.setAttribute("width", `${Math.min(100, (100 * peak) / limit)}%`);
      const foot = gauge.querySelector(".foot");
      foot.classList.toggle("crit", share >= FULL_PERCENT);
      foot.textContent = share >= FULL_PERCENT ? gauge.dataset.textFull : gauge.dataset.textPeak.replace("{n}", (peak / 1e6).toFixed(1));
    }
  }
}

export function startTraffic(root) {
  untaken(root, "[data-traffic]").forEach((box) => new Traffic(box));
}
