"""The first five minutes by one button: messages, a limit at work, a confirmation, help; with a stopwatch."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from billing.call_limits import COSTS_PER_MINUTE_MAX
from tests.product.browser.accessibility import objections
from tests.product.browser.conftest import OpenPage
from tests.product.browser.test_journey import buy_instance, sign_up
from tests.testkit.stack import Stack
from tests.testkit.waiting import eventually

pytestmark = [pytest.mark.browser, pytest.mark.system]

# The aims, in seconds since the button, are 10, 20 and 60; these bounds are for machines with other work to do.
AIMS_S = {"a message's text": 10, "the rule that throttles": 20, "money": 60}
MESSAGE_WITHIN_MS = 60_000
RULE_WITHIN_MS = 60_000
MONEY_WITHIN_S = 180
NO_MONEY = ("—", "€ 0.00")


def test_one_button_leads_to_messages_and_to_a_limit_at_work(
    stack: Stack,
    open_page: OpenPage,
    picture: Callable[[Page, str], Path],
    record_property: Callable[[str, object], None],
) -> None:
    page = open_page()
    sign_up(page, stack.ready["console_url"], name="nora")
    buy_instance(page, "first")
    picture(page, "first-1-next-step")
    began_s = time.monotonic()
    stopwatch: dict[str, float] = {}

    def note(what: str) -> None:
        stopwatch[what] = round(time.monotonic() - began_s, 1)
        record_property(f"{what} after s", stopwatch[what])

    page.get_by_role("button", name="Create topic, user and sample data").click()
    expect(page.get_by_role("heading", name="First message")).to_be_visible()
    picture(page, "first-2-made")
    page.get_by_role("link", name="See the messages").click()
    expect(page.locator("main")).to_contain_text('"order"', timeout=MESSAGE_WITHIN_MS)
    note("a message's text")
    picture(page, "first-3-messages")

    page.get_by_role("navigation", name="Sections").get_by_role("link", name="Throttle").click()
    page.get_by_role("button", name="Push the limit").click()
    expect(page.locator(".rule").first).to_contain_text("penstock-demo", timeout=RULE_WITHIN_MS)
    note("the rule that throttles")
    picture(page, "first-4-limit")

    usage = f"{stack.ready['console_url']}/usage/?by=topic"
    page.goto(usage)
    eventually(lambda: shows_money(page), within_s=MONEY_WITHIN_S, what="what the month costs so far")
    note("money")
    picture(page, "first-5-money")
    for what, seconds in stopwatch.items():
        print(f"stopwatch: {what} after {seconds} s, aim {AIMS_S[what]} s")

    page.get_by_role("link", name="Help").first.click()
    page.get_by_role("searchbox").fill("limit a client")
    page.get_by_role("button", name="Search", exact=True).click()
    page.get_by_role("link", name="Give a client a limit").first.click()
    expect(page.locator(".document pre").first).to_be_visible()
    picture(page, "first-6-help")


def shows_money(page: Page) -> bool:
    """Returns True if the page says what the month costs so far; else it is loaded again, as often as it may be. Sample
    data is not billed (decision 138): what costs is the instance.
    """
    if page.locator(".gauges dd.figure").nth(2).inner_text() not in NO_MONEY:
        return True
    page.wait_for_timeout(60_000 / COSTS_PER_MINUTE_MAX)
    page.reload()
    return False


@pytest.mark.parametrize(("language", "theme", "width"), [("zh-hans", "dark", 390), ("en", "light", 1280)])
def test_help_and_questions_are_accessible(
    stack: Stack, open_page: OpenPage, picture: Callable[[Page, str], Path], language: str, theme: str, width: int
) -> None:
    page = open_page(theme=theme)
    sign_up(page, stack.ready["console_url"], name="omar")
    if language != "en":
        page.locator("form[data-language].prefs button[lang=zh-Hans]").click()
        expect(page.locator("html")).to_have_attribute("lang", "zh-Hans")
    page.set_viewport_size({"width": width, "height": 844})
    page.goto(f"{stack.ready['console_url']}/docs/how-to/limit-a-client/")
    assert not objections(page)
    picture(page, f"help-{language}-{theme}-{width}")
    page.goto(f"{stack.ready['console_url']}/members/")
    page.locator("form[action$='/remove/'] button").click()
    expect(page.locator(".confirm button.filled")).to_be_visible()
    assert not objections(page)
    picture(page, f"question-{language}-{theme}-{width}")
    page.locator(".confirm a.button").click()
    expect(page).to_have_url(f"{stack.ready['console_url'].rstrip('/')}/members/")
