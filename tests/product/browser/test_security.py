"""A person's second factors and sessions: an app, a passkey of a virtual authenticator, recovery codes, sessions."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from allauth.mfa.models import Authenticator
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from tenants.models import Member
from tests.component.console.conftest import *  # noqa: F403  people, instance and brokers that answer from memory
from tests.component.console.conftest import PASSWORD
from tests.product.browser.accessibility import objections
from tests.product.browser.conftest import OpenPage
from tests.product.browser.test_pictures import WIDTHS, assert_nothing_scrolls_sideways, log_in
from tests.testkit.depth import THEMES
from tests.testkit.factors import code_at, current_code, set_up_app

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
Snap = Callable[[Page, str], Path]


def give_password(page: Page, live_server: LiveServer) -> None:
    page.goto(f"{live_server.url}/accounts/login/")
    page.fill("input[name=login]", "ida@halvorsen.example")
    page.fill("input[name=password]", PASSWORD)
    page.get_by_role("button", name="Log in").click()


def examine(page: Page, name: str, picture: Snap) -> None:
    """Checks accessibility and horizontal scrolling, and saves a screenshot."""
    assert objections(page) == [], name
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 800})
        assert_nothing_scrolls_sideways(page)
    page.set_viewport_size({"width": WIDTHS[0], "height": 800})
    picture(page, name)


@pytest.mark.parametrize("theme", THEMES)
def test_an_app_is_set_up_and_asked_for(
    theme: str, live_server: LiveServer, owner: Member, open_page: OpenPage, picture: Snap
) -> None:
    page = open_page(theme=theme)
    log_in(page, live_server)
    page.goto(f"{live_server.url}/security/")
    examine(page, f"security-{theme}", picture)
    page.get_by_role("link", name="Set up").click()
    expect(page.get_by_role("img", name="QR code of the key below")).to_be_visible()
    assert page.locator(".qr img").evaluate("image => image.naturalWidth") > 0, "the policy lets no picture through"
    examine(page, f"app-{theme}", picture)
    secret = page.locator("button.copy").get_attribute("data-copy")
    assert secret is not None
    page.fill("input[name=code]", code_at(secret, time.time()))
    page.get_by_role("button", name="Turn on").click()
    expect(page.locator(".codes li")).to_have_count(10)
    examine(page, f"recovery-codes-{theme}", picture)
    recovery_code = page.locator(".codes li").first.inner_text().strip()
    page.get_by_role("button", name="Copy codes").click()
    page.get_by_role("link", name="Done").click()
    page.wait_for_url(f"{live_server.url}/instances/")
    other = open_page(theme=theme)
    give_password(other, live_server)
    expect(other.get_by_role("heading", name="Second factor")).to_be_visible()
    examine(other, f"second-factor-{theme}", picture)
    other.fill("input[name=code]", recovery_code)
    other.get_by_role("button", name="Log in").click()
    other.wait_for_url(f"{live_server.url}/instances/")


def test_a_passkey_is_added_with_the_browser_and_opens(
    live_server: LiveServer, owner: Member, open_page: OpenPage, picture: Snap
) -> None:
    page = open_page()
    with_authenticator(page)
    log_in(page, live_server)
    page.goto(f"{live_server.url}/accounts/2fa/webauthn/add/")
    examine(page, "passkey", picture)
    page.fill("input[name=name]", "Laptop")
    page.get_by_role("button", name="Add a passkey").click()
    expect(page.locator(".codes li")).to_have_count(10)
    page.get_by_role("button", name="Copy codes").click()
    page.goto(f"{live_server.url}/security/")
    expect(page.get_by_text("Laptop")).to_be_visible()
    page.context.clear_cookies()
    give_password(page, live_server)
    page.get_by_role("button", name="Use a passkey").click()
    page.wait_for_url(f"{live_server.url}/instances/")
    page.goto(f"{live_server.url}/accounts/2fa/webauthn/reauthenticate/?next=/security/")
    examine(page, "confirm-with-a-passkey", picture)
    page.get_by_role("button", name="Use a passkey").click()
    page.wait_for_url(f"{live_server.url}/security/")
    page.get_by_role("link", name="Remove Laptop").click()
    examine(page, "passkey-remove", picture)
    page.get_by_role("button", name="Remove passkey").click()
    page.wait_for_url(f"{live_server.url}/security/")
    assert not Authenticator.objects.exists()


def test_a_passkey_opens_alone(live_server: LiveServer, owner: Member, open_page: OpenPage, picture: Snap) -> None:
    page = open_page()
    with_authenticator(page)
    log_in(page, live_server)
    page.goto(f"{live_server.url}/accounts/2fa/webauthn/add/")
    page.get_by_role("button", name="Add a passkey").click()
    expect(page.locator(".codes li")).to_have_count(10)
    page.get_by_role("button", name="Copy codes").click()
    page.goto(f"{live_server.url}/security/")
    page.context.clear_cookies()
    page.goto(f"{live_server.url}/accounts/login/?next=/members/")
    examine(page, "login-with-a-passkey", picture)
    page.get_by_role("button", name="Sign in with a passkey").click()
    expect(page).to_have_url(f"{live_server.url}/members/")
    other = open_page()
    with_authenticator(other)
    other.goto(f"{live_server.url}/accounts/login/")
    other.get_by_role("button", name="Sign in with a passkey").click()
    expect(other.get_by_role("alert")).to_contain_text("This passkey did not work")


@pytest.mark.long("tenants/second_factor", "tenants/templates/account", "tenants/static/penstock/js/passkeys.js")
def test_a_browser_without_the_passkey_says_so_and_takes_a_code(
    live_server: LiveServer, owner: Member, open_page: OpenPage
) -> None:
    page = open_page()
    with_authenticator(page)
    log_in(page, live_server)
    page.goto(f"{live_server.url}/accounts/2fa/webauthn/add/")
    page.get_by_role("button", name="Add a passkey").click()
    expect(page.locator(".codes li")).to_have_count(10)
    code = page.locator(".codes li").first.inner_text().strip()
    other = open_page()
    with_authenticator(other)
    give_password(other, live_server)
    other.get_by_role("button", name="Use a passkey").click()
    expect(other.get_by_role("alert")).to_contain_text("This passkey did not work")
    other.fill("input[name=code]", code)
    other.get_by_role("button", name="Log in").click()
    other.wait_for_url(f"{live_server.url}/instances/")


def with_authenticator(page: Page) -> None:
    """Adds the browser's virtual authenticator, which needs no button."""
    devtools = page.context.new_cdp_session(page)
    devtools.send("WebAuthn.enable")
    options = {
        "protocol": "ctap2", "transport": "internal", "hasResidentKey": True, "hasUserVerification": True,
        "isUserVerified": True, "automaticPresenceSimulation": True,
    }  # fmt: skip
    devtools.send("WebAuthn.addVirtualAuthenticator", {"options": options})


