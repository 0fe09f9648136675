"""The audit log with names of Kafka's maximum length: the table keeps its layout, and a title has the full name."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect
from pytest_django.live_server_helper import LiveServer

from instances.models import Instance
from tenants import audit
from tenants.actors import member_actor
from tenants.models import Member
from tests.component.console.conftest import *  # noqa: F403  people, instance and brokers that answer from memory
from tests.product.browser.conftest import OpenPage
from tests.product.browser.test_pictures import assert_nothing_scrolls_sideways, log_in

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

ROW_HEIGHT_MAX = 120


@pytest.mark.parametrize("width", [1280, 768, 360])
def test_a_long_target_breaks_no_layout(
    width: int, live_server: LiveServer, owner: Member, instance: Instance, open_page: OpenPage
) -> None:
    target = f"{instance.pk}/{'x' * 249}"
    audit.record(member_actor(owner), "topic.created", ("topic", target), None, {"partitions": 3}, tenant=owner.tenant)
    page = open_page(width=width)
    log_in(page, live_server)
    page.goto(f"{live_server.url}/audit/?q=topic.created")
    cell = page.locator(f'.clamp[title="{target}"]')
    expect(cell).to_be_visible()
    assert_nothing_scrolls_sideways(page)
    row = page.locator("tr", has=cell).bounding_box()
    assert row is not None and row["height"] <= ROW_HEIGHT_MAX
    wrap = page.locator(".table-wrap")
    overflow = wrap.evaluate("box => box.scrollWidth - box.clientWidth")
    assert overflow <= (0 if width == 1280 else 300), "who and what stay in sight"
