// Numbers for charts: pure functions, no page. 1 MB = 10^6 bytes.

const MEGABYTE = 1e6;
const KILOBYTE = 1e3;
const GRID_LINES_MAX = 4;
const KILO_BELOW = 100_000;

export const ratesUnit = (top) => (top < KILO_BELOW ? { name: "kB/s", size: KILOBYTE } : { name: "MB/s", size: MEGABYTE });

/** The smallest "round" top ≥ value with at most four steps: {top, step}, in bytes/s. */
export function niceTop(value, unit) {
  const amount = Math.max(value / unit.size, 1e-6);
  const decade = 10 ** Math.floor(Math.log10(amount / GRID_LINES_MAX));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * decade).find((candidate) => candidate * GRID_LINES_MAX >= amount);
  return { top: Math.ceil(amount / step) * step * unit.size, step: step * unit.size };
}

export const rateText = (value, unit) => `${(value / unit.size).toFixed(1)} ${unit.name}`;

export const tickText = (value, unit) => String(Number((value / unit.size).toPrecision(6)));

/** Times for at most five labels over [from, to], each on a round minute, hour or day of the local clock. */
export function timeTicks(fromMs, toMs, labelsMax = 5) {
  const spans = [60e3, 120e3, 180e3, 300e3, 600e3, 1800e3, 3600e3, 6 * 3600e3, 12 * 3600e3, 86400e3, 5 * 86400e3, 10 * 86400e3];
  const step = spans.find((span) => (toMs - fromMs) / span <= labelsMax) ?? spans.at(-1);
  const offset = new Date(toMs).getTimezoneOffset() * 60e3;
  const ticks = [];
  for (let at = Math.ceil((fromMs - offset) / step) * step + offset; at < toMs; at += step) ticks.push(at);
  return ticks;
}

export const two = (value) => String(value).padStart(2, "0");
export const clock = (date, withSeconds = true) =>
  `${two(date.getHours())}:${two(date.getMinutes())}${withSeconds ? `:${two(date.getSeconds())}` : ""}`;
export const clockUtc = (date) => `${two(date.getUTCHours())}:${two(date.getUTCMinutes())}:${two(date.getUTCSeconds())} UTC`;
export const dayText = (date) => `${two(date.getDate())}.${two(date.getMonth() + 1)}`;
