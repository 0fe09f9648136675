"""Suspension of a tenant by an operator in the panel, and its reason on the tenant's pages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from instances.models import Instance
from tenants.services import create_operator
from tests.component.console.conftest import *  # noqa: F403  people, instance and brokers that answer from memory
from tests.component.console.conftest import PASSWORD
from tests.product.browser.accessibility import objections
from tests.product.browser.conftest import OpenPage
from tests.product.browser.test_pictures import log_in
from tests.testkit.depth import THEMES

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

NOTE = "Card declined twice. Write to billing@penstock.example."


@pytest.mark.parametrize("theme", THEMES)
def test_a_suspension_is_confirmed_and_the_tenant_reads_the_operators_words(
    theme: str, live_server: LiveServer, instance: Instance, open_page: OpenPage, picture: Callable[[Page, str], Path]
) -> None:
    create_operator(email="ops@penstock.example", password=PASSWORD)
    panel = open_page(theme=theme)
    panel.goto(f"{live_server.url}/operator/login/?next=/operator/tenants/tenant/")
    panel.fill("input[name=username]", "ops@penstock.example")
    panel.fill("input[name=password]", PASSWORD)
    panel.locator("button[type=submit]").first.click()
    panel.locator("input[name=_selected_action]").first.check()
    panel.select_option("select[name=action]", "suspend")
    panel.locator("button[name=index]").click()
    expect(panel.get_by_text("Produce is refused, consume goes on.")).to_be_visible()
    assert objections(panel, within=".fleet") == []
    picture(panel, f"suspend-{theme}")
    instance.tenant.refresh_from_db()
    assert not instance.tenant.is_suspended
    panel.fill("textarea[name=note]", NOTE)
    panel.fill("input[name=typed]", instance.tenant.name)
    panel.get_by_role("button", name="Suspend").click()
    expect(panel.get_by_text(": suspended")).to_be_visible()
    page = open_page(theme=theme)
    log_in(page, live_server)
    page.goto(f"{live_server.url}/instances/{instance.pk}/")
    expect(page.locator(".suspended q")).to_have_text(NOTE)
    assert objections(page) == []
    picture(page, f"suspended-{theme}")
