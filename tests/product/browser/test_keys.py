"""The keyboard: shortcuts work except during typing, Tab reaches everything, and the theme changes without a reload."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from instances.models import Instance
from tests.component.console.conftest import *  # noqa: F403  people, instance and brokers that answer from memory
from tests.product.browser.conftest import OpenPage, press
from tests.product.browser.test_pictures import log_in
from tests.testkit.fake_groups import FakeGroups

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def console(live_server: LiveServer, instance: Instance, open_page: OpenPage) -> Page:
    page = open_page()
    log_in(page, live_server)
    return page


def test_slash_opens_the_palette_and_enter_jumps(console: Page) -> None:
    console.keyboard.press("/")
    field = console.get_by_role("combobox", name="Search or jump to")
    expect(field).to_be_focused()
    field.fill("audit")
    expect(console.get_by_role("option", name="Audit log")).to_be_visible()
    console.keyboard.press("Enter")
    expect(console.get_by_role("heading", name="Audit log")).to_be_visible()


def test_the_palette_finds_a_topic_from_any_page(console: Page) -> None:
    console.keyboard.press("/")
    field = console.get_by_role("combobox", name="Search or jump to")
    field.fill("created")
    expect(console.get_by_role("option", name="orders.created")).to_be_visible()
    console.keyboard.press("Enter")
    expect(console.get_by_role("heading", name="orders.created")).to_be_visible()
    press(console, "/")
    field.fill("reset nothing of this name")
    expect(console.locator("#palette-list")).to_contain_text("Nothing matches")
    field.fill("create topic")
    expect(console.get_by_role("option", name="orders-prod: Create topic")).to_be_visible()


def test_the_palette_finds_pages_while_brokers_keep_silent(console: Page, groups: FakeGroups) -> None:
    groups.is_down = True
    console.keyboard.press("/")
    console.get_by_role("combobox", name="Search or jump to").fill("audit")
    expect(console.locator("#palette-list")).to_contain_text("Topics and groups are not known at the moment")
    expect(console.get_by_role("option", name="Audit log")).to_be_visible()


def test_two_keys_lead_to_the_topics_of_an_instance(console: Page) -> None:
    console.get_by_role("link", name="orders-prod", exact=True).click()
    expect(console.get_by_role("heading", name="orders-prod", level=1)).to_be_visible()
    press(console, "g")
    console.keyboard.press("t")
    expect(console.get_by_role("heading", name="Topics", level=1)).to_be_visible()
    press(console, "j")
    expect(console.get_by_role("link", name="orders.created")).to_be_focused()
    console.keyboard.press("Enter")
    expect(console.get_by_role("heading", name="orders.created")).to_be_visible()


def test_keys_do_nothing_while_somebody_types(console: Page) -> None:
    field = console.get_by_label("Filter instances")
    field.click()
    console.keyboard.type("c/?")
    expect(field).to_have_value("c/?")
    expect(console.get_by_text("No instance matches")).to_be_visible()
    console.wait_for_url(re.compile("q=c"))


def test_the_first_stop_of_tab_is_the_content(console: Page) -> None:
    console.keyboard.press("Tab")
    expect(console.get_by_role("link", name="Skip to content")).to_be_focused()


def test_the_theme_changes_at_once_and_stays(console: Page) -> None:
    console.get_by_label("Filter instances").fill("half-typed")
    with console.expect_response(re.compile("/preferences/")):
        console.get_by_role("button", name="Dark").click()
    expect(console.locator("html")).to_have_attribute("data-theme", "dark")
    expect(console.get_by_label("Filter instances")).to_have_value("half-typed")
    console.reload()
    expect(console.locator("html")).to_have_attribute("data-theme", "dark")


def test_the_slider_and_its_number_are_one_value_and_the_price_follows(console: Page) -> None:
    console.keyboard.press("c")
    expect(console.get_by_role("heading", name="Create instance")).to_be_visible()
    console.get_by_text("Stream").click()
    number = console.get_by_role("spinbutton", name="Bandwidth")
    expect(number).to_have_value("20")
    console.get_by_role("slider", name="Bandwidth").focus()
    console.keyboard.press("End")
    expect(number).to_have_value("60")
    expect(console.locator("#price .figure")).to_contain_text("€ 0.5300")
    number.fill("700")
    expect(console.locator("#price .figure")).to_have_text("—")
    expect(console.locator("#price .error")).to_contain_text("Stream ends at 60 MB/s")


def test_a_copied_secret_may_be_left_and_is_gone(console: Page, live_server: LiveServer) -> None:
    console.goto(f"{live_server.url}/tokens/")
    console.get_by_role("textbox", name="Name").fill("deploy")
    console.get_by_text("See topics").click()
    console.get_by_role("button", name="Create token").click()
    console.get_by_role("button", name="Copy secret").click()
    expect(console.locator("#spoken")).to_have_text("Copied")
    copied = console.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("pst_")
    console.goto(f"{live_server.url}/members/")
    expect(console.get_by_text(copied)).to_have_count(0)


def test_the_chart_is_read_with_arrow_keys_and_as_a_table(
    console: Page, live_server: LiveServer, instance: Instance
) -> None:
    console.goto(f"{live_server.url}/instances/{instance.pk}/")
    plot = console.locator(".chart-plot")
    expect(plot).to_have_attribute("aria-label", re.compile("produce .*limit"))
    plot.focus()
    console.keyboard.press("ArrowLeft")
    expect(console.locator(".chart-tip")).to_be_visible()
    console.keyboard.press("Escape")
    expect(console.locator(".chart-tip")).to_be_hidden()
    console.get_by_role("button", name="Show as table").click()
    expect(console.locator(".chart-table tbody tr").first).to_be_visible()
