"""Alert rules in a browser: created, firing, and shown in both themes and languages and on a telephone."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from instances.models import Instance
from notifications.alerts import firings
from notifications.alerts.firings import Fired
from notifications.models import AlertRule
from tenants.models import User
from tests.component.console.conftest import *  # noqa: F403  people, instance and brokers that answer from memory
from tests.product.browser.accessibility import objections
from tests.product.browser.conftest import OpenPage
from tests.product.browser.test_pictures import NARROWEST, assert_nothing_scrolls_sideways, log_in

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.mark.parametrize(("theme", "language"), [("light", "en"), ("dark", "zh-hans")])
def test_a_rule_is_set_and_its_firing_is_shown(
    theme: str, language: str, live_server: LiveServer, instance: Instance, open_page: OpenPage,
    picture: Callable[[Page, str], Path],
) -> None:  # fmt: skip
    page = open_page(theme=theme)
    log_in(page, live_server)
    page.goto(f"{live_server.url}/alert-rules/")
    expect(page.get_by_text("No alert rule yet")).to_be_visible()
    page.fill("input[name=name]", "billing is far behind")
    page.select_option("select[name=kind]", "consumer_lag")
    page.fill("input[name=threshold]", "100000")
    page.get_by_role("button", name="Add alert rule").click()
    expect(page.locator(".error").first).to_be_visible()  # a lag needs a group
    page.fill("input[name=group_id]", "billing")
    page.get_by_role("button", name="Add alert rule").click()
    expect(page.get_by_text("Group billing is 100,000 records or more behind for 5 min")).to_be_visible()

    rule = AlertRule.objects.get()
    now = timezone.now()
    AlertRule.objects.update(state="firing", value=1_234_567, is_unknown=False, evaluated_at=now, state_since=now)
    firings.begin([Fired(rule, 1_234_567, now - timedelta(minutes=5))], now)
    User.objects.filter(email="ida@halvorsen.example").update(language=language)
    for width in (1280, NARROWEST):
        page.set_viewport_size({"width": width, "height": 800})
        for name, place in (("alert-rules", "/alert-rules/"), ("alert-rule", f"/alert-rules/{rule.pk}/")):
            page.goto(f"{live_server.url}{place}")
            expect(page.locator(".pill.failed").first).to_be_visible()
            assert_nothing_scrolls_sideways(page)
            assert objections(page) == []
            picture(page, f"{name}-{theme}-{width}")
