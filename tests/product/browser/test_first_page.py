"""The first page after sign-up: htmx inserts the form that creates an instance, which works as on its own page."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import expect
from pytest_django.live_server_helper import LiveServer

from tenants.models import Member
from tests.component.console.conftest import *  # noqa: F403  people
from tests.product.browser.conftest import OpenPage
from tests.product.browser.test_pictures import log_in

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def test_the_sliders_of_the_first_page_move_the_numbers_and_the_price(
    live_server: LiveServer, owner: Member, open_page: OpenPage
) -> None:
    page = open_page()
    log_in(page, live_server)
    form = page.locator("#create-form")
    bandwidth, price = form.locator("#bandwidth_mb_s"), form.locator("#price .figure")
    expect(form.locator("[data-slider=bandwidth_mb_s] .ticks li")).to_have_count(3)
    before = price.inner_text()
    form.locator("[data-slider=bandwidth_mb_s] input[type=range]").press("End")
    assert int(bandwidth.input_value()) == int(form.locator("[data-slider=bandwidth_mb_s]").get_attribute("data-high"))  # type: ignore[arg-type]
    expect(price).not_to_have_text(before)
    form.locator("[data-slider=storage_gb] input[type=range]").press("End")
    expect(form.locator("#storage_gb")).to_have_value(
        form.locator("[data-slider=storage_gb]").get_attribute("data-high") or ""
    )
    form.locator(".plan").nth(0).click()
    form.locator(".plan").nth(2).click()
    low = json.loads(form.locator("[name=plan]").nth(2).get_attribute("data-bounds") or "{}")["bandwidth_mb_s"][0]
    expect(form.locator("[data-slider=bandwidth_mb_s] .ticks li").first).to_have_text(f"{low:,}")
