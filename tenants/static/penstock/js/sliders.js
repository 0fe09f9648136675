// Slider with number: one logarithmic value, two ways to set it. The number is what is sent and is never clamped.

import { untaken } from "./page.js";

const STEPS = 1_000;

const toPosition = (value, low, high) => Math.round((STEPS * Math.log(value / low)) / Math.log(high / low));
const toValue = (position, low, high) => low * (high / low) ** (position / STEPS);

function rounded(value) {
  const grain = value < 20 ? 1 : value < 100 ? 5 : 10 ** Math.floor(Math.log10(value) - 1);
  return Math.round(value / grain) * grain;
}

class Slider {
  constructor(box) {
    this.box = box;
    this.range = box.querySelector("input[type='range']");
    this.number = document.getElementById(box.dataset.slider);
    this.ticks = box.querySelector(".ticks");
    this.range.max = STEPS;
    this.setBounds(Number(box.dataset.low), Number(box.dataset.high));
    this.range.addEventListener("input", () => this.write(rounded(toValue(Number(this.range.value), this.low, this.high))));
    this.range.addEventListener("keydown", (event) => this.onKey(event));
    this.number.addEventListener("input", () => this.follow());
  }

  setBounds(low, high) {
    this.low = Math.max(low, 0.001);
    this.high = Math.max(high, this.low * 1.001);
    const middle = rounded(Math.sqrt(this.low * this.high));
    this.ticks?.replaceChildren(
      ...[low, middle, high].map((value, at) => {
        const tick = Object.assign(document.createElement("li"), { textContent: value.toLocaleString("en") + (at === 2 ? ` ${this.box.dataset.unit}` : "") });
        if (at === 1) tick.style.left = `${toPosition(middle, this.low, this.high) / (STEPS / 100)}%`;
        return tick;
      }),
    );
    this.follow();
  }

  write(value) {
    this.number.value = String(Math.min(this.high, Math.max(this.low, value)));
    this.number.dispatchEvent(new Event("input", { bubbles: true }));
    this.number.dispatchEvent(new Event("change", { bubbles: true }));
  }

  follow() {
    const value = Number(this.number.value);
    if (!(value > 0)) return;
    const position = Math.max(0, Math.min(STEPS, toPosition(value, this.low, this.high)));
    this.range.value = String(position);
    this.range.setAttribute("aria-valuetext", `${value} ${this.box.dataset.unit}`);
    this.range.style.setProperty("--share", `${(100 * position) / STEPS}%`);
  }

  onKey(event) {
    const now = Number(this.number.value);
    const next = {
      PageUp: now * 10, PageDown: now / 10,
      ArrowRight: this.planStep(now, 1), ArrowUp: this.planStep(now, 1),
      ArrowLeft: this.planStep(now, -1), ArrowDown: this.planStep(now, -1),
      Home: this.low, End: this.high,
    }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    this.write(rounded(next));
  }

  planStep(now, direction) {
    const stops = [this.low, ...(this.box.dataset.stops ?? "").split(" ").filter(Boolean).map(Number), this.high]
      .filter((stop) => stop >= this.low && stop <= this.high)
      .sort((a, b) => a - b);
    return direction > 0 ? (stops.find((stop) => stop > now) ?? this.high) : (stops.reverse().find((stop) => stop < now) ?? this.low);
  }
}

export function startSliders(root) {
  const boxes = untaken(root, "[data-slider]");
  for (const form of new Set(boxes.map((box) => box.closest("form")))) {
    startForm(form, boxes.filter((box) => form.contains(box)).map((box) => [box.dataset.slider, new Slider(box)]));
  }
}

function startForm(form, sliders) {
  for (const plan of form.querySelectorAll("input[type='radio'][data-bounds]")) {
    plan.addEventListener("change", () => {
      for (const [name, slider] of sliders) {
        const [low, high] = JSON.parse(plan.dataset.bounds)[name];
        slider.setBounds(low, high);
        const value = Number(slider.number.value);
        if (!(value >= low && value <= high)) slider.write(low);
      }
    });
  }
}
