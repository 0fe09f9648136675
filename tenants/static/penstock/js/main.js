// Starts every part of a page. Parts find their own elements by data attributes; a page without them costs nothing.

import { startCopy } from "./copy.js";
import { startForms } from "./forms.js";
import { startKeys } from "./keys.js";
import { startNotices } from "./notices.js";
import { focusScrolling, spread } from "./page.js";
import { startPalette } from "./palette.js";
import { startPreferences } from "./preferences.js";
import { startTabs } from "./tabs.js";

startPreferences();
startForms();
startCopy();
startTabs();
startNotices();
startPalette();
startKeys();

const pageParts = [
  ["[data-traffic]", () => import("./traffic.js"), "startTraffic"],
  ["[data-operation]", () => import("./steps.js"), "startSteps"],
  ["[data-live]", () => import("./live.js"), "startLive"],
  ["[data-live-tail]", () => import("./tail.js"), "startTail"],
  ["[data-scan]", () => import("./scan.js"), "startScan"],
  ["[data-passkey]", () => import("./passkeys.js"), "startPasskeys"],
  ["[data-slider]", () => import("./sliders.js"), "startSliders"],
];

function startParts(root) {
  for (const [selector, load, start] of pageParts) {
    if (root.querySelector(selector) || (root instanceof Element && root.matches(selector))) load().then((part) => part[start](root));
  }
}

startParts(document);
focusScrolling(document);
addEventListener("resize", () => focusScrolling(document));
// What htmx inserts later may hold parts too: the first page after sign-up fetches its form so.
document.addEventListener("htmx:load", (event) => startParts(event.target));
// Rows that a filter brings say what the rest of the page shows: counts beside the filter, sums.
document.addEventListener("htmx:afterSwap", (event) => {
  spread(event.detail.target);
  focusScrolling(document);
});
