"""The API documentation: read, opened and tried out by keyboard, in both themes and on a small screen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from instances.models import Instance
from tests.component.console.conftest import *  # noqa: F403  people, instance and brokers that answer from memory
from tests.product.browser.accessibility import objections
from tests.product.browser.conftest import OpenPage
from tests.product.browser.test_pictures import assert_nothing_scrolls_sideways, log_in
from tests.testkit.depth import THEMES

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

SMALL = 390
Snap = Callable[[Page, str], Path]


def open_by_keyboard(page: Page, name: str) -> None:
    """Opens a section or an operation as one does without a mouse."""
    page.get_by_role("button", name=name).first.focus()
    page.keyboard.press("Enter")


@pytest.mark.parametrize("theme", THEMES)
def test_an_operation_is_read_and_tried_out_by_keyboard(
    theme: str, live_server: LiveServer, instance: Instance, open_page: OpenPage, picture: Snap
) -> None:
    page = open_page(theme=theme)
    log_in(page, live_server)
    page.goto(f"{live_server.url}/api/docs/")
    expect(page.get_by_role("heading", name="Topics")).to_be_visible()
    picture(page, f"api-docs-{theme}-1280")
    assert objections(page) == []

    open_by_keyboard(page, "Topics, operations")
    operation = page.locator("#operations-Topics-get_topic")
    expect(operation).to_be_visible()
    operation.get_by_role("button").first.focus()
    page.keyboard.press("Enter")
    expect(operation.get_by_role("button", name="Try it out")).to_be_visible()
    assert objections(page) == []
    operation.get_by_role("button", name="Try it out").focus()
    page.keyboard.press("Enter")
    operation.locator("tr[data-param-name=instance_id] input").fill(instance.pk)
    operation.locator("tr[data-param-name=name] input").fill("orders.created")
    assert objections(page) == []
    operation.get_by_role("button", name="Execute").focus()
    page.keyboard.press("Enter")
    expect(operation.locator(".live-responses-table tbody .response-col_status")).to_contain_text("200")
    expect(operation.locator(".live-responses-table")).to_contain_text("orders.created")
    picture(page, f"api-docs-tried-{theme}-1280")
    assert objections(page) == []


def test_a_body_and_the_token_are_read_on_a_small_screen(
    live_server: LiveServer, instance: Instance, open_page: OpenPage, picture: Snap
) -> None:
    page = open_page(width=SMALL)
    page.goto(f"{live_server.url}/api/docs/#/Topics/create_topic")
    operation = page.locator("#operations-Topics-create_topic")
    expect(operation.get_by_role("button", name="Try it out")).to_be_visible()
    operation.get_by_role("button", name="Try it out").click()
    picture(page, f"api-docs-light-{SMALL}")
    assert_nothing_scrolls_sideways(page)
    assert objections(page) == []
    page.get_by_role("button", name="Authorize").first.click()
    expect(page.get_by_role("dialog").or_(page.locator(".dialog-ux"))).to_be_visible()
    assert objections(page) == []
    assert_nothing_scrolls_sideways(page)
