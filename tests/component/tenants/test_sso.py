"""Single sign-on by OpenID Connect against a real provider process: the way in, and every way that must stay shut."""

from __future__ import annotations

import html
import re
import time
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.core.cache import cache
from django.test import Client
from django.utils import timezone

from tenants import services
from tenants.actors import member_actor
from tenants.choices import Role
from tenants.limits import SSO_CLAIM_VALUES_MAX, SSO_DEADLINE_S
from tenants.models import AuditEntry, Member, Session, SsoIdentity, Tenant, User
from tests.testkit.api_cases import PASSWORD, Api, assert_problem, make_member, make_tenant, make_user, owner_of
from tests.testkit.oidc import CLIENT_ID, Provider
from tests.testkit.sso import (
    assert_refused,
    begin_sign_in,
    body_of,
    configure,
    follow_redirect,
    is_signed_in,
    process,
    provider,
    sign_in,
    tenant,
)

__all__ = ["process", "provider", "tenant"]

pytestmark = pytest.mark.django_db
ROLES = [{"value": "kafka-admins", "role": "admin"}, {"value": "kafka", "role": "developer"}]


def member_named(tenant: Tenant, email: str, role: Role = Role.VIEWER) -> Member:
    return Member.objects.create(tenant=tenant, user=make_user(email), role=role)


# --- the way in -------------------------------------------------------------------------------------------------------


def test_a_member_signs_in_and_is_linked_by_the_verified_address(provider: Provider, tenant: Tenant) -> None:
    member = member_named(tenant, "ada@example.com")
    browser = Client()
    response = follow_redirect(browser, provider, begin_sign_in(browser, tenant, next="/members/"))
    assert (response.status_code, response["Location"]) == (302, "/members/")
    assert browser.session["_auth_user_id"] == member.user_id
    assert SsoIdentity.objects.get().user_id == member.user_id
    assert AuditEntry.objects.filter(tenant=tenant, action="sso.linked").count() == 1
    assert AuditEntry.objects.filter(action="account.signed_in", actor_id=member.user_id).exists()
    # The subject stays linked when the address at the provider changes.
    provider.set(claims={"email": "ada.lovelace@example.com"})
    again = Client()
    sign_in(again, provider, tenant)
    assert again.session["_auth_user_id"] == member.user_id


def test_a_former_member_who_must_confirm_again_gets_the_page_that_asks_for_a_tenant(
    provider: Provider, tenant: Tenant
) -> None:
    member = member_named(tenant, "ada@example.com")
    browser = Client()
    sign_in(browser, provider, tenant)
    Member.objects.filter(pk=member.pk).update(removed_at=timezone.now())
    response = browser.get("/accounts/reauthenticate/?next=/members/", follow=True)
    assert (response.status_code, response.redirect_chain[-1][0]) == (200, "/sso/?again=1&next=%2Fmembers%2F")


def test_the_browser_is_sent_with_pkce_state_and_nonce(provider: Provider, tenant: Tenant) -> None:
    first, second = (parse_qs(urlsplit(begin_sign_in(Client(), tenant)).query) for _ in range(2))
    assert first["code_challenge_method"] == ["S256"]
    assert first["response_type"] == ["code"]
    assert first["redirect_uri"][0].endswith(f"/sso/{tenant.slug}/callback/")
    assert all(first[name] != second[name] for name in ("state", "nonce", "code_challenge"))
    assert "scope=operator" not in begin_sign_in(Client(), tenant, scope="operator", auth_params="nonce=1")
    assert not Session.objects.exists(), "a visitor costs no row"


def test_an_invited_person_gets_an_account_and_joins(provider: Provider, tenant: Tenant) -> None:
    services.invite_member(acting=member_actor(owner_of(tenant)), email="ada@example.com", role="developer")
    browser = Client()
    assert sign_in(browser, provider, tenant).status_code == 302
    member = Member.objects.get(tenant=tenant, user__email="ada@example.com")
    assert (member.role, member.user.name, member.user.has_usable_password()) == ("developer", "Ada", False)
    assert member.user.email_verified_at is None, "the provider's word is not ours"


