"""Chromium driven by Playwright: one browser per session, a fresh profile per page, and a folder for screenshots."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from config.environment import BASE_DIR

PICTURES = BASE_DIR / "test-results" / "pictures"
WIDE = {"width": 1280, "height": 800}
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--disable-sync",
)  # fmt: skip

# Deadlines, not waits: a machine that runs two other products meanwhile draws a page in seconds.
SEEN_WITHIN_MS = 30_000
MARK_WHEN_LOADED = 'addEventListener("load", () => document.documentElement.setAttribute("data-loaded", ""));'

OpenPage = Callable[..., Page]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """The system's Chromium; without one these tests are skipped. One per module: while Playwright runs, its event loop
    blocks asynchronous tests of other modules.
    """
    executable = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if executable is None:
        pytest.skip("there is no Chromium on this machine")
    expect.set_options(timeout=SEEN_WITHIN_MS)
    # Playwright runs an event loop in this thread; this tells Django that our synchronous calls are safe.
    with pytest.MonkeyPatch.context() as patch, sync_playwright() as playwright:
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
        browser = playwright.chromium.launch(executable_path=executable, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium: Browser) -> Iterator[OpenPage]:
    """Opens a page in a fresh profile; a script error or an external request fails the test."""
    complaints: list[str] = []
    contexts = []

    def open_one(*, theme: str = "light", width: int = 1280, height: int = 800, locale: str = "en-GB") -> Page:
        context = chromium.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if theme == "dark" else "light",
            locale=locale,
            timezone_id="Europe/Berlin",
            reduced_motion="reduce",
        )
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        contexts.append(context)
        context.add_init_script(MARK_WHEN_LOADED)
        page = context.new_page()
        act_on_loaded_pages(page)
        page.on("pageerror", lambda error: complaints.append(f"{page.url}: {error}"))
        page.on("console", lambda line: complaints.append(line.text) if "Content Security" in line.text else None)
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert not complaints


def act_on_loaded_pages(page: Page) -> None:
    """Makes clicks, input and expectations wait for the load of a page: its scripts may run after it is visible."""
    page.add_locator_handler(page.locator("html:not([data-loaded])"), lambda: page.wait_for_load_state("load"))


def press(page: Page, key: str) -> None:
    """Presses a key once the page listens for it."""
    page.wait_for_load_state("load")
    page.keyboard.press(key)


@pytest.fixture
def picture() -> Callable[[Page, str], Path]:
    """Saves a screenshot of the whole page under `test-results/pictures/`."""

    def take(page: Page, name: str) -> Path:
        PICTURES.mkdir(parents=True, exist_ok=True)
        file = PICTURES / f"{name}.png"
        page.screenshot(path=str(file), full_page=True)
        return file

    return take
