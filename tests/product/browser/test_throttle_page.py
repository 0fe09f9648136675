"""The throttle page: a week leads to its minutes, bandwidth is shown by broker, and nothing exceeds the screen."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, timedelta
from pathlib import Path

import pytest
from django.utils import timezone
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from instances import services
from instances.models import Instance
from instances.services import ThrottledMinuteReport
from tests.component.console.conftest import *  # noqa: F403  people, instance and brokers that answer from memory
from tests.component.console.fakes import FakeObservation, share, throttle
from tests.component.console.test_past import CAUSE
from tests.product.browser.conftest import OpenPage
from tests.product.browser.test_pictures import assert_nothing_scrolls_sideways, log_in
from tests.testkit.depth import THEMES

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

BANDWIDTH = {
    "kind": "instance_bandwidth", "quota": "producer_byte_rate", "level": None, "entity": {},
    "whole_limit_per_s": 20_000_000.0,
}  # fmt: skip


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", [1280, 400])
def test_a_week_of_waits_leads_to_its_minutes(
    theme: str, width: int, live_server: LiveServer, instance: Instance, observation: FakeObservation,
    open_page: OpenPage, picture: Callable[[Page, str], Path],
) -> None:  # fmt: skip
    hour = timezone.now().astimezone(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(days=2)
    for number in range(40):
        at_ms = round((hour + timedelta(minutes=7 * number)).timestamp() * 1_000)
        causes = [CAUSE | BANDWIDTH | {"waited_ms": 4_000 + number}, CAUSE]
        services.store_throttled_minutes([ThrottledMinuteReport(instance.pk, at_ms, 1 + number % 3, 1, causes)])
    observation.shares = {1: share(1), 2: share(2, "no_answer"), 3: None}
    observation.entries = (throttle(**{**BANDWIDTH, "limit_per_s": 6_700_000.0}),)
    page = open_page(theme=theme, width=width)
    log_in(page, live_server)
    page.goto(f"{live_server.url}/instances/{instance.pk}/throttle/")
    expect(page.locator("#past .empty")).to_be_visible()
    expect(page.get_by_text("shared out by what clients want")).to_be_visible()
    page.locator("#past").get_by_role("link", name="7 days").click()
    at = page.locator("#past").get_by_role("link", name=f"{hour:%Y-%m-%d %H:%M}")
    expect(at).to_be_visible()
    picture(page, f"throttle-week-{theme}-{width}")
    assert_nothing_scrolls_sideways(page)
    at.click()
    expect(page.locator("#past").get_by_text(f"{hour:%Y-%m-%d} {hour:%H}:07")).to_be_visible()
    expect(page.locator("#past").get_by_role("link", name="Until now")).to_be_visible()
    picture(page, f"throttle-hour-{theme}-{width}")