def test_roles_follow_the_claim_at_each_sign_in(provider: Provider, tenant: Tenant) -> None:
    configure(tenant, provider, role_claim="realm.groups", roles=ROLES)
    for groups, role in (
        ("kafka", "developer"),
        (["kafka", "x", "kafka-admins"], "admin"),
        (["kafka", 7], "developer"),
    ):
        provider.set(claims={"realm": {"groups": groups}})
        assert sign_in(Client(), provider, tenant).status_code == 302
        assert Member.objects.get(tenant=tenant, user__email="ada@example.com").role == role
    assert AuditEntry.objects.filter(tenant=tenant, action="member.role_changed").count() == 2
    provider.set(claims={"realm": {"groups": ["something else"]}})
    browser = Client()
    assert_refused(sign_in(browser, provider, tenant), browser, "no role here")
    refusal = AuditEntry.objects.get(tenant=tenant, action="sso.refused")
    assert refusal.after == {"email": "ada@example.com", "subject": "subject-1", "reason": "no_role"}


@pytest.mark.parametrize(
    "groups", [{"kafka": "kafka"}, 7, None, True, [["kafka"]], ["kafka"] * (SSO_CLAIM_VALUES_MAX + 1), ["g"] * 3_000]
)
def test_a_role_claim_that_is_no_list_of_a_few_texts_gives_no_role(
    provider: Provider, tenant: Tenant, groups: Any
) -> None:
    configure(tenant, provider, role_claim="groups", roles=ROLES)
    provider.set(claims={"groups": groups})
    browser = Client()
    assert_refused(sign_in(browser, provider, tenant), browser, "role")
    assert not User.objects.filter(email="ada@example.com").exists()


# --- tokens of an attacker --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "control",
    [
        {"claims": {"iss": "https://elsewhere.example.com"}},
        {"claims": {"aud": "another client"}},
        {"claims": {"aud": [CLIENT_ID, "another"]}},
        {"claims": {"aud": [CLIENT_ID, "another"], "azp": "another"}},
        {"claims": {"azp": "another"}},
        {"claims": {"exp": 1_700_000_000}},
        {"claims": {"exp": None}},
        {"claims": {"exp": "tomorrow"}},
        {"claims": {"iat": 1_700_000_000}},
        {"claims": {"iat": 4_000_000_000}},
        {"claims": {"nonce": None}},
        {"claims": {"nonce": "of another sign-in"}},
        {"claims": {"nonce": ["x"]}},
        {"claims": {"sub": None}},
        {"claims": {"sub": 7}},
        {"claims": {"sub": "a\u0000b"}},
        {"key": "other"},
        {"algorithm": "none"},
        {"algorithm": "HS256"},
    ],
    ids=str,
)  # fmt: skip
def test_a_token_that_is_not_for_this_sign_in_signs_nobody_in(
    provider: Provider, tenant: Tenant, control: dict[str, Any]
) -> None:
    member_named(tenant, "ada@example.com")
    provider.set(**control)
    browser = Client()
    assert_refused(sign_in(browser, provider, tenant), browser, "not valid for this sign-in")
    assert not SsoIdentity.objects.exists()


def test_an_answer_needs_the_state_of_the_same_browser_and_works_once(provider: Provider, tenant: Tenant) -> None:
    member_named(tenant, "ada@example.com")
    victim, attacker = Client(), Client()
    answer = urlsplit(provider.authorize(begin_sign_in(attacker, tenant)))
    begin_sign_in(victim, tenant)
    at = f"{answer.path}?{answer.query}"
    assert_refused(victim.get(at), victim, "not begun in this browser")
    nobody = Client()
    assert_refused(nobody.get(at), nobody, "not begun in this browser")
    code = parse_qs(answer.query)["code"][0]
    assert_refused(victim.get(answer.path, {"code": code}), victim, "not begun in this browser")
    assert attacker.get(at).status_code == 302
    attacker.logout()
    assert_refused(attacker.get(at), attacker, "not begun in this browser")


def test_a_code_of_another_sign_in_is_refused_by_pkce(provider: Provider, tenant: Tenant) -> None:
    member_named(tenant, "ada@example.com")
    stolen = parse_qs(urlsplit(provider.authorize(begin_sign_in(Client(), tenant))).query)["code"][0]
    browser = Client()
    state = parse_qs(urlsplit(begin_sign_in(browser, tenant)).query)["state"][0]
    response = browser.get(f"/sso/{tenant.slug}/callback/", {"code": stolen, "state": state})
    assert_refused(response, browser, "refused the sign-in")


