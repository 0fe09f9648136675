"""Single sign-on in a browser: an admin sets the provider up, and a member comes in through it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect
from pytest_django.live_server_helper import LiveServer

from tenants.choices import Role
from tenants.models import DomainProof, Member
from tenants.sso.domains import record_name, record_value
from tests.product.browser.accessibility import objections
from tests.product.browser.conftest import MARK_WHEN_LOADED, act_on_loaded_pages
from tests.testkit.api_cases import PASSWORD, make_tenant, make_user
from tests.testkit.dns_server import NameServer
from tests.testkit.oidc import CLIENT_ID, CLIENT_SECRET, Provider
from tests.testkit.sso import dns, name_server, process, provider

__all__ = ["dns", "name_server", "process", "provider"]
pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def seen(page: Page, picture: Callable[[Page, str], Path], name: str) -> None:
    """Checks a page and takes its picture, wide and as on a phone."""
    assert objections(page) == []
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"), width
        picture(page, f"{name}-{width}")
    page.set_viewport_size({"width": 1280, "height": 800})


@pytest.mark.parametrize(("theme", "locale"), [("light", "en-GB"), ("dark", "zh-CN")])
def test_an_admin_sets_it_up_and_a_member_comes_in(
    theme: str,
    locale: str,
    live_server: LiveServer,
    chromium: Browser,
    provider: Provider,
    dns: NameServer,
    picture: Callable[[Page, str], Path],
) -> None:
    tenant = make_tenant()
    language = "zh-hans" if locale == "zh-CN" else "en"
    for email, role in (("admin@example.com", Role.ADMIN), ("ada@example.com", Role.VIEWER)):
        Member.objects.create(tenant=tenant, user=make_user(email, language=language), role=role)
    context = chromium.new_context(
        ignore_https_errors=True, color_scheme="dark" if theme == "dark" else "light", locale=locale
    )
    context.add_init_script(MARK_WHEN_LOADED)
    page = context.new_page()
    act_on_loaded_pages(page)
    name = f"sso-{theme}"

    page.goto(f"{live_server.url}/accounts/login/?next=/settings/sso/")
    page.fill("input[name=login]", "admin@example.com")
    page.fill("input[name=password]", PASSWORD)
    page.press("input[name=password]", "Enter")
    expect(page.locator("input[name=issuer]")).to_be_visible()
    seen(page, picture, f"{name}-empty")
    page.fill("input[name=issuer]", provider.issuer + "/elsewhere")
    page.fill("input[name=client_id]", CLIENT_ID)
    page.fill("input[name=client_secret]", CLIENT_SECRET)
    page.fill("textarea[name=domains]", "example.com")
    page.fill("input[name=role_claim]", "groups")
    page.fill("textarea[name=roles]", "kafka = developer")
    page.press("input[name=issuer]", "Enter")
    expect(page.locator(".error").first).to_be_visible()
    seen(page, picture, f"{name}-wrong")
    page.fill("input[name=issuer]", provider.issuer)
    page.fill("input[name=client_secret]", CLIENT_SECRET)
    page.press("input[name=issuer]", "Enter")
    expect(page.locator("form[action='/settings/sso/remove/']")).to_be_visible()
    seen(page, picture, f"{name}-set")
    prove = page.locator("form[action='/settings/sso/domains/prove/'] button")
    prove.click()
    expect(page.locator("#domains .warn")).to_be_visible()
    dns.records[record_name("example.com")] = [[record_value(DomainProof.objects.get().challenge)]]
    prove.click()
    expect(page.locator("#domains .warn")).to_have_count(0)
    seen(page, picture, f"{name}-proved")
    context.clear_cookies()

    page.goto(f"{live_server.url}/accounts/login/")
    page.click("a[href='/sso/']")
    page.fill("input[name=tenant]", "unknown")
    page.press("input[name=tenant]", "Enter")
    expect(page.locator("#sso-tenant-error")).to_be_visible()
    seen(page, picture, f"{name}-find")
    page.fill("input[name=tenant]", tenant.slug)
    page.press("input[name=tenant]", "Enter")
    page.click(f"a[href='/sso/{tenant.slug}/']")
    expect(page.locator(f".form-end a[href='/sso/{tenant.slug}/']")).to_be_visible()
    seen(page, picture, f"{name}-refused")
    provider.set(claims={"groups": ["kafka"]})
    page.click(f".form-end a[href='/sso/{tenant.slug}/']")
    expect(page).to_have_url(f"{live_server.url}/instances/")
    assert Member.objects.get(tenant=tenant, user__email="ada@example.com").role == Role.DEVELOPER
    page.goto(f"{live_server.url}/security/")
    seen(page, picture, f"{name}-outside")
    page.click("form[action='/accounts/logout/'] button.main")
    leave = page.locator(f"a[href^='{provider.issuer}/end']")
    expect(leave).to_be_visible()
    seen(page, picture, f"{name}-logged-out")
    leave.click()
    expect(page).to_have_url(f"{live_server.url}/sso/{tenant.slug}/ended/")
    seen(page, picture, f"{name}-ended")
    context.close()
