// Draws one time chart as SVG at its real width: grid, areas, lines, limit with gate mark, gaps, delayed strip, crosshair.

import { clock, dayText, niceTop, ratesUnit, tickText, timeTicks } from "./scale.js";

const SVG = "http://www.w3.org/2000/svg";
const MARGIN = { left: 38, right: 10, top: 26, bottom: 24 };
const HEIGHT = 340;
const HEIGHT_NARROW = 220;
const NARROW_WIDTH = 480;
const PARTIAL_HEIGHT = 6;
const DAY_LABELS_FROM_MS = 2 * 86_400_000;
const MINUTE_LABELS_FROM_MS = 180_000;

function make(name, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

function definitions() {
  const fade = (id) =>
    make("linearGradient", { id: `fade-${id}`, x1: 0, y1: 0, x2: 0, y2: 1 },
      make("stop", { offset: 0, class: `stop-${id}`, "stop-opacity": 0.2 }),
      make("stop", { offset: 1, class: `stop-${id}`, "stop-opacity": 0.01 }));
  const hatch = make("pattern", { id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
    make("path", { d: "M0 0V6", class: "hatch-line" }));
  return make("defs", {}, fade("produce"), fade("consume"), hatch);
}

/** Points split where data is missing: a gap is never joined. */
export function runs(points, stepMs) {
  const found = [];
  for (const point of points) {
    const last = found.at(-1)?.at(-1);
    if (!last || point[0] - last[0] > 1.5 * stepMs) found.push([]);
    found.at(-1).push(point);
  }
  return found;
}

export class Chart {
  /** `texts`: limit ("limit {n}"), gap ("no data {n} s"). The y axis only ever grows within one view. */
  constructor(box, texts) {
    this.box = box;
    this.texts = texts;
    this.topSeen = 0;
    this.svg = make("svg", { class: "chart", "aria-hidden": "true" });
    box.prepend(this.svg);
  }

  forget() {
    this.topSeen = 0;
  }

  /**
   * data: {fromMs, toMs, stepMs, points: [[t, produce, consume, delayedMs]], gaps: [[from, to]],
   *        partial: [[from, to, [broker id]]], limit (bytes/s) | null}
   */
  draw(data) {
    this.data = data;
    const width = Math.max(280, this.box.clientWidth);
    const height = width < NARROW_WIDTH ? HEIGHT_NARROW : HEIGHT;
    const peak = data.points.reduce((top, [, produce, consume]) => Math.max(top, produce, consume), 0);
    this.topSeen = Math.max(this.topSeen, peak);
    const wanted = Math.max(this.topSeen * 1.15, data.limit && this.topSeen > data.limit / 20 ? data.limit * 1.2 : 0, 1000);
    this.unit = ratesUnit(wanted);
    const { top, step } = niceTop(wanted, this.unit);
    this.top = top;
    this.plot = { x: MARGIN.left, y: MARGIN.top, width: width - MARGIN.left - MARGIN.right, height: height - MARGIN.top - MARGIN.bottom };
    this.svg.setAttribute("width", width);
    this.svg.setAttribute("height", height);
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.svg.replaceChildren(
      definitions(), ...this.grid(step), ...this.gaps(), ...this.partial(), ...this.series("consume", 2), ...this.series("produce", 1),
      ...this.limit(), ...this.held(), ...this.dots(), (this.cross = make("g")));
  }

  x = (time) => this.plot.x + (this.plot.width * (time - this.data.fromMs)) / (this.data.toMs - this.data.fromMs);
  y = (value) => this.plot.y + this.plot.height * (1 - value / this.top);

  grid(step) {
    const parts = [make("text", { x: 0, y: 8 }, this.unit.name)];
    for (let value = 0; value <= this.top * 1.001; value += step) {
      const y = this.y(value);
      parts.push(make("path", { class: value ? "grid" : "grid zero", d: `M${this.plot.x} ${y}H${this.plot.x + this.plot.width}` }));
      parts.push(make("text", { x: this.plot.x - 8, y: y + 4, "text-anchor": "end" }, tickText(value, this.unit)));
    }
    const isLong = this.data.toMs - this.data.fromMs > DAY_LABELS_FROM_MS;
    const label = (time) => (isLong ? dayText(new Date(time)) : clock(new Date(time), false));
    const end = this.plot.x + this.plot.width;
    const baseline = this.plot.y + this.plot.height + 17;
    for (const time of timeTicks(this.data.fromMs, this.data.toMs, this.plot.width < 400 ? 3 : 5)) {
      const x = this.x(time);
      if (x > end - 70 || x < this.plot.x + 14) continue;
      parts.push(make("text", { x, y: baseline, "text-anchor": "middle" }, label(time)));
    }
    const last = isLong ? dayText(new Date(this.data.toMs)) : clock(new Date(this.data.toMs), this.data.stepMs < MINUTE_LABELS_FROM_MS / 3);
    parts.push(make("text", { x: end, y: baseline, "text-anchor": "end" }, last));
    return parts;
  }

  gaps() {
    return this.data.gaps.flatMap(([from, to]) => {
      const left = this.x(Math.max(from, this.data.fromMs));
      const width = this.x(Math.min(to, this.data.toMs)) - left;
      if (width <= 0) return [];
      const parts = [make("rect", { class: "gap", x: left, y: this.plot.y, width, height: this.plot.height })];
      const label = this.texts.gap.replace("{n}", Math.round((to - from) / 1000).toLocaleString("en"));
      const middle = Math.min(Math.max(left + width / 2, this.plot.x + 60), this.plot.x + this.plot.width - 50);
      parts.push(make("text", { x: middle, y: this.plot.y - 8, "text-anchor": "middle" }, label));
      return parts;
    });
  }

  /** Seconds that some brokers did not tell of: the others' sum stays drawn, and a strip above says so. */
  partial() {
    return this.data.partial.flatMap(([from, to]) => {
      const left = this.x(Math.max(from, this.data.fromMs));
      const width = this.x(Math.min(to, this.data.toMs)) - left;
      return width > 0 ? [make("rect", { class: "partial", x: left, y: this.plot.y, width, height: PARTIAL_HEIGHT })] : [];
    });
  }

  series(name, column) {
    const zero = this.plot.y + this.plot.height;
    return runs(this.data.points, this.data.stepMs).flatMap((run) => {
      const path = run.map((point) => `${this.x(point[0]).toFixed(1)} ${this.y(point[column]).toFixed(1)}`).join("L");
      const [from, to] = [this.x(run[0][0]), this.x(run.at(-1)[0])];
      return [
        make("path", { class: `area ${name}`, d: `M${from} ${zero}L${path}L${to} ${zero}z` }),
        make("path", { class: `line ${name}`, d: `M${path}` }),
      ];
    });
  }

  limit() {
    const { limit } = this.data;
    if (!limit || limit > this.top) return [];
    const [x, y] = [this.plot.x, this.y(limit)];
    const label = this.texts.limit.replace("{n}", `${tickText(limit, this.unit)} ${this.unit.name}`);
    return [
      make("path", { class: "gate", d: `M${x} ${y}H${x + this.plot.width}` }),
      make("path", { class: "gate-cap", d: `M${x - 1} ${y - 7}h3v14h-3zM${x - 4} ${y - 8}h9v2.5h-9z` }),
      make("text", { class: "gate-label", x: x + 12, y: y - 7 }, label),
    ];
  }

  held() {
    const zero = this.plot.y + this.plot.height;
    const delayed = this.data.points.filter(([, , , delay]) => delay > 0);
    return runs(delayed, this.data.stepMs).map((run) => {
      const left = this.x(run[0][0] - this.data.stepMs);
      return make("rect", { class: "held", x: Math.max(left, this.plot.x), y: zero, height: 3, width: Math.max(2, this.x(run.at(-1)[0]) - left) });
    });
  }

  dots() {
    const last = this.data.points.at(-1);
    if (!last || this.data.toMs - last[0] > 3 * this.data.stepMs) return [];
    return [["consume", 2], ["produce", 1]].map(([name, column]) =>
      make("circle", { class: `dot ${name}`, cx: this.x(last[0]), cy: this.y(last[column]), r: 4 }));
  }

  /** Marks the point nearest to a time; answers it, or null where there is none near. */
  mark(time) {
    const point = this.data.points.reduce((best, candidate) => (!best || Math.abs(candidate[0] - time) < Math.abs(best[0] - time) ? candidate : best), null);
    this.cross.replaceChildren();
    if (!point) return null;
    const x = this.x(point[0]);
    this.cross.append(
      make("path", { class: "cross", d: `M${x} ${this.plot.y}V${this.plot.y + this.plot.height}` }),
      make("circle", { class: "dot produce", cx: x, cy: this.y(point[1]), r: 4 }),
      make("circle", { class: "dot consume", cx: x, cy: this.y(point[2]), r: 4 }));
    return point;
  }

  unmark() {
    this.cross?.replaceChildren();
  }

  timeAt(pixel) {
    return this.data.fromMs + ((pixel - this.plot.x) / this.plot.width) * (this.data.toMs - this.data.fromMs);
  }
}