def test_an_answer_of_one_tenant_is_none_at_another(provider: Provider, tenant: Tenant) -> None:
    other = make_tenant("Other")
    configure(other, provider)
    member_named(other, "ada@example.com")
    browser = Client()
    answer = urlsplit(provider.authorize(begin_sign_in(browser, tenant)))
    assert_refused(browser.get(f"/sso/{other.slug}/callback/?{answer.query}"), browser, "not begun in this browser")


def test_the_providers_error_is_a_page_that_shows_no_text_of_the_url(provider: Provider, tenant: Tenant) -> None:
    provider.set(error="access_denied")
    browser = Client()
    assert_refused(sign_in(browser, provider, tenant), browser, "refused the sign-in: access_denied")
    state = parse_qs(urlsplit(begin_sign_in(browser, tenant)).query)["state"][0]
    response = browser.get(f"/sso/{tenant.slug}/callback/", {"error": "<b>call-this-number", "state": state})
    assert_refused(response, browser, "refused the sign-in: error.")
    assert b"<b>call" not in response.content


def test_the_way_onward_stays_on_this_site(provider: Provider, tenant: Tenant) -> None:
    member_named(tenant, "ada@example.com")
    for onward in ("https://evil.example.com/", "//evil.example.com/", "javascript:alert(1)", "/" + "a" * 5_000):
        browser = Client()
        assert follow_redirect(browser, provider, begin_sign_in(browser, tenant, next=onward))["Location"] == "/"


# --- other people's accounts ------------------------------------------------------------------------------------------


def test_an_account_of_another_tenant_is_not_taken_over(provider: Provider, tenant: Tenant) -> None:
    configure(tenant, provider, role_claim="groups", roles=ROLES)
    stranger = member_named(make_tenant("Other"), "ada@example.com", Role.ADMIN)
    provider.set(claims={"groups": "kafka"})
    browser = Client()
    assert_refused(sign_in(browser, provider, tenant), browser, "no member of this tenant")
    assert Member.objects.filter(user=stranger.user).count() == 1


def test_an_unverified_account_is_not_joined_through_its_address(provider: Provider, tenant: Tenant) -> None:
    make_user("ada@example.com")  # made by anybody who knew the address
    services.invite_member(acting=member_actor(owner_of(tenant)), email="ada@example.com", role="developer")
    browser = Client()
    assert_refused(sign_in(browser, provider, tenant), browser, "by its link first")


@pytest.mark.parametrize("field", ["is_staff", "is_superuser"])
def test_an_operator_is_never_signed_in(provider: Provider, tenant: Tenant, field: str) -> None:
    member = member_named(tenant, "ada@example.com")
    browser, later = Client(), Client()
    sign_in(browser, provider, tenant)
    User.objects.filter(pk=member.user_id).update(**{field: True})
    assert_refused(sign_in(later, provider, tenant), later, "Operators do not")
    assert browser.get("/operator/").status_code == 302
    assert not is_signed_in(browser), "the open session ended as well"


def test_owners_keep_their_own_way_in(provider: Provider, tenant: Tenant) -> None:
    User.objects.filter(pk=owner_of(tenant).user_id).update(email="ada@example.com")
    browser = Client()
    assert_refused(sign_in(browser, provider, tenant), browser, "Owners sign in")


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        ({"email_verified": False}, "verified"),
        ({"email_verified": "true"}, "verified"),
        ({"email_verified": None}, "verified"),
        ({"email": None}, "verified"),
        ({"email": "\u212aada@example.com"}, "verified"),
        ({"email": ["ada@example.com"]}, "verified"),
        ({"email": "ada@example.com.evil.com"}, "domain"),
        ({"email": "ada@example.com@evil.com"}, "domain"),
        ({"email": "ada@sub.example.com"}, "domain"),
    ],
)
def test_an_address_that_is_unverified_or_foreign_signs_nobody_in(
    provider: Provider, tenant: Tenant, claims: dict[str, Any], words: str
) -> None:
    member_named(tenant, "ada@example.com")
    provider.set(claims=claims)
    browser = Client()
    assert_refused(sign_in(browser, provider, tenant), browser, words)