def test_sessions_are_listed_and_ended_in_chinese_and_in_the_dark(
    live_server: LiveServer, owner: Member, open_page: OpenPage, picture: Snap
) -> None:
    page, other = open_page(theme="dark"), open_page()
    log_in(page, live_server)
    log_in(other, live_server)
    page.get_by_role("button", name="中文").click()
    page.goto(f"{live_server.url}/security/")
    expect(page.locator("html")).to_have_attribute("lang", "zh-Hans")
    expect(page.locator("#sessions tbody tr")).to_have_count(2)
    examine(page, "security-zh-dark", picture)
    page.locator("#sessions tbody tr", has_not_text="当前会话").get_by_role("button").click()
    expect(page.locator("#sessions tbody tr")).to_have_count(1)
    other.goto(f"{live_server.url}/security/")
    expect(other.get_by_role("button", name="Log in")).to_be_visible()


def test_a_member_who_must_have_a_factor_is_led_there_and_confirms_with_it(
    live_server: LiveServer, owner: Member, open_page: OpenPage, picture: Snap
) -> None:
    secret = set_up_app(owner.user)
    page = open_page()
    give_password(page, live_server)
    page.fill("input[name=code]", current_code(owner.user, secret))
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url(f"{live_server.url}/instances/")
    page.goto(f"{live_server.url}/security/")
    page.get_by_role("button", name="Ask members for a second factor").click()
    expect(page.get_by_text("A second factor is needed")).to_be_visible()
    page.goto(f"{live_server.url}/accounts/reauthenticate/?next=/tokens/")
    examine(page, "confirm-with-a-code", picture)
    page.fill("input[name=code]", current_code(owner.user, secret))
    page.get_by_role("button", name="Confirm").click()
    page.wait_for_url(f"{live_server.url}/tokens/")


@pytest.mark.long("tenants/second_factor", "tenants/templates/account", "tenants/static/penstock/js/passkeys.js")
def test_the_password_is_asked_for_where_there_is_no_factor(
    live_server: LiveServer, owner: Member, open_page: OpenPage, picture: Snap
) -> None:
    page = open_page()
    log_in(page, live_server)
    page.goto(f"{live_server.url}/accounts/reauthenticate/?next=/tokens/")
    examine(page, "confirm-with-the-password", picture)
    page.fill("input[name=password]", PASSWORD)
    page.get_by_role("button", name="Confirm").click()
    page.wait_for_url(f"{live_server.url}/tokens/")
