"""Screenshots of the pages in both themes and languages: accessible, and without horizontal scrolling at any width."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from instances.models import Instance
from tenants.actors import member_actor
from tenants.models import Member
from tenants.services import invite_member
from tests.component.console.conftest import *  # noqa: F403  people, instance and brokers that answer from memory
from tests.component.console.conftest import PASSWORD
from tests.component.console.fakes import NOW_MS, FakeObservation, throttle
from tests.product.browser.accessibility import objections
from tests.product.browser.conftest import OpenPage
from tests.testkit.depth import THEMES, day_share

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

WIDEST, NARROWEST = 1280, 360
WIDTHS = (WIDEST, 1100, 768, NARROWEST)
PICTURED = (WIDEST, NARROWEST)
SECONDS_SHOWN = 900
GAP = range(560, 590)
LIMIT = 20_000_000


@pytest.fixture
def busy(instance: Instance, observation: FakeObservation) -> Instance:
    """Varying traffic that reaches its limit at the end, with a gap of 30 s."""
    now_s = NOW_MS // 1_000
    points = []
    for age in range(SECONDS_SHOWN, 0, -1):
        if age in GAP:
            continue
        wave = ((age * 7919) % 997) / 997
        consume = min(LIMIT, 11_000_000 + 4_000_000 * wave + max(0, 180 - age) * 60_000)
        points.append(
            ((now_s - age) * 1_000, round(9_000_000 + 3_000_000 * wave), round(consume), 184 if age < 150 else 0)
        )
    observation.points = tuple(points)
    observation.alive_since_ms = NOW_MS
    observation.entries = (
        throttle(),
        throttle(kind="instance_bandwidth", quota="consumer_byte_rate", level=None, entity={}, limit_per_s=LIMIT,
                 user="etl-sink", client_id="flink-7", delay_ms_mean=184.0, delay_ms_p95=410.0),
    )  # fmt: skip
    for name in ("payments.settled", "inventory.changes", "clicks.raw"):
        observation.data_plane.create_topic(
            instance.pk, name, partitions=6, replication_factor=1, config={}, validate_only=False
        )
    return instance


def log_in(page: Page, live_server: LiveServer) -> None:
    page.goto(f"{live_server.url}/accounts/login/")
    page.fill("input[name=login]", "ida@halvorsen.example")
    page.fill("input[name=password]", PASSWORD)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url(f"{live_server.url}/instances/")


def assert_nothing_scrolls_sideways(page: Page) -> None:
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


@pytest.mark.parametrize("theme", THEMES)
def test_the_overview_shows_traffic_limit_gap_and_why(
    theme: str, live_server: LiveServer, busy: Instance, open_page: OpenPage, picture: Callable[[Page, str], Path]
) -> None:
    page = open_page(theme=theme)
    log_in(page, live_server)
    page.goto(f"{live_server.url}/instances/{busy.pk}/")
    expect(page.locator(".chart .line.consume").first).to_be_visible()
    expect(page.locator(".chart .gap")).to_have_count(1)
    expect(page.locator(".chart .gate-label")).to_contain_text("limit 20 MB/s")
    expect(page.locator(".rule")).to_have_count(2)
    expect(page.get_by_role("link", name="payments.settled")).to_be_visible()
    page.locator(".chart-plot").hover(position={"x": 400, "y": 150})
    expect(page.locator(".chart-tip [data-produce]")).to_contain_text("MB/s")
    picture(page, f"instance-{theme}-1280")
    assert_nothing_scrolls_sideways(page)


# Of which each day has one.
PAGES_PARTS = 4
PAGES = {
    "instances": "/instances/",
    "create": "/instances/new/",
    "instance": "/instances/{id}/",
    "resize": "/instances/{id}/resize/",
    "topics": "/instances/{id}/topics/",
    "topic": "/instances/{id}/topics/t/orders.created/",
    "topic-config": "/instances/{id}/topics/t/orders.created/config/",
    "topic-access": "/instances/{id}/topics/t/orders.created/access/",
    "topic-producers": "/instances/{id}/topics/t/orders.created/producers/",
    "topic-consumers": "/instances/{id}/topics/t/orders.created/consumers/",
    "topic-create": "/instances/{id}/topics/create/",
    "topic-delete": "/instances/{id}/topics/t/orders.created/delete/",
    "quotas": "/instances/{id}/quotas/",
    "throttle": "/instances/{id}/throttle/",
    "storage": "/instances/{id}/storage/",
    "usage": "/instances/{id}/usage/",
    "instance-settings": "/instances/{id}/settings/",
    "instance-delete": "/instances/{id}/delete/",
    "members": "/members/",
    "tokens": "/tokens/",
    "audit": "/audit/",
    "settings": "/settings/",
    "account-usage": "/usage/",
    "alert-rules": "/alert-rules/",
    "invoices": "/invoices/",
    "ledger": "/invoices/ledger/",
    "billing-details": "/invoices/details/",
}


def test_no_page_scrolls_sideways_at_any_width(
    live_server: LiveServer, busy: Instance, open_page: OpenPage, picture: Callable[[Page, str], Path]
) -> None:
    page = open_page(width=WIDEST)
    log_in(page, live_server)
    for name, path in day_share(tuple(PAGES.items()), PAGES_PARTS):
        page.goto(live_server.url + path.format(id=busy.pk))
        page.wait_for_load_state("networkidle") if name != "instance" else page.wait_for_selector(".chart .line")
        assert objections(page) == [], name
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 800})
            if width in PICTURED:
                picture(page, f"{name}-light-{width}")
            sideways = page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
            assert not sideways, f"{name} at {width}"
        page.set_viewport_size({"width": WIDEST, "height": 800})


def test_chinese_pages_in_the_dark(
    live_server: LiveServer, busy: Instance, open_page: OpenPage, picture: Callable[[Page, str], Path]
) -> None:
    page = open_page(theme="dark")
    log_in(page, live_server)
    page.get_by_role("button", name="中文").click()
    expect(page.locator("html")).to_have_attribute("lang", "zh-Hans")
    for name, path in day_share(tuple(PAGES.items()), PAGES_PARTS):
        page.goto(live_server.url + path.format(id=busy.pk))
        page.wait_for_load_state("networkidle") if name != "instance" else page.wait_for_selector(".rule")
        picture(page, f"{name}-zh-dark-1280")
        assert objections(page) == [], name


def test_the_judge_of_accessibility_is_awake(open_page: OpenPage) -> None:
    page = open_page()
    page.set_content('<html lang="en"><title>t</title><button></button><p style="color: #ddd">faint</p></html>')
    assert {line.split(" ")[0] for line in objections(page)} == {"button-name", "color-contrast"}


def test_entry_pages(live_server: LiveServer, open_page: OpenPage, picture: Callable[[Page, str], Path]) -> None:
    page = open_page()
    page.goto(f"{live_server.url}/accounts/signup/")
    assert page.locator("form:not(.switch) input:visible").count() <= 4
    picture(page, "sign-up-light-1280")
    assert objections(page) == []
    page.get_by_role("button", name="Create account").click()
    expect(page.locator("[aria-invalid=true]").first).to_be_focused()
    picture(page, "sign-up-errors-light-1280")
    page.goto(f"{live_server.url}/accounts/login/")
    picture(page, "login-light-1280")


@pytest.mark.parametrize("theme", THEMES)
def test_the_page_of_an_invitation(
    theme: str, owner: Member, live_server: LiveServer, open_page: OpenPage, picture: Callable[[Page, str], Path]
) -> None:
    secret = invite_member(acting=member_actor(owner), email="tom@halvorsen.example", role="viewer")[1]
    page = open_page(theme=theme)
    page.goto(f"{live_server.url}/join/{secret}/")
    expect(page.locator("input[name=tenant_name]")).to_have_count(0)
    picture(page, f"join-{theme}-1280")
    assert objections(page) == []
    page.fill("input[name=email]", "tom@halvorsen.example")
    page.fill("input[name=password]", PASSWORD)
    page.get_by_role("button", name="Create account and join").click()
    page.wait_for_url(f"{live_server.url}/instances/")
