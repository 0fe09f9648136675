"""The live chart while one of several brokers is unresponsive: the others' data stays, and the missing
broker is named.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from instances.models import Instance
from tests.component.console.conftest import *  # noqa: F403  people, instance and brokers that answer from memory
from tests.component.console.fakes import NOW_MS, FakeObservation, throttle
from tests.product.browser.conftest import OpenPage
from tests.product.browser.test_pictures import log_in
from tests.testkit.depth import THEMES

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

SECONDS_SHOWN = 900
RESTARTED_BEFORE_MS = 300_000


@pytest.mark.parametrize("theme", THEMES)
def test_the_restart_of_one_broker_hatches_nothing_and_is_named(
    theme: str, live_server: LiveServer, instance: Instance, observation: FakeObservation, open_page: OpenPage,
    picture: Callable[[Page, str], Path],
) -> None:  # fmt: skip
    now_ms = NOW_MS - NOW_MS % 1_000
    observation.points = tuple((now_ms - age * 1_000, 3_000_000, 6_000_000, 0) for age in range(SECONDS_SHOWN, 0, -1))
    observation.alive_since_by_broker = {1: 0, 2: now_ms - RESTARTED_BEFORE_MS, 3: 0}
    observation.entries = (
        throttle(kind="instance_bandwidth", quota="consumer_byte_rate", level=None, entity={}, broker_id=1,
                 limit_per_s=6_700_000.0),
    )  # fmt: skip
    page = open_page(theme=theme)
    log_in(page, live_server)
    page.goto(f"{live_server.url}/instances/{instance.pk}/")
    expect(page.locator(".chart .partial")).to_have_count(1)
    expect(page.locator(".chart .gap")).to_have_count(0)
    expect(page.locator("[data-partial-key]")).to_be_visible()
    page.locator(".chart-plot").hover(position={"x": 200, "y": 150})
    expect(page.locator(".chart-tip [data-partial]")).to_have_text("without broker 2, which did not tell")
    picture(page, f"instance-partial-{theme}")
    page.locator(".chart-plot").hover(
        position={"x": page.locator(".chart-plot").bounding_box()["width"] - 40, "y": 150}
    )  # type: ignore[index]
    expect(page.locator(".chart-tip [data-partial]")).to_be_hidden()