def test_a_missing_email_verified_counts_only_where_the_tenant_says_so(provider: Provider, tenant: Tenant) -> None:
    configure(tenant, provider, assume_email_verified=True)
    member_named(tenant, "ada@example.com")
    for said in (False, "true", 1, []):
        provider.set(claims={"email_verified": said})
        browser = Client()
        assert_refused(sign_in(browser, provider, tenant), browser, "verified")
    provider.set(claims={"email_verified": None})  # left out
    assert sign_in(Client(), provider, tenant).status_code == 302


def test_a_removed_or_disabled_member_stays_out(provider: Provider, tenant: Tenant) -> None:
    configure(tenant, provider, role_claim="groups", roles=ROLES)
    provider.set(claims={"groups": "kafka"})
    open_session, browser = Client(), Client()
    sign_in(open_session, provider, tenant)
    member = Member.objects.get(tenant=tenant, user__email="ada@example.com")
    User.objects.filter(pk=member.user_id).update(is_active=False)
    assert_refused(sign_in(browser, provider, tenant), browser, "disabled")
    User.objects.filter(pk=member.user_id).update(is_active=True)
    services.remove_member(acting=member_actor(owner_of(tenant)), member=member)
    assert not SsoIdentity.objects.exists()
    assert_refused(sign_in(browser, provider, tenant), browser, "no member of this tenant")
    assert open_session.get("/members/").status_code == 403


def test_a_second_identity_with_the_address_of_a_linked_one_is_refused(provider: Provider, tenant: Tenant) -> None:
    member_named(tenant, "ada@example.com")
    sign_in(Client(), provider, tenant)
    provider.set(claims={"sub": "subject-2"})
    browser = Client()
    assert_refused(sign_in(browser, provider, tenant), browser, "Another identity")


# --- a session of single sign-on reaches its tenant alone -------------------------------------------------------------


def test_the_session_reaches_neither_other_tenants_nor_the_account(provider: Provider, tenant: Tenant) -> None:
    member = member_named(tenant, "ada@example.com", Role.ADMIN)
    other = make_tenant("Other")
    Member.objects.create(tenant=other, user=member.user, role=Role.OWNER)
    secret = services.invite_member(
        acting=member_actor(owner_of(make_tenant("Third"))), email="ada@example.com", role="admin"
    )[1]
    browser = Client()
    sign_in(browser, provider, tenant)
    assert browser.get("/members/").status_code == 200
    page = browser.get("/settings/").content.decode()
    assert "Other" not in page
    assert browser.post("/tenant/", {"tenant": other.pk}).status_code == 404
    assert browser.get("/api/v1/me", headers={"Penstock-Tenant": other.pk}).status_code == 403
    assert browser.get(f"/api/v1/tenants/{other.pk}").status_code == 404
    assert [row["id"] for row in browser.get("/api/v1/tenants").json()["items"]] == [tenant.pk]
    assert browser.get("/api/v1/members").json()["items"]
    for path in (
        "/accounts/password/change/", "/accounts/password/set/", "/accounts/2fa/totp/activate/", "/accounts/2fa/",
        "/accounts/2fa/webauthn/add/", "/security/", f"/join/{secret}/", "/operator/", "/accounts/verify/",
    ):  # fmt: skip
        assert browser.get(path).status_code == 403, path
        assert browser.post(path).status_code == 403, path
    for path, body in (("/tenants", {"name": "New"}), ("/invitations:accept", {"secret": secret})):
        answer = browser.post(f"/api/v1{path}", body, content_type="application/json")
        assert_problem(answer, 403, "sso_session")
    browser.post("/settings/", {"part": "found", "name": "New"})
    assert Member.objects.filter(user=member.user, removed_at=None).count() == 2
    # Signed in with a password the same person has the whole account.
    browser.post("/accounts/logout/")
    browser.post("/accounts/login/", {"login": "ada@example.com", "password": PASSWORD})
    assert {row["id"] for row in browser.get("/api/v1/tenants").json()["items"]} == {tenant.pk, other.pk}


