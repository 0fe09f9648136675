"""A month of an instance in the chart: metered traffic, delays, and a sentence where there are none."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from instances import services
from instances.models import Instance
from tests.component.console.conftest import *  # noqa: F403  people, instance and brokers that answer from memory
from tests.product.browser.conftest import OpenPage
from tests.product.browser.test_pictures import log_in
from tests.testkit.depth import THEMES

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def open_month(page: Page, live_server: LiveServer, instance: Instance) -> None:
    log_in(page, live_server)
    page.goto(f"{live_server.url}/instances/{instance.pk}/")
    page.get_by_role("button", name="30 d").click()
    expect(page.locator(".live")).to_have_text("from metered usage")


@pytest.mark.parametrize("theme", THEMES)
def test_a_young_instance_is_drawn_with_its_delays(
    theme: str, live_server: LiveServer, instance: Instance, open_page: OpenPage, picture: Callable[[Page, str], Path]
) -> None:
    now = timezone.now().replace(second=0, microsecond=0)
    Instance.objects.filter(pk=instance.pk).update(first_running_at=now - timedelta(minutes=40))
    minutes = [round((now - timedelta(minutes=at)).timestamp() * 1_000) for at in range(10, 20)]
    services.store_delays({instance.pk: dict.fromkeys(minutes, 300)})
    page = open_page(theme=theme)
    open_month(page, live_server, instance)
    expect(page.locator(".chart .held")).to_have_count(1)
    expect(page.locator("[data-said]")).to_contain_text("there is nothing before")
    picture(page, f"history-{theme}")


def test_an_instance_without_a_metered_minute_has_a_sentence_and_no_blank_chart(
    live_server: LiveServer, instance: Instance, open_page: OpenPage
) -> None:
    Instance.objects.filter(pk=instance.pk).update(first_running_at=timezone.now())
    page = open_page()
    open_month(page, live_server, instance)
    expect(page.locator(".chart-note")).to_contain_text("No whole minute is metered yet.")
    expect(page.locator(".chart-note")).to_be_visible()
