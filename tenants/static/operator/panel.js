// Loaded behind htmx and before Alpine begins: neither may write inline styles, which the page's policy does not allow.
htmx.config.includeIndicatorStyles = false; // panel.css has them

// A style bound as text becomes a style attribute; bound as an object it is set property by property.
document.addEventListener("alpine:init", () => {
  for (const bar of document.querySelectorAll("#changelist-actions")) {
    bar.setAttribute("x-bind:style", "{width: changeListWidth + 'px'}");
  }
});
