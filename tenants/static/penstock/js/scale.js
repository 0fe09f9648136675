// Numbers and times for charts. 1 MB = 10^6 bytes.

const MEGABYTE = 1e6;
const KILOBYTE = 1e3;
const GRID_LINES_MAX = 4;
const zone = () => document.body.dataset.timeZone || undefined;
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
  const { month, day, hour, minute, second } = partsIn(new Date(toMs), zone());
  const asUtc = Date.UTC(new Date(toMs).getUTCFullYear(), month - 1, day, hour, minute, second);
  const offset = Math.round((toMs - asUtc) / 60e3) * 60e3;
  const ticks = [];
  for (let at = Math.ceil((fromMs - offset) / step) * step + offset; at < toMs; at += step) ticks.push(at);
  return ticks;
}

function partsIn(date, timeZone) {
  const options = { timeZone, hourCycle: "h23", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit" };
  return Object.fromEntries(new Intl.DateTimeFormat("en", options).formatToParts(date).map((part) => [part.type, part.value]));
}

/** Clock time in the member's time zone, as everywhere else on the page. */
export function clock(date, withSeconds = true) {
  const { hour, minute, second } = partsIn(date, zone());
  return withSeconds ? `${hour}:${minute}:${second}` : `${hour}:${minute}`;
}

export function clockUtc(date) {
  const { hour, minute, second } = partsIn(date, "UTC");
  return `${hour}:${minute}:${second} UTC`;
}

export function dayText(date) {
  const { month, day } = partsIn(date, zone());
  return `${month}-${day}`;
}
