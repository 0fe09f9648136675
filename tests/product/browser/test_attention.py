"""The notice of an unresponsive broker appears in the list and on the instance's page without a reload, and
disappears.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from django.utils import timezone
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from instances import services
from instances.lifecycle.conditions import LeaderlessPartitions, Observation
from instances.models import Instance
from tests.component.console.conftest import *  # noqa: F403  people, instance and brokers that answer from memory
from tests.product.browser.accessibility import objections
from tests.product.browser.conftest import OpenPage
from tests.product.browser.test_pictures import log_in

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.mark.parametrize(("theme", "place"), [("light", "list"), ("dark", "page")])
def test_a_silent_broker_appears_and_goes_without_a_reload(
    theme: str, place: str, live_server: LiveServer, instance: Instance, open_page: OpenPage,
    picture: Callable[[Page, str], Path],
) -> None:  # fmt: skip
    page = open_page(theme=theme)
    log_in(page, live_server)
    if place == "page":
        page.goto(f"{live_server.url}/instances/{instance.pk}/")
    expect(page.locator(".need")).to_have_count(0)
    leaderless = LeaderlessPartitions(count=2, names=("orders.created/0", "orders.created/2"))
    services.record_health(instance.pk, Observation(silent=frozenset({2}), leaderless=leaderless, at=timezone.now()))
    expect(page.locator("#attention .need")).to_have_count(1)  # the partitions stand with the broker they wait for
    expect(page.get_by_text("Broker silent")).to_be_visible()
    assert objections(page) == []
    picture(page, f"attention-{place}-{theme}")
    services.record_health(instance.pk, Observation(leaderless=LeaderlessPartitions(), at=timezone.now()))
    expect(page.locator(".need")).to_have_count(0)
