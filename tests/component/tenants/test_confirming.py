"""Actions that need a confirmation in an open session: tokens, owners, deletion, and the tenant's rules for members."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.core.cache import cache
from django.test import Client
from django.urls import reverse

from tenants.choices import Role
from tenants.models import ApiToken, AuditEntry, Invitation, Member
from tenants.sessions import CONFIRMED_AT_S
from tests.testkit.api_cases import PASSWORD, Api, make_member, make_tenant, owner_of
from tests.testkit.factors import give_password

pytestmark = pytest.mark.django_db
TOKEN = {"name": "deploy", "scopes": ["topics:read"], "days": "30", "once": "x"}
CONFIRM = "/accounts/reauthenticate/"


@pytest.fixture(autouse=True)
def _fresh_cache() -> Iterator[None]:
    cache.clear()
    yield
    cache.clear()


@pytest.fixture
def owner() -> Member:
    return owner_of(make_tenant())


@pytest.fixture
def browser(owner: Member) -> Client:
    """A signed-in browser whose session is old enough to need a confirmation."""
    client = Client()
    give_password(client, owner.user, PASSWORD)
    forget(client)
    return client


def forget(client: Client) -> None:
    session = client.session
    session[CONFIRMED_AT_S] = 1
    session.save()


def led_to_confirm(answer: Any) -> bool:
    return bool(answer.status_code == 302 and answer.headers["Location"].startswith(CONFIRM))


def test_a_token_is_made_after_confirming(owner: Member, browser: Client) -> None:
    asked = browser.post("/tokens/", TOKEN, headers={"Referer": "http://testserver/tokens/"})
    assert led_to_confirm(asked)
    assert not ApiToken.objects.exists()
    page = browser.get(asked.headers["Location"])
    assert "Nothing was changed so far" in page.content.decode()
    wrong = browser.post(asked.headers["Location"], {"password": "a guess"})
    assert wrong.status_code == 200
    assert led_to_confirm(browser.post("/tokens/", TOKEN))
    done = browser.post(asked.headers["Location"], {"password": PASSWORD})
    assert done.headers["Location"] == "/tokens/"
    assert browser.post("/tokens/", TOKEN).status_code == 200
    assert ApiToken.objects.count() == 1
    row = AuditEntry.objects.get(action="account.confirmed")
    assert (row.actor_id, row.after["by"]) == (owner.user_id, "password")


def test_the_page_says_so_before_anything_is_typed(browser: Client) -> None:
    assert "confirm first that it is you" in browser.get("/tokens/").content.decode()


def test_the_api_with_a_session_says_what_to_do(owner: Member, browser: Client) -> None:
    answer = browser.post("/api/v1/tokens", {"name": "x", "scopes": ["topics:read"]}, content_type="application/json")
    assert (answer.status_code, answer.json()["code"]) == (403, "confirmation_needed")
    assert not ApiToken.objects.exists()


def test_a_token_is_asked_for_nothing(owner: Member) -> None:
    assert Api.of(owner).post("/tokens", {"name": "x", "scopes": ["topics:read"]}).status_code == 201


def test_owners_are_made_and_unmade_after_confirming(owner: Member, browser: Client) -> None:
    other = make_member(Role.ADMIN, owner.tenant)
    role = reverse("page-member-role", args=[other.pk])
    assert led_to_confirm(browser.post(role, {"role": Role.OWNER, "confirmed": "yes"}))
    other.refresh_from_db()
    assert other.role == Role.ADMIN
    assert led_to_confirm(browser.post("/members/", {"email": "new@example.com", "role": Role.OWNER}))
    assert not Invitation.objects.exists()
    second = make_member(Role.OWNER, owner.tenant)
    assert led_to_confirm(
        browser.post(reverse("page-member-role", args=[second.pk]), {"role": Role.VIEWER, "confirmed": "yes"})
    )
    answer = {"confirmed": "yes", "question_back": "/members/"}
    remove = browser.post(reverse("page-member-remove", args=[second.pk]), answer)
    assert led_to_confirm(remove)
    assert remove["Location"].endswith("?next=%2Fmembers%2F"), "an act has no page of its own to come back to"
    answer["question_back"] = "https://evil.example/"
    assert "evil" not in browser.post(reverse("page-member-remove", args=[second.pk]), answer)["Location"]
    second.refresh_from_db()
    assert (second.role, second.removed_at) == (Role.OWNER, None)


def test_other_roles_need_no_confirming(owner: Member, browser: Client) -> None:
    other = make_member(Role.ADMIN, owner.tenant)
    browser.post(reverse("page-member-role", args=[other.pk]), {"role": Role.VIEWER, "confirmed": "yes"})
    other.refresh_from_db()
    assert other.role == Role.VIEWER
    assert browser.post("/members/", {"email": "new@example.com", "role": Role.VIEWER}).status_code == 200


def test_wrong_passwords_are_counted_here_as_at_the_sign_in(owner: Member, browser: Client) -> None:
    for _ in range(6):
        answer = browser.post(CONFIRM, {"password": "a guess"})
    assert "Too many failed login attempts" in answer.content.decode()
    assert led_to_confirm(browser.post("/tokens/", TOKEN))


def test_a_sign_in_counts_for_some_minutes(owner: Member) -> None:
    client = Client()
    give_password(client, owner.user, PASSWORD)
    assert client.post("/tokens/", TOKEN).status_code == 200


def test_every_change_of_a_factor_asks(browser: Client) -> None:
    for name in ("mfa_activate_totp", "mfa_add_webauthn"):
        assert led_to_confirm(browser.get(reverse(name)))
        assert led_to_confirm(browser.post(reverse(name), {"code": "000000", "credential": "{}"}))
    assert "account_reauthentication_state" not in browser.session, "a request kept in a session keeps its cookies"
