"""Consumer groups in a browser: lags, a reset with its preview, undo, and transactions."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from instances import interfaces as instance_interfaces
from instances.groups import lag_history
from instances.models import Instance
from tests.component.console.conftest import *  # noqa: F403  people, instance and brokers that answer from memory
from tests.component.console.conftest import PASSWORD
from tests.product.browser.accessibility import objections
from tests.product.browser.conftest import OpenPage, press
from tests.product.browser.test_pictures import assert_nothing_scrolls_sideways, log_in
from tests.testkit.depth import THEMES, day_share
from tests.testkit.fake_groups import FakeGroups, FakeTransactions, member

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

TOPIC = "orders.created"
LONG = "n" * 240  # a name without a place to break it


@pytest.fixture
def crowded(instance: Instance, groups: FakeGroups, transactions: FakeTransactions) -> Instance:
    """Groups in every state, one with a growing lag and a trend; transactions of all ages."""
    now_ms = time.time_ns() // 1_000_000
    groups.logs |= {("clicks.raw", index): (0, 250_000 + 7 * index) for index in range(12)}
    workers = [
        member(f"etl-{n}", *(("clicks.raw", index) for index in range(n * 4, n * 4 + 4)), instance_id=f"etl-{n}")
        for n in range(3)
    ]
    groups.add(instance.pk, "etl", {("clicks.raw", n): 240_000 - 900 * n for n in range(12)}, *workers)
    groups.add(instance.pk, "fraud-scores", {(TOPIC, 1): 990}, workers[0], state="PreparingRebalance")
    groups.add(instance.pk, "mirror-of-a-rather-long-name.to-the-warehouse.eu-central-1", {(TOPIC, 0): 1_000})
    groups.unresponsive_groups.add("fraud-scores")
    lag = sum(250_000 + 7 * n - (240_000 - 900 * n) for n in range(12))
    for age_s in range(880, 0, -10):
        lag_history.record_lags(instance.pk, {"etl": lag - 40 * age_s}, now_ms - age_s * 1_000)
        ends = {("clicks.raw", n): 250_000 + 7 * n - 16 * age_s for n in range(12)}
        lag_history.record_log_ends(instance.pk, "etl", ends, now_ms - age_s * 1_000)
    transactions.add(instance.pk, "settlement-7", ("clicks.raw", 3), (TOPIC, 2), started_ms=now_ms - 3_600_000)
    transactions.add(instance.pk, "loader", state="CompleteCommit", started_ms=-1)
    groups.add(instance.pk, LONG, {(TOPIC, 0): 400})
    transactions.add(instance.pk, LONG, (TOPIC, 0), started_ms=now_ms - 4_000)
    instance_interfaces.data_plane.implementation.create_topic(
        instance.pk, LONG, partitions=1, replication_factor=1, config={}, validate_only=False
    )
    return instance


@pytest.mark.parametrize("theme", THEMES)
def test_lag_comes_live_and_names_the_worst_partition(
    theme: str, live_server: LiveServer, crowded: Instance, open_page: OpenPage, picture: Callable[[Page, str], Path]
) -> None:
    page = open_page(theme=theme)
    log_in(page, live_server)
    page.goto(f"{live_server.url}/instances/{crowded.pk}/")
    press(page, "g")
    page.keyboard.press("g")
    page.wait_for_url(re.compile("/groups/$"))
    etl = page.locator("tr", has_text="etl").first
    expect(etl).to_contain_text("179,862")
    expect(etl.locator(".bar-cell.warn")).to_be_visible()
    expect(etl.locator("svg.spark")).to_be_visible()
    expect(page.locator("tr", has_text="billing")).to_contain_text(f"{TOPIC}/2")
    expect(page.locator("tr", has_text="fraud-scores")).to_contain_text("not known")
    picture(page, f"groups-{theme}-1280")
    assert objections(page) == []
    page.get_by_label("Filter groups").fill("rep")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.wait_for_url(re.compile(r"\?q=rep"))
    with page.expect_response(lambda answer: "q=rep" in answer.url, timeout=60_000):
        pass  # the live part asks for what the filter shows
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_label("Filter groups").fill("")
    page.get_by_role("link", name="etl", exact=True).click()
    expect(page.locator(".gauges")).to_contain_text("179,862")
    expect(page.locator(".gauges")).to_contain_text("growing for a minute")
    picture(page, f"group-{theme}-1280")
    assert objections(page) == []
    assert_nothing_scrolls_sideways(page)


def test_a_reset_shows_its_table_first_and_can_be_taken_back(
    live_server: LiveServer, crowded: Instance, groups: FakeGroups, open_page: OpenPage,
    picture: Callable[[Page, str], Path],
) -> None:  # fmt: skip
    groups.add(crowded.pk, "nightly", {("clicks.raw", n): 100 + n for n in range(12)})
    before = groups.committed(crowded.pk, "nightly")
    page = open_page()
    log_in(page, live_server)
    page.goto(f"{live_server.url}/instances/{crowded.pk}/groups/one/?group=nightly")
    page.keyboard.press("e")
    page.wait_for_url(re.compile("/groups/reset/"))
    expect(page.get_by_label("Messages", exact=True)).to_be_hidden()
    page.get_by_label("Forward or back by a number of messages").check()
    page.get_by_label("Messages", exact=True).fill("-105")
    picture(page, "group-reset-form-light-1280")
    page.get_by_role("button", name="Show what changes").click()
    expect(page.locator("#table tbody tr")).to_have_count(12)
    expect(page.locator("#table")).to_contain_text("first offset kept")
    assert groups.committed(crowded.pk, "nightly") == before
    assert objections(page) == []
    for width in (1280, 360):
        page.set_viewport_size({"width": width, "height": 800})
        picture(page, f"group-reset-table-light-{width}")
        assert_nothing_scrolls_sideways(page)
    page.set_viewport_size({"width": 1280, "height": 800})
    page.get_by_role("button", name="Reset 12 offsets").click()
    expect(page.locator(".undo")).to_contain_text("The offsets of 12 partitions are reset.")
    picture(page, "group-undo-light-1280")
    assert groups.committed(crowded.pk, "nightly")["clicks.raw", 7] == 2
    press(page, "z")
    expect(page.locator(".toast")).to_contain_text("The earlier offsets are back.")
    assert groups.committed(crowded.pk, "nightly") == before


def test_a_session_that_ends_meanwhile_leads_to_the_login_and_back(
    live_server: LiveServer, crowded: Instance, open_page: OpenPage
) -> None:
    page = open_page()
    log_in(page, live_server)
    page.goto(f"{live_server.url}/instances/{crowded.pk}/groups/one/?group=etl")
    expect(page.locator("svg.spark").first).to_be_visible()
    page.context.clear_cookies()
    page.wait_for_url(re.compile("/accounts/login/"))
    page.fill("input[name=login]", "ida@halvorsen.example")
    page.fill("input[name=password]", PASSWORD)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url(re.compile("/groups/one/\\?group=etl$"))


# Of which each day has one.
PAGES_PARTS = 4
PAGES = {
    "groups": "groups/",
    "group": "groups/one/?group=etl",
    "group-by-name": "groups/one/?group=etl&sort=name",
    "group-silent": "groups/one/?group=fraud-scores",
    "group-reset": "groups/reset/?group=etl",
    "group-delete": "groups/delete/?group=reports",
    "group-long": f"groups/one/?group={LONG}",
    "group-long-reset": f"groups/reset/?group={LONG}",
    "group-long-delete": f"groups/delete/?group={LONG}",
    "topic-long": f"topics/t/{LONG}/",
    "topic-long-delete": f"topics/t/{LONG}/delete/",
    "transaction-long": f"transactions/one/?id={LONG}",
    "transactions": "transactions/?state=all",
    "transaction": "transactions/one/?id=settlement-7",
}


def test_the_pages_of_groups_in_chinese_in_the_dark_wide_and_narrow(
    live_server: LiveServer, crowded: Instance, open_page: OpenPage, picture: Callable[[Page, str], Path]
) -> None:
    page = open_page(theme="dark")
    log_in(page, live_server)
    page.get_by_role("button", name="中文").click()
    expect(page.locator("html")).to_have_attribute("lang", "zh-Hans")
    for name, path in day_share(tuple(PAGES.items()), PAGES_PARTS):
        page.set_viewport_size({"width": 1280, "height": 800})
        page.goto(f"{live_server.url}/instances/{crowded.pk}/{path}")
        page.wait_for_selector("svg.spark" if name == "groups" else "main h1")
        assert objections(page) == [], name
        for width in (1280, 360):
            page.set_viewport_size({"width": width, "height": 800})
            picture(page, f"{name}-zh-dark-{width}")
            assert_nothing_scrolls_sideways(page)
