"""Violations that axe-core reports on a page (design/console: keyboard, reading, contrast)."""

from __future__ import annotations

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]}


def objections(page: Page, within: str = "html") -> list[str]:
    """Returns one line per kind of violation: the rule, its severity, the count, and the first place. `within` leaves
    out the frame of a page that is not ours (the operator panel's).
    """
    return [
        f"{item['id']} ({item['impact']}): {item['help']}; {len(item['nodes'])}, first {item['nodes'][0]['html'][:150]}"
        for item in Axe().run(page, context=within, options=RULES).response["violations"]
    ]
