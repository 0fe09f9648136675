"""Messages in a browser: newest first, opened in place, filtered, older ones, and sending."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from instances.messages.interfaces import Record, Transaction
from instances.models import Instance
from tenants.errors import Unavailable
from tests.component.console.conftest import *  # noqa: F403  people, instance and brokers that answer from memory
from tests.product.browser.accessibility import objections
from tests.product.browser.conftest import OpenPage
from tests.product.browser.test_pictures import assert_nothing_scrolls_sideways, log_in
from tests.testkit.depth import THEMES
from tests.testkit.fake_messages import BEGAN_MS, FakeMessages

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

TOPIC = "orders.created"


@pytest.fixture
def busy(instance: Instance, kept_messages: FakeMessages) -> Instance:
    """Eighty messages of all kinds."""
    kept = kept_messages.add(
        instance.pk, TOPIC, *(json.dumps({"order": n, "lines": [{"sku": "a", "n": n}]}).encode() for n in range(75))
    )
    kept_messages.add(instance.pk, TOPIC, b"\xff\x00" * 200, b"x" * 5_000, None, key=b"k" * 300)
    for state, marker in (("open", None), ("aborted", None), (None, "commit")):
        transaction = None if marker else Transaction(producer_id=7, state=state)
        kept.append(
            Record(partition=0, offset=len(kept), timestamp_ms=BEGAN_MS, is_append_time=True, key=None, value=b"t",
                   headers=[(b"trace", b"7f3a"), (b"trace", None)], header_count=2, transaction=transaction,
                   marker=marker)
        )  # fmt: skip
    return instance


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", [1280, 390])
def test_messages_are_found_opened_and_left_for_older_ones(
    theme: str, width: int, live_server: LiveServer, open_page: OpenPage, busy: Instance
) -> None:
    page = open_page(theme=theme, width=width)
    log_in(page, live_server)
    page.goto(f"{live_server.url}/instances/{busy.pk}/topics/t/{TOPIC}/")
    expect(page.locator("details.message")).to_have_count(50)
    assert_nothing_scrolls_sideways(page)
    assert objections(page) == []
    page.locator("summary").filter(has_text='"order": 70').first.focus()
    page.keyboard.press("Enter")
    opened = page.locator("details.message[open]")
    expect(opened).to_have_count(1)
    expect(opened.locator(".json .name", has_text="sku")).to_be_hidden()
    opened.locator(".json summary").filter(has_text='"lines"').click()
    opened.locator(".json .members .members summary").first.click()
    expect(opened.locator(".json .name", has_text="sku")).to_be_visible()
    assert_nothing_scrolls_sideways(page)
    assert objections(page) == []
    page.get_by_role("link", name="Older").click()
    expect(page.get_by_role("link", name="Newer")).to_be_visible()
    page.get_by_label("In key or value").fill('"order": 3,')
    page.get_by_role("button", name="Read", exact=True).click()
    expect(page.locator("details.message")).to_have_count(1)
    expect(page.get_by_label("Offset", exact=True)).to_be_hidden()
    page.get_by_label("From").select_option("offset")
    expect(page.get_by_label("Offset", exact=True)).to_be_visible()


def test_the_first_message_is_sent_from_an_empty_topic(
    live_server: LiveServer, open_page: OpenPage, instance: Instance, kept_messages: FakeMessages
) -> None:
    kept_messages.records[instance.pk, TOPIC] = []
    page = open_page(width=390)
    log_in(page, live_server)
    page.goto(f"{live_server.url}/instances/{instance.pk}/topics/t/{TOPIC}/")
    page.get_by_role("main").get_by_role("link", name="Send a message").last.click()
    assert objections(page) == []
    assert_nothing_scrolls_sideways(page)
    page.get_by_label("Key", exact=True).fill("o-1")
    page.get_by_label("Value", exact=True).fill('{"total": 42}')
    page.get_by_role("button", name="Send", exact=True).click()
    expect(page.locator("details.message")).to_have_count(1)
    assert re.search(r"/topics/t/orders\.created/$", page.url)


def test_new_messages_come_on_top_while_the_view_is_live(
    live_server: LiveServer, open_page: OpenPage, busy: Instance, kept_messages: FakeMessages
) -> None:
    page = open_page(width=1280)
    log_in(page, live_server)
    page.goto(f"{live_server.url}/instances/{busy.pk}/topics/t/{TOPIC}/?q=order")
    live = page.get_by_role("button", name="Live", exact=True)
    live.click()
    expect(page.get_by_text("Live: waiting for new messages")).to_be_visible()
    kept_messages.add(busy.pk, TOPIC, b'{"order": "fresh"}', b"passed over", b'{"order": "fresher"}')
    first = page.locator("details.message").first
    expect(first).to_contain_text("fresher", timeout=15_000)
    expect(page.locator("details.message", has_text="passed over")).to_have_count(0)
    expect(page.get_by_text("Live: 2 new messages")).to_be_visible()
    assert objections(page) == []
    page.get_by_role("button", name="Stop", exact=True).click()
    kept_messages.add(busy.pk, TOPIC, b'{"order": "too late"}')
    expect(page.get_by_text("Live: 2 new messages")).to_be_hidden()
    expect(live).to_be_visible()


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", [1280, 390])
def test_a_filter_reads_on_by_itself_and_is_stopped(
    theme: str,
    width: int,
    live_server: LiveServer,
    open_page: OpenPage,
    instance: Instance,
    kept_messages: FakeMessages,
    picture: Callable[[Page, str], Path],
) -> None:
    kept_messages.records[instance.pk, TOPIC] = []
    kept_messages.add(instance.pk, TOPIC, *(json.dumps({"order": n}).encode() for n in range(1_000)))
    kept_messages.scanned_max = 60
    page = open_page(theme=theme, width=width)
    log_in(page, live_server)
    at = f"{live_server.url}/instances/{instance.pk}/topics/t/{TOPIC}/"
    page.goto(f'{at}?q="order": 77')
    scan = page.locator("[data-scan]")
    expect(scan).to_contain_text("11 match among 1,000 messages read")  # 77, and 770 to 779
    expect(scan).to_contain_text("That is all the topic has.")
    found = page.locator("details.message")
    expect(found).to_have_count(11)
    offsets = [int(words.partition("@")[2]) for words in found.evaluate_all("all => all.map(one => one.dataset.place)")]
    assert offsets == [*range(779, 769, -1), 77]
    expect(page.get_by_role("link", name="Older")).to_have_count(0)
    assert objections(page) == []
    assert_nothing_scrolls_sideways(page)
    picture(page, f"scan-end-{theme}-{width}")

    # A list that is full ends the scan, and leads behind what was read.
    page.goto(f"{at}?start=oldest&q=9")
    expect(found.nth(49)).to_be_visible()
    expect(scan.get_by_role("button")).to_be_hidden()
    last = found.last.get_attribute("data-place")
    page.get_by_role("link", name="Newer").click()
    expect(found.first).not_to_have_attribute("data-place", last or "")
    first = int((found.first.get_attribute("data-place") or "").partition("@")[2])
    assert first > int((last or "").partition("@")[2])

    # Nothing comes while others read: stopped, it asks no more; resumed, it goes on where it was.
    kept_messages.scanned_max = 1
    page.goto(f"{at}?q=nothing")
    kept_messages.trouble = Unavailable("Others read.", code="busy")
    expect(scan.locator("progress")).to_be_visible()
    assert objections(page) == []
    picture(page, f"scan-under-way-{theme}-{width}")
    page.get_by_role("button", name="Stop", exact=True).click()
    expect(scan).to_contain_text("Stopped.")
    kept_messages.trouble, kept_messages.scanned_max = None, None
    read = len(kept_messages.requests)
    page.get_by_role("button", name="Read on").click()
    expect(page.get_by_text("No message has “nothing”")).to_be_visible()
    assert len(kept_messages.requests) == read + 1, "the one that was stopped has ended"


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", [1280, 390])
def test_schemas_and_masks_are_set_on_one_page(
    theme: str, width: int, live_server: LiveServer, open_page: OpenPage, busy: Instance
) -> None:
    page = open_page(theme=theme, width=width)
    log_in(page, live_server)
    page.goto(f"{live_server.url}/instances/{busy.pk}/topics/t/{TOPIC}/reading/")
    assert objections(page) == []
    file = {"name": "order.avsc", "mimeType": "application/json", "buffer": b'"long"'}
    page.get_by_label("From a file").set_input_files(file)  # type: ignore[arg-type]
    expect(page.get_by_label("Schema", exact=True)).to_have_value('"long"')
    page.get_by_label("From a file").set_input_files({**file, "buffer": b"\x0a\x02\x08\x01"})  # type: ignore[arg-type]
    expect(page.get_by_label("Schema", exact=True)).to_have_value("CgIIAQ==")
    page.get_by_label("Schema", exact=True).fill('"long"')
    page.get_by_role("button", name="Add the schema").click()
    expect(page.get_by_text("The schema is added.")).to_be_visible()
    page.get_by_label("Masked fields").fill("value .lines.sku")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("1 field is masked.")).to_be_visible()
    assert_nothing_scrolls_sideways(page)
    assert objections(page) == []
    page.locator("table summary").first.click()
    expect(page.locator("table pre")).to_have_text('"long"')
    page.get_by_role("button", name=re.compile("Delete schema")).click()
    expect(page.get_by_role("heading", name="Delete the schema?")).to_be_visible()
