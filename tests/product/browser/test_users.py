"""Users and access rules in a browser: a password shown once, a second one, and rules that are created, tested,
deleted.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from instances.models import Instance
from instances.users.limits import USERS_OFFERED_MAX, USERS_PER_INSTANCE_MAX
from tenants.limits import PAGE_SIZE_DEFAULT
from tests.component.console.conftest import *  # noqa: F403  people, instance and brokers that answer from memory
from tests.product.browser.accessibility import objections
from tests.product.browser.conftest import OpenPage
from tests.product.browser.test_pictures import assert_nothing_scrolls_sideways, log_in
from tests.testkit.depth import THEMES
from tests.testkit.fake_users import FakeAcls, FakeUsers, rule, secret

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

NARROW = 400
PAGE_BYTES_MAX = 300_000
LONG = "n" * 200  # a name without a place to break it


@pytest.fixture
def crowded(instance: Instance, users: FakeUsers, acls: FakeAcls) -> Instance:
    users.add(instance.pk, "etl", superuser=True, secrets=(secret("sec-old", 1_790_000_000_000), secret("sec-new")))
    users.add(instance.pk, "reports", disabled=True, last_used_at_ms=None)
    users.add(instance.pk, "temporary", expires_at_ms=1_000)
    users.add(instance.pk, LONG)
    acls.create(instance.pk, [
        rule("User:*", "write", permission="deny", host="10.0.0.9"), rule("User:reports"),
        rule("User:reports", resource_type="group", resource_name="reports-", pattern_type="prefixed"),
        rule("User:etl", "all", resource_name="*"), rule("User:reports", resource_name=LONG),
    ])  # fmt: skip
    return instance


@pytest.mark.parametrize("theme", THEMES)
def test_a_password_is_shown_copied_and_gone(
    theme: str, live_server: LiveServer, crowded: Instance, users: FakeUsers, open_page: OpenPage,
    picture: Callable[[Page, str], Path],
) -> None:  # fmt: skip
    page = open_page(theme=theme)
    log_in(page, live_server)
    page.goto(f"{live_server.url}/instances/{crowded.pk}/users/")
    expect(page.locator("tr", has_text="temporary")).to_contain_text("Expired")
    picture(page, f"users-{theme}-1280")
    assert objections(page) == []
    page.get_by_label("Name", exact=True).fill("orders-service")
    page.locator("main").get_by_role("button", name="Create user").click()
    password = page.locator("[data-secret] .copy").nth(1)
    expect(password).to_contain_text("psu_")
    picture(page, f"user-made-{theme}-1280")
    assert objections(page) == []
    page.get_by_role("button", name="Copy password").click()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied in users.passwords.values()
    page.get_by_role("link", name="orders-service", exact=True).click()
    expect(page.locator("h1")).to_have_text("orders-service")
    assert copied not in page.content()
    page.get_by_role("button", name="Add a second password").click()
    expect(page.locator("[data-secret]")).to_contain_text("psu_")
    page.get_by_role("button", name="Copy password").click()
    page.get_by_role("button", name="Remove").first.click()
    expect(page.get_by_text("Remove a password of orders-service?")).to_be_visible()
    page.get_by_role("button", name="Remove").click()
    expect(page.get_by_role("button", name="Remove")).to_have_count(0)
    picture(page, f"user-{theme}-1280")
    assert objections(page) == []


def test_a_user_is_disabled_and_comes_back_by_undo(
    live_server: LiveServer, crowded: Instance, users: FakeUsers, open_page: OpenPage
) -> None:
    page = open_page()
    log_in(page, live_server)
    page.goto(f"{live_server.url}/instances/{crowded.pk}/users/one/?user=etl")
    page.get_by_role("button", name="Disable").click()
    expect(page.locator(".pill", has_text="Disabled")).to_be_visible()
    assert users.users_by_key[crowded.pk, "etl"].disabled
    page.get_by_role("button", name=re.compile("^Undo")).click()
    expect(page.locator(".pill", has_text="Active")).to_be_visible()


@pytest.mark.parametrize("theme", THEMES)
def test_access_is_given_tested_and_taken_back(
    theme: str, live_server: LiveServer, crowded: Instance, acls: FakeAcls, open_page: OpenPage,
    picture: Callable[[Page, str], Path],
) -> None:  # fmt: skip
    page = open_page(theme=theme)
    log_in(page, live_server)
    page.goto(f"{live_server.url}/instances/{crowded.pk}/access/")
    picture(page, f"access-{theme}-1280")
    assert objections(page) == []
    give = page.locator("#give")
    give.get_by_label("User").fill("billing")
    give.get_by_label("Topic", exact=True).fill("payments")
    give.get_by_label("Consumer group").fill("billing")
    give.get_by_role("button", name="Give access").click()
    expect(page.locator("tr", has_text="Topic payments")).to_contain_text("billing")
    test = page.locator("#test")
    test.get_by_label("User").fill("billing")
    test.get_by_label("Name").fill("payments")
    test.get_by_role("button", name="Test").click()
    expect(test.get_by_role("status")).to_contain_text("Allowed.")
    picture(page, f"access-tested-{theme}-1280")
    assert objections(page) == []
    before = set(acls.rules_by_instance[crowded.pk])
    page.locator("tr", has_text="Topic payments").get_by_role("button", name="Delete").click()
    expect(page.locator("tr", has_text="Topic payments")).to_have_count(0)
    page.get_by_role("button", name=re.compile("^Undo")).click()
    expect(page.locator("tr", has_text="Topic payments")).to_have_count(1)
    assert acls.rules_by_instance[crowded.pk] == before


def test_pages_of_users_scroll_sideways_at_no_width(
    live_server: LiveServer, crowded: Instance, open_page: OpenPage, picture: Callable[[Page, str], Path]
) -> None:
    page = open_page()
    log_in(page, live_server)
    pages = {
        "users": "users/", "user": "users/one/?user=etl", "user-long": f"users/one/?user={LONG}",
        "user-delete": "users/delete/?user=billing", "access": "access/",
    }  # fmt: skip
    for name, path in pages.items():
        page.goto(f"{live_server.url}/instances/{crowded.pk}/{path}")
        assert objections(page) == [], name
        for width in (1280, 768, 360):
            page.set_viewport_size({"width": width, "height": 800})
            picture(page, f"{name}-light-{width}")
            assert_nothing_scrolls_sideways(page)


def test_pages_of_users_in_chinese(
    live_server: LiveServer, crowded: Instance, open_page: OpenPage, picture: Callable[[Page, str], Path]
) -> None:
    page = open_page(theme="dark")
    log_in(page, live_server)
    page.get_by_role("button", name="\u4e2d\u6587").click()
    expect(page.locator("html")).to_have_attribute("lang", "zh-Hans")
    for name, path, words in (
        ("users", "users/", "\u521b\u5efa\u7528\u6237"), ("access", "access/", "\u6d4b\u8bd5\u6743\u9650"),
    ):  # fmt: skip
        page.goto(f"{live_server.url}/instances/{crowded.pk}/{path}")
        expect(page.locator("main")).to_contain_text(words)
        picture(page, f"{name}-zh-dark-1280")


@pytest.mark.long("instances/views/users.py", "instances/views/acls.py", "instances/users/selectors.py")
def test_a_thousand_users_are_shown_by_the_page_and_offered_as_they_are_typed(
    live_server: LiveServer, instance: Instance, users: FakeUsers, acls: FakeAcls, open_page: OpenPage,
    picture: Callable[[Page, str], Path],
) -> None:  # fmt: skip
    for number in range(USERS_PER_INSTANCE_MAX - 1):
        users.add(instance.pk, f"service-{number:03}")
    acls.create(
        instance.pk, [rule(f"User:service-{number:03}", resource_name=f"t-{number:03}") for number in range(999)]
    )
    page = open_page(width=NARROW)
    log_in(page, live_server)
    page.goto(f"{live_server.url}/instances/{instance.pk}/users/")
    expect(page.locator("#rows tbody tr")).to_have_count(PAGE_SIZE_DEFAULT)
    assert_nothing_scrolls_sideways(page)
    picture(page, f"users-1000-light-{NARROW}")
    page.get_by_role("link", name="Next").click()
    expect(page.locator("#rows tbody tr").first).to_contain_text("service-049")
    page.get_by_label("Filter users").fill("service-77")
    expect(page.locator("#rows tbody tr")).to_have_count(10)
    for section in ("access", "quotas"):
        page.goto(f"{live_server.url}/instances/{instance.pk}/{section}/")
        offered = page.locator("#user-names option")
        expect(offered).to_have_count(USERS_OFFERED_MAX)
        assert_nothing_scrolls_sideways(page)
        assert objections(page) == [], section
        page.get_by_label("User", exact=True).or_(page.get_by_label("User name")).first.press_sequentially("ice-998")
        expect(offered).to_have_count(1)
        expect(offered.first).to_have_attribute("value", "service-998")
        assert len(page.content()) < PAGE_BYTES_MAX
