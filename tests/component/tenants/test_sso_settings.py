"""Configuration of single sign-on over REST and on its pages."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import pytest
from django.test import Client

from tenants.choices import Role
from tenants.limits import SSO_DOMAINS_MAX, SSO_STARTS_PER_ADDRESS_AND_MINUTE_MAX
from tenants.models import AuditEntry, SsoConfiguration, Tenant
from tests.testkit.api_cases import PASSWORD, Api, assert_problem, make_member, make_tenant, owner_of
from tests.testkit.oidc import CLIENT_SECRET, Provider
from tests.testkit.sso import body_of, process, prove_all, provider, tenant

__all__ = ["process", "provider", "tenant"]
pytestmark = pytest.mark.django_db
ROLES = [{"value": "kafka", "role": "developer"}, {"value": "kafka-admins", "role": "admin"}]


def test_it_is_set_read_and_removed_over_rest_and_its_secret_is_never_shown(provider: Provider) -> None:
    api = Api.of(make_member(Role.ADMIN))
    assert_problem(api.get("/sso"), 404)
    dry = api.put("/sso?dry_run=true", body_of(provider))
    assert dry.status_code == 200
    assert not SsoConfiguration.objects.exists()
    unproved = assert_problem(api.put("/sso", body_of(provider, required=True)), 400)
    assert unproved["errors"][0]["pointer"] == "/required", "nobody could sign in"
    assert api.put("/sso", body_of(provider)).status_code == 200
    prove_all(Tenant.objects.get())
    made = api.put("/sso", body_of(provider, role_claim="groups", roles=ROLES, required=True))
    assert made.status_code == 200, made.content
    assert made.json() == api.get("/sso").json()
    assert made.json()["roles"] == ROLES
    stored = SsoConfiguration.objects.get()
    rows = AuditEntry.objects.filter(action="sso.set")
    assert (
        CLIENT_SECRET not in f"{made.content!r}{stored.client_secret_sealed}{[(row.before, row.after) for row in rows]}"
    )
    kept = body_of(provider)
    del kept["client_secret"]
    assert api.put("/sso", kept).status_code == 200
    assert Tenant.objects.get(pk=stored.tenant_id).requires_sso is False
    # The stored secret is never sent to an address that somebody else has put in place of the first.
    changed = assert_problem(api.put("/sso", kept | {"client_id": "another"}), 400)
    assert changed["errors"][0]["pointer"] == "/client_secret"
    assert api.delete("/sso").status_code == 204
    assert [row.action for row in AuditEntry.objects.filter(action__startswith="sso.").order_by("time")] == [
        "sso.set", "sso.set", "sso.set", "sso.removed",
    ]  # fmt: skip
    assert_problem(api.delete("/sso"), 404)


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"domains": []}, "/domains"),
        ({"domains": ["example"]}, "/domains"),
        ({"domains": [f"d{n}.example.com" for n in range(SSO_DOMAINS_MAX + 1)]}, "/domains"),
        ({"domains": ["a@example.com"]}, "/domains"),
        ({"role_claim": "groups"}, "/roles"),
        ({"roles": ROLES}, "/roles"),
        ({"role_claim": "groups", "roles": [{"value": "x", "role": "owner"}]}, "/roles/0/role"),
        ({"client_id": "x" * 10_000}, "/client_id"),
        ({"issuer": "https://127.0.0.1:1/ x"}, "/issuer"),
    ],
)
def test_wrong_values_are_refused_at_their_place(provider: Provider, fields: dict[str, Any], pointer: str) -> None:
    answer = assert_problem(Api.of(make_member()).put("/sso", body_of(provider, **fields)), 400)
    assert answer["errors"][0]["pointer"].startswith(pointer), answer


def test_neither_developers_nor_narrow_tokens_nor_strangers_set_it(provider: Provider, tenant: Tenant) -> None:
    developer = Api.of(make_member(Role.DEVELOPER, tenant))
    assert_problem(developer.put("/sso", body_of(provider)), 403)
    assert_problem(developer.delete("/sso"), 403)
    narrow = Api.of(owner_of(tenant), ["members:read", "members:write"])
    assert_problem(narrow.put("/sso", body_of(provider)), 403, "scope_too_wide")
    assert_problem(narrow.delete("/sso"), 403, "scope_too_wide")
    stranger = Api.of(make_member())
    assert_problem(stranger.get("/sso"), 404)
    assert_problem(stranger.delete("/sso"), 404)
    assert SsoConfiguration.objects.get().tenant_id == tenant.pk


# --- pages ------------------------------------------------------------------------------------------------------------


def test_it_is_set_and_ended_on_its_page(provider: Provider) -> None:
    tenant = make_tenant()
    browser = Client()
    browser.post("/accounts/login/", {"login": owner_of(tenant).user.email, "password": PASSWORD})
    assert "Not set up" in browser.get("/settings/sso/").content.decode()
    form = body_of(provider) | {"domains": "example.com", "role_claim": "groups", "roles": "kafka = developer"}
    wrong = browser.post("/settings/sso/", form | {"roles": "kafka: developer"})
    assert wrong.status_code == 422
    assert CLIENT_SECRET not in wrong.content.decode()
    assert browser.post("/settings/sso/", form).status_code == 302
    assert SsoConfiguration.objects.get().roles == {"kafka": "developer"}
    assert SsoConfiguration.objects.get().assume_email_verified is False
    page = browser.get("/settings/sso/").content.decode()
    assert CLIENT_SECRET not in page
    assert f"/sso/{tenant.slug}/callback/" in page
    assert "End single sign-on?" in browser.post("/settings/sso/remove/").content.decode()
    assert browser.post("/settings/sso/remove/", {"confirmed": "1"}).status_code == 302
    assert not SsoConfiguration.objects.exists()
    viewer = Client()
    viewer.force_login(make_member(Role.VIEWER, tenant).user)
    assert viewer.post("/settings/sso/remove/", {"confirmed": "1"}).status_code == 403


def test_the_login_page_leads_to_the_tenants_provider(provider: Provider, tenant: Tenant) -> None:
    browser = Client()
    assert 'href="/sso/"' in browser.get("/accounts/login/").content.decode()
    found = browser.get("/sso/", {"tenant": tenant.slug}).content.decode()
    assert f"/sso/{tenant.slug}/" in found
    without = make_tenant("Without")
    for slug in ("unknown", without.slug, "a\u0000b", "x" * 5_000):
        assert "No tenant of this short name" in browser.get("/sso/", {"tenant": slug}).content.decode()
    assert browser.get(f"/sso/{without.slug}/").status_code == 404
    assert browser.get(f"/sso/{without.slug}/callback/?{urlencode({'state': 'x'})}").status_code == 404
    answers = [
        browser.get("/sso/", {"tenant": "guess"}).status_code for _ in range(SSO_STARTS_PER_ADDRESS_AND_MINUTE_MAX)
    ]
    assert answers[-1] == 429, "short names are not guessed"
