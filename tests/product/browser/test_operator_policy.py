"""The operator panel under a policy without inline scripts and styles: `open_page` fails at each violation."""

from __future__ import annotations

import re

import pytest
from django.contrib import admin
from django.urls import reverse
from playwright.sync_api import expect
from pytest_django.live_server_helper import LiveServer

from tenants import services
from tenants.models import User
from tests.product.browser.conftest import OpenPage

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

PASSWORD = "a long enough passphrase"


@pytest.mark.long("config/panel.py", "config/middleware.py", "tenants/conf.py", "tenants/static/operator")
def test_no_page_of_the_panel_has_inline_scripts_or_styles(live_server: LiveServer, open_page: OpenPage) -> None:
    User.objects.create_superuser("operator@example.com", PASSWORD)
    member = services.sign_up(email="ida@example.com", password=PASSWORD, tenant_name="Acme")
    page = open_page()
    answer = page.goto(f"{live_server.url}/operator/")
    assert answer is not None
    assert "unsafe-inline" not in answer.headers["content-security-policy"]
    page.fill("#id_username", "operator@example.com")
    page.fill("#id_password", PASSWORD)
    page.press("#id_password", "Enter")
    expect(page).to_have_url(re.compile("/operator/$"))
    for model, shown in admin.site._registry.items():
        names = f"admin:{model._meta.app_label}_{model._meta.model_name}"
        page.goto(live_server.url + reverse(f"{names}_changelist"))
        assert page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--border-radius')") == "6px"
        if type(shown).has_add_permission is admin.ModelAdmin.has_add_permission:
            page.goto(live_server.url + reverse(f"{names}_add"))
    page.goto(live_server.url + reverse("admin:tenants_tenant_changelist"))
    page.locator("input.action-select").first.check()
    expect(page.locator("#changelist-actions")).to_have_attribute("style", re.compile(r"width: [1-9]\d*"))
    page.goto(live_server.url + reverse("admin:tenants_tenant_change", args=[member.tenant_id]))
    expect(page.locator("#header-inner")).to_be_visible()
