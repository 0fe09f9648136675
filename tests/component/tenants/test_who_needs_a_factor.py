"""Requirement of a second factor: for members if an owner asks for it, and for operators beyond loopback."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.core.cache import cache
from django.test import Client
from django.urls import reverse

from config.environment import flag
from config.public_url import is_loopback
from tenants import services
from tenants.choices import Role
from tenants.models import AuditEntry, Member, Tenant, User
from tests.testkit.api_cases import PASSWORD, Api, make_member, make_tenant, owner_of
from tests.testkit.factors import current_code, give_code, give_password, is_signed_in, set_up_app

pytestmark = pytest.mark.django_db
SECURITY = "/security/"


@pytest.fixture(autouse=True)
def _fresh_cache() -> Iterator[None]:
    cache.clear()
    yield
    cache.clear()


@pytest.fixture
def operator() -> User:
    return services.create_operator(email="ops@example.com", password=PASSWORD)[0]


def enter(user: User, secret: str | None = None) -> Client:
    """Returns a browser that has signed in at the console."""
    client = Client()
    give_password(client, user, PASSWORD)
    if secret is not None:
        give_code(client, current_code(user, secret))
    assert is_signed_in(client)
    return client


def enter_panel(user: User) -> tuple[Client, Any]:
    client = Client()
    return client, client.post(reverse("admin:login"), {"username": user.email, "password": PASSWORD})


def asking(tenant: Tenant) -> None:
    tenant.requires_second_factor = True
    tenant.save()


def test_an_owner_asks_members_for_a_factor(settings: Any) -> None:
    owner = make_member()
    secret = set_up_app(owner.user)
    browser = enter(owner.user, secret)
    browser.post(reverse("page-tenant-factor"), {"wanted": "on", "in_tenant": owner.tenant_id})
    owner.tenant.refresh_from_db()
    assert owner.tenant.requires_second_factor
    row = AuditEntry.objects.get(action="tenant.second_factor_changed", tenant=owner.tenant)
    assert (row.before, row.after) == ({"second_factor_required": False}, {"second_factor_required": True})
    browser.post(reverse("page-tenant-factor"), {"in_tenant": owner.tenant_id})
    owner.tenant.refresh_from_db()
    assert not owner.tenant.requires_second_factor


def test_an_owner_without_a_factor_must_set_up_their_own_first() -> None:
    owner = make_member()
    page = enter(owner.user).post(reverse("page-tenant-factor"), {"wanted": "on"}, follow=True)
    assert "Set up a second factor of your own first." in page.content.decode()
    owner.tenant.refresh_from_db()
    assert not owner.tenant.requires_second_factor


def test_nobody_but_an_owner_asks() -> None:
    tenant = make_tenant()
    admin = make_member(Role.ADMIN, tenant)
    secret = set_up_app(admin.user)
    enter(admin.user, secret).post(reverse("page-tenant-factor"), {"wanted": "on"})
    tenant.refresh_from_db()
    assert not tenant.requires_second_factor


@pytest.mark.parametrize("path", ["/", "/members/", "/tokens/", "/settings/", "/instances/"])
def test_a_member_without_one_is_led_to_set_one_up_before_anything_else(path: str) -> None:
    tenant = make_tenant()
    asking(tenant)
    browser = enter(make_member(Role.DEVELOPER, tenant).user)
    answer = browser.get(path, follow=True)
    assert answer.redirect_chain[-1][0] == SECURITY
    assert "asks its members for a second factor" in answer.content.decode()
    assert browser.get(reverse("mfa_activate_totp")).status_code == 200
    refusal = browser.get("/api/v1/members")
    assert (refusal.status_code, refusal.json()["code"]) == (403, "second_factor_needed")


def test_a_part_of_a_page_leads_the_whole_page_there() -> None:
    tenant = make_tenant()
    asking(tenant)
    part = enter(owner_of(tenant).user).get("/audit/", headers={"HX-Request": "true"})
    assert part.headers["HX-Redirect"] == SECURITY


def test_a_member_with_one_works_as_before_and_so_do_tokens_and_other_tenants() -> None:
    tenant = make_tenant()
    member = make_member(Role.DEVELOPER, tenant)
    api = Api.of(member)
    asking(tenant)
    assert api.get("/instances").status_code == 200
    elsewhere = make_tenant()
    Member.objects.create(tenant=elsewhere, user=member.user, role=Role.VIEWER)
    browser = enter(member.user)
    browser.post(reverse("page-choose-tenant"), {"tenant": elsewhere.pk})
    with_factor = enter(member.user, set_up_app(member.user))
    assert with_factor.get("/members/").status_code == 200


def test_an_owner_sees_which_members_have_no_factor_yet() -> None:
    tenant = make_tenant()
    asking(tenant)
    owner = owner_of(tenant)
    make_member(Role.VIEWER, tenant)
    page = enter(owner.user, set_up_app(owner.user)).get("/members/").content.decode()
    assert page.count("no second factor yet") == 1


def test_the_panel_asks_for_a_code_after_the_password(operator: User) -> None:
    secret = set_up_app(operator)
    panel, answer = enter_panel(operator)
    assert answer.headers["Location"] == reverse("mfa_authenticate")
    assert panel.get(reverse("admin:index")).status_code == 302
    assert give_code(panel, current_code(operator, secret)).headers["Location"] == reverse("admin:index")
    assert panel.get(reverse("admin:index")).status_code == 200


def test_beyond_loopback_an_operator_sets_one_up_before_anything_else(settings: Any, operator: User) -> None:
    settings.OPERATORS_NEED_SECOND_FACTOR = True
    panel, answer = enter_panel(operator)
    assert answer.headers["Location"] == reverse("admin:index")
    for path in (reverse("admin:index"), reverse("admin:tenants_tenant_changelist"), "/operator/password_change/"):
        assert panel.get(path).headers["Location"] == SECURITY
    assert "Operators need a second factor" in panel.get(SECURITY).content.decode()
    assert panel.get("/api/v1/tenants").status_code == 403
    secret = set_up_app(operator)
    again, _answer = enter_panel(operator)
    give_code(again, current_code(operator, secret))
    assert again.get(reverse("admin:index")).status_code == 200


def test_the_default_is_off_for_a_demo_on_ones_own_machine_and_on_beyond(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_OPERATORS_NEED_SECOND_FACTOR", raising=False)
    for url, needs in (("http://127.0.0.1:8000", False), ("https://console.example.com", True)):
        assert flag("PENSTOCK_OPERATORS_NEED_SECOND_FACTOR", default=not is_loopback(url)) is needs


# --- by REST ----------------------------------------------------------------------------------------------------------


def test_an_owner_requires_factors_by_rest_and_sees_the_members_it_locks_out() -> None:
    owner = make_member()
    without = [make_member(Role.VIEWER, owner.tenant).user.email, make_member(Role.ADMIN, owner.tenant).user.email]
    place, api = f"/tenants/{owner.tenant_id}", Api.of(owner)
    set_up_app(owner.user)
    before = api.get(place).json()
    assert before["second_factor_required"] is False
    assert before["members_without_second_factor"] == sorted(without)
    asked = api.patch(f"{place}?dry_run=true", {"second_factor_required": True}).json()
    assert (asked["second_factor_required"], asked["members_without_second_factor"]) == (True, sorted(without))
    owner.tenant.refresh_from_db()
    assert not owner.tenant.requires_second_factor
    assert api.patch(place, {"second_factor_required": True}).json()["second_factor_required"] is True
    rows = AuditEntry.objects.filter(action="tenant.second_factor_changed", tenant=owner.tenant)
    assert [(row.before, row.after) for row in rows] == [
        ({"second_factor_required": False}, {"second_factor_required": True})
    ]
    assert api.patch(place, {"second_factor_required": True}).status_code == 200
    assert rows.all().count() == 1
    assert api.patch(place, {"second_factor_required": False}).json()["second_factor_required"] is False
    assert rows.all().count() == 2


def test_an_owner_without_a_factor_cannot_require_it_by_rest() -> None:
    owner = make_member()
    refusal = Api.of(owner).patch(f"/tenants/{owner.tenant_id}", {"second_factor_required": True})
    assert (refusal.status_code, refusal.json()["code"]) == (409, "no_second_factor")
    owner.tenant.refresh_from_db()
    assert not owner.tenant.requires_second_factor


def test_an_admins_token_asks_nobody_and_sees_no_names() -> None:
    tenant = make_tenant()
    admin = make_member(Role.ADMIN, tenant)
    set_up_app(admin.user)
    api = Api.of(admin)
    refusal = api.patch(f"/tenants/{tenant.pk}", {"second_factor_required": True})
    assert refusal.status_code == 403
    assert api.get(f"/tenants/{tenant.pk}").json()["members_without_second_factor"] is None
    assert not AuditEntry.objects.filter(action="tenant.second_factor_changed").exists()


def test_another_tenants_requirement_is_not_found() -> None:
    owner, other = make_member(), make_member()
    set_up_app(owner.user)
    assert Api.of(owner).patch(f"/tenants/{other.tenant_id}", {"second_factor_required": True}).status_code == 404


@pytest.mark.parametrize("wrong", ["yes", 1, None, [], {}])
def test_a_requirement_is_true_or_false(wrong: object) -> None:
    owner = make_member()
    set_up_app(owner.user)
    assert Api.of(owner).patch(f"/tenants/{owner.tenant_id}", {"second_factor_required": wrong}).status_code == 400


def test_the_page_says_before_whom_it_stops() -> None:
    owner = make_member()
    member = make_member(Role.VIEWER, owner.tenant).user
    shown = enter(owner.user, set_up_app(owner.user)).get("/security/").content.decode()
    assert "Would be stopped so, because they have none yet:" in shown
    assert member.email in shown
    assert "Would be stopped so" not in enter(member).get("/security/").content.decode()
