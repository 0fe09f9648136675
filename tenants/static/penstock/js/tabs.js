// Snippet tabs: arrow keys move, the choice is remembered for the next instance too.

const CHOICE_KEY = "penstock.snippet";

function choose(list, tab) {
  for (const other of list.querySelectorAll("[role='tab']")) {
    const chosen = other === tab;
    other.setAttribute("aria-selected", String(chosen));
    other.tabIndex = chosen ? 0 : -1;
    document.getElementById(other.getAttribute("aria-controls")).hidden = !chosen;
  }
}

function startList(list) {
  const tabs = [...list.querySelectorAll("[role='tab']")];
  const remembered = tabs.find((tab) => tab.dataset.choice === localStorage.getItem(CHOICE_KEY));
  choose(list, remembered ?? tabs[0]);
  list.addEventListener("click", (event) => {
    const tab = event.target.closest("[role='tab']");
    if (!tab) return;
    choose(list, tab);
    localStorage.setItem(CHOICE_KEY, tab.dataset.choice);
  });
  list.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = tabs[(tabs.indexOf(document.activeElement) + step + tabs.length) % tabs.length];
    next.focus();
    next.click();
  });
}

export function startTabs() {
  document.querySelectorAll("[role='tablist']").forEach(startList);
}
