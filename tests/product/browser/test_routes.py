"""Routes in a browser: the list, a new one, its certificate and code, and its deletion."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from instances import interfaces as instance_interfaces
from instances.models import Instance, Operation, Route
from tests.component.console.conftest import *  # noqa: F403  people, instance and brokers that answer from memory
from tests.product.browser.accessibility import objections
from tests.product.browser.conftest import OpenPage
from tests.product.browser.test_pictures import assert_nothing_scrolls_sideways, log_in
from tests.testkit.depth import THEMES
from tests.testkit.fleet import plugged

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

WIDTHS = (1280, 768, 400, 360)
Snap = Callable[[Page, str], Path]


@pytest.fixture(autouse=True)
def beyond_loopback() -> Iterator[None]:
    """Makes a plaintext route need a confirmation."""
    with plugged(instance_interfaces.exposure, lambda: True):
        yield


@pytest.fixture
def several(instance: Instance) -> Instance:
    """Routes of each kind, with long lists and names."""
    first = instance.routes.get()
    first.endpoints = instance.endpoints
    first.save()
    Route.objects.create(
        instance=instance, name="office", security="sasl_tls", connections_max=500, advertised_host="kafka.example.com",
        allow_list=["192.0.2.0/24", "2001:db8::/32"], proxies=["198.51.100.7"],
        endpoints={str(number): f"kafka.example.com:1910{number}" for number in (1, 2, 3)},
    )  # fmt: skip
    Route.objects.create(
        instance=instance, name="n" * 40, security="tls", endpoints={"1": f"{'very-long-name.' * 6}example.com:19201"},
        allow_list=[f"10.{number}.0.0/16" for number in range(200)],
    )  # fmt: skip
    Route.objects.create(instance=instance, name="open", security="plaintext")
    return instance


@pytest.mark.parametrize("theme", THEMES)
def test_a_route_is_opened_seen_and_closed(
    theme: str, live_server: LiveServer, several: Instance, open_page: OpenPage, picture: Snap
) -> None:
    page = open_page(theme=theme)
    log_in(page, live_server)
    page.goto(f"{live_server.url}/instances/{several.pk}/")
    page.get_by_role("navigation", name="Sections").get_by_role("link", name="Routes").click()
    expect(page.locator("tr", has_text="office")).to_contain_text("Username and password, encrypted")
    expect(page.get_by_role("link", name="Download penstock-ca.pem")).to_have_attribute("href", "/api/v1/ca.pem")
    picture(page, f"routes-{theme}-1280")
    assert objections(page) == []
    page.get_by_label("Name", exact=True).fill("inside")
    page.get_by_label("Security", exact=True).select_option("plaintext")
    page.locator("main").get_by_role("button", name="Open route").click()
    expect(page.locator("[aria-invalid=true]")).to_be_focused()
    picture(page, f"routes-refused-{theme}-1280")
    assert objections(page) == []
    page.get_by_label("Open it without security all the same").check()
    page.locator("main").get_by_role("button", name="Open route").click()
    expect(page.locator("h1")).to_have_text("inside")
    expect(page.locator("[data-operation]")).to_contain_text("Request accepted")
    picture(page, f"route-opening-{theme}-1280")
    assert objections(page) == []
    operation = Operation.objects.get(instance=several, type="instance.routes")
    Operation.objects.filter(pk=operation.pk).update(state="succeeded", finished_at=operation.created_at)
    page.wait_for_url(f"{live_server.url}/instances/{several.pk}/routes/")
    page.get_by_role("link", name="inside").click()
    page.get_by_label("More actions").click()
    page.get_by_role("link", name="Delete").click()
    expect(page.locator(".confirm")).to_contain_text("closed within a second")
    picture(page, f"route-delete-{theme}-1280")
    assert objections(page) == []
    page.get_by_label("Type inside to confirm").fill("inside")
    page.get_by_role("button", name="Delete inside").click()
    expect(page.locator("tr", has_text="inside")).to_have_count(0)
    assert not several.routes.filter(name="inside").exists()


def test_pages_of_routes_scroll_sideways_at_no_width(
    live_server: LiveServer, several: Instance, open_page: OpenPage, picture: Snap
) -> None:
    page = open_page()
    log_in(page, live_server)
    pages = {"routes": "", "route": "office/", "route-long": f"{'n' * 40}/", "route-delete": "default/delete/"}
    for name, path in pages.items():
        page.goto(f"{live_server.url}/instances/{several.pk}/routes/{path}")
        assert objections(page) == [], name
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 800})
            picture(page, f"{name}-light-{width}")
            assert_nothing_scrolls_sideways(page)
        page.set_viewport_size({"width": WIDTHS[0], "height": 800})


def test_pages_of_routes_in_chinese(
    live_server: LiveServer, several: Instance, open_page: OpenPage, picture: Snap
) -> None:
    page = open_page(theme="dark")
    log_in(page, live_server)
    page.get_by_role("button", name="中文").click()
    expect(page.locator("html")).to_have_attribute("lang", "zh-Hans")
    for name, path, words in (("routes", "", "开通接入方式"), ("route", "office/", "一秒内生效")):
        page.goto(f"{live_server.url}/instances/{several.pk}/routes/{path}")
        expect(page.locator("main")).to_contain_text(words)
        picture(page, f"{name}-zh-dark-1280")
        assert objections(page) == [], name


def test_the_code_of_an_encrypted_route_comes_with_the_file_it_names(
    live_server: LiveServer, several: Instance, open_page: OpenPage
) -> None:
    page = open_page()
    log_in(page, live_server)
    page.goto(f"{live_server.url}/instances/{several.pk}/routes/office/")
    expect(page.locator("#code-ca")).to_contain_text("-o penstock-ca.pem")
    for language in ("Python", "Java", "Go", "Node", "C#", "kcat", "Shell"):
        page.get_by_role("tab", name=language, exact=True).click()
        expect(page.locator("[role=tabpanel]:visible pre")).to_contain_text("penstock-ca.pem")
    page.locator(".code.once").get_by_role("button", name="Copy").click()
    assert "/api/v1/ca.pem" in page.evaluate("navigator.clipboard.readText()")
