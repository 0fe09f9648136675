// Corrections to the markup of Swagger UI: names of controls, regions that scroll by keyboard, and the theme.

const SCROLLING = "pre, .table-container, .responses-inner, .model-box, .modal-ux-content";
const ui = document.getElementById("swagger-ui");

// React keeps what it renders; an attribute that it does not know of stays.
function label(element, text) {
  if (text && element.getAttribute("aria-label") !== text) element.setAttribute("aria-label", text);
}

function isNamed(field) {
  return field.hasAttribute("aria-label") || field.hasAttribute("aria-labelledby") || field.labels?.length > 0;
}

function operationOf(element) {
  return element.closest(".opblock")?.querySelector(".opblock-summary-path")?.textContent.trim() ?? "";
}

function correct() {
  ui.querySelectorAll(SCROLLING).forEach((box) => {
    if (box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight) box.tabIndex = 0;
  });
  ui.querySelectorAll(".opblock-tag").forEach((head) => {
    const button = head.querySelector("button.expand-operation");
    if (button) label(button, `${head.dataset.tag}, operations`);
  });
  // A link inside the button that opens the operation: the button writes the same address.
  ui.querySelectorAll(".opblock-summary-control a[href]").forEach((link) => link.removeAttribute("href"));
  const servers = document.getElementById("servers");
  if (servers) label(servers, "Server");
  ui.querySelectorAll("button.close-modal").forEach((button) => label(button, "Close"));
  ui.querySelectorAll("input:not([type=hidden]), select, textarea").forEach((field) => {
    if (isNamed(field)) return;
    const parameter = field.closest("tr[data-param-name]")?.dataset.paramName;
    label(field, parameter ?? (field.placeholder || `Value for ${operationOf(field)}`));
  });
  ui.querySelectorAll("button").forEach((button) => {
    if (!button.textContent.trim() && !button.title && !isNamed(button)) label(button, `Open ${operationOf(button)}`.trim());
  });
}

let isAsked = false;
function soon() {
  if (isAsked) return;
  isAsked = true;
  requestAnimationFrame(() => {
    isAsked = false;
    correct();
  });
}

new MutationObserver(soon).observe(ui, { childList: true, subtree: true });
addEventListener("resize", soon);
soon();