def test_the_session_ends_with_its_hours_and_confirms_at_the_provider(
    provider: Provider, tenant: Tenant, settings: Any
) -> None:
    member_named(tenant, "ada@example.com", Role.ADMIN)
    browser = Client()
    sign_in(browser, provider, tenant)
    asked = browser.get("/accounts/reauthenticate/?next=/members/")
    asked = browser.get(asked["Location"])
    asked = browser.get(asked["Location"])
    assert "prompt=login" in asked["Location"]
    assert follow_redirect(browser, provider, asked["Location"])["Location"] == "/members/"
    session = browser.session
    session["sso_until_s"] = int(time.time()) - 1
    session.save()
    assert browser.get("/members/").status_code == 302
    assert not is_signed_in(browser)


def test_a_logout_offers_the_one_at_the_provider(provider: Provider, tenant: Tenant) -> None:
    member_named(tenant, "ada@example.com")
    browser = Client()
    sign_in(browser, provider, tenant)
    page = browser.post("/accounts/logout/", {"next": "/instances/"})
    assert page.status_code == 200
    assert not is_signed_in(browser)
    found = re.search(rf'href="({re.escape(provider.issuer)}/end[^"]*)"', page.content.decode())
    assert found is not None, page.content.decode()
    onward = urlsplit(provider.authorize(html.unescape(found[1])))
    assert onward.path == f"/sso/{tenant.slug}/ended/"
    assert "You are logged out" in browser.get(onward.path).content.decode()
    assert_refused(sign_in(browser, provider, tenant), browser, "login_required")
    # A second click, and a session of a password, are the ordinary logout.
    assert browser.post("/accounts/logout/").status_code == 302
    browser.post("/accounts/login/", {"login": "ada@example.com", "password": PASSWORD})
    assert browser.post("/accounts/logout/").status_code == 302
    assert browser.get("/sso/unknown/ended/").status_code == 404


@pytest.mark.parametrize("fault", ["no_logout", "list"])
def test_a_logout_needs_nothing_of_the_provider(provider: Provider, tenant: Tenant, fault: str) -> None:
    member_named(tenant, "ada@example.com")
    browser = Client()
    sign_in(browser, provider, tenant)
    provider.set(fault=fault)
    cache.clear()
    page = browser.post("/accounts/logout/")
    assert page.status_code == 200
    assert "/end" not in page.content.decode().replace("/ended/", "")
    assert not is_signed_in(browser)


def test_a_password_opens_a_tenant_that_requires_it_for_owners_alone(provider: Provider, tenant: Tenant) -> None:
    configure(tenant, provider, required=True)
    member_named(tenant, "ada@example.com", Role.ADMIN)
    browser = Client()
    browser.post("/accounts/login/", {"login": "ada@example.com", "password": PASSWORD})
    refused = browser.get("/members/")
    assert refused.status_code == 403
    assert f"/sso/{tenant.slug}/" in refused.content.decode()
    assert_problem(browser.get("/api/v1/members"), 403, "sso_needed")
    assert sign_in(browser, provider, tenant).status_code == 302
    assert browser.get("/members/").status_code == 200
    owner = Client()
    owner.force_login(owner_of(tenant).user)
    assert owner.get("/members/").status_code == 200


# --- a provider of an attacker ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["slow", "huge", "redirect", "list"])
def test_a_provider_that_is_slow_huge_or_redirects_is_an_error_in_bounded_time(
    provider: Provider, tenant: Tenant, fault: str
) -> None:
    cache.clear()
    provider.set(fault=fault)
    begun = time.monotonic()
    response = Client().get(f"/sso/{tenant.slug}/")
    assert response.status_code in (403, 502), response.content
    assert time.monotonic() - begun < SSO_DEADLINE_S + 5
    if fault != "list":
        begun = time.monotonic()
        Client().get(f"/sso/{tenant.slug}/")
        assert time.monotonic() - begun < 1, "it is left alone for a while"


@pytest.mark.parametrize(
    "issuer",
    [
        "http://login.example.com",
        "https://127.0.0.1:9/",
        "https://169.254.169.254/",
        "https://[::1]/",
        "https://10.0.0.1",
    ],
)
def test_private_addresses_are_never_asked(provider: Provider, settings: Any, issuer: str) -> None:
    settings.OUTBOUND_PRIVATE_ADDRESSES = ()
    api = Api.of(make_member())
    answer = assert_problem(api.put("/sso", body_of(provider, issuer=issuer)), 400)
    assert answer["errors"][0]["pointer"] == "/issuer"
