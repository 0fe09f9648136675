"""Sign-in by a passkey alone: accepted and refused keys, and the limit of attempts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from allauth.account.internal.stagekit import LOGIN_SESSION_KEY
from django.core.cache import cache
from django.test import Client
from django.urls import reverse

from tenants import limits
from tenants.models import AuditEntry, Session, Tenant, User
from tests.testkit.api_cases import PASSWORD, make_member
from tests.testkit.factors import give_password, is_signed_in
from tests.testkit.passkeys import SoftPasskey

pytestmark = pytest.mark.django_db
HOST = {"Host": "localhost"}
AJAX = {"X-Requested-With": "XMLHttpRequest"}
LOGIN = "/accounts/2fa/webauthn/login/"


@pytest.fixture(autouse=True)
def _fresh_cache() -> Iterator[None]:
    cache.clear()
    yield
    cache.clear()


@pytest.fixture
def user() -> User:
    return make_member().user


@pytest.fixture
def passkey(user: User) -> SoftPasskey:
    return added(user)


def added(user: User) -> SoftPasskey:
    """A passkey that the person has added."""
    made = SoftPasskey("http://localhost", user.pk.encode())
    browser = Client(headers=HOST)
    give_password(browser, user, PASSWORD)
    page = browser.get(reverse("mfa_add_webauthn"))
    options = page.context["js_data"]["creation_options"]
    assert browser.post(reverse("mfa_add_webauthn"), {"credential": made.create(options)}).status_code == 302
    return made


def ask(browser: Client) -> dict[str, Any]:
    answer = browser.get(LOGIN, headers=AJAX)
    assert answer["Cache-Control"] == "no-store"
    options: dict[str, Any] = answer.json()["request_options"]
    return options


def test_a_passkey_opens_without_a_password_and_counts_as_a_second_factor(user: User, passkey: SoftPasskey) -> None:
    Tenant.objects.update(requires_second_factor=True)
    browser = Client(headers=HOST)
    options = ask(browser)
    assert options["publicKey"]["userVerification"] == "required"
    assert not options["publicKey"].get("allowCredentials")
    answer = browser.post(LOGIN, {"credential": passkey.get(options, user.pk), "next": "/security/"})
    assert (answer.status_code, answer["Location"]) == (302, "/security/")
    assert is_signed_in(browser)
    assert browser.get("/members/").status_code == 200
    assert browser.get("/tokens/").status_code == 200


def test_a_device_is_asked_for_a_resident_and_verified_passkey_where_it_can(user: User) -> None:
    browser = Client(headers=HOST)
    give_password(browser, user, PASSWORD)
    options = browser.get(reverse("mfa_add_webauthn")).context["js_data"]["creation_options"]["publicKey"]
    assert options["authenticatorSelection"]["residentKey"] == "preferred"
    assert options["authenticatorSelection"]["userVerification"] == "preferred"


def test_a_device_that_has_not_checked_its_owner_does_not_open(user: User, passkey: SoftPasskey) -> None:
    browser = Client(headers=HOST)
    browser.post(LOGIN, {"credential": passkey.get(ask(browser), user.pk, is_verified=False)})
    assert not is_signed_in(browser)


def test_a_device_does_not_open_unchecked_by_the_question_of_another_page(user: User, passkey: SoftPasskey) -> None:
    thief = make_member().user
    added(thief)
    browser = Client(headers=HOST)
    give_password(browser, thief, PASSWORD)
    options = browser.get(reverse("mfa_authenticate")).context["js_data"]["request_options"]
    assert options["publicKey"]["userVerification"] == "preferred"
    session = browser.session
    session[LOGIN_SESSION_KEY]["initiated_at"] -= 3_600  # the sign-in was left, and is over
    session.save()
    answer = browser.post(LOGIN, {"credential": passkey.get(options, user.pk, is_verified=False)}, follow=True)
    assert not is_signed_in(browser)
    assert "This passkey did not work" in answer.content.decode()


def test_another_key_another_person_and_another_origin_do_not_open(user: User, passkey: SoftPasskey) -> None:
    forger = SoftPasskey("http://localhost", passkey.credential_id)
    elsewhere = SoftPasskey("https://evil.example", passkey.credential_id)
    elsewhere.key = passkey.key
    stranger = make_member().user
    for wrong, handle in ((forger, user.pk), (elsewhere, user.pk), (passkey, stranger.pk), (passkey, "usr-nobody")):
        browser = Client(headers=HOST)
        answer = browser.post(LOGIN, {"credential": wrong.get(ask(browser), handle)}, follow=True)
        assert not is_signed_in(browser)
        assert "This passkey did not work" in answer.content.decode()


def test_an_answer_opens_once(user: User, passkey: SoftPasskey) -> None:
    browser, other = Client(headers=HOST), Client(headers=HOST)
    answer = passkey.get(ask(browser), user.pk)
    browser.post(LOGIN, {"credential": answer})
    assert is_signed_in(browser)
    ask(other)
    other.post(LOGIN, {"credential": answer})
    assert not is_signed_in(other)


def test_a_user_who_may_not_enter_does_not_enter_by_a_passkey(user: User, passkey: SoftPasskey, settings: Any) -> None:
    settings.MAIL_IS_CONFIGURED = True
    for changes in ({"is_active": False}, {"enters_verified_only": True, "email_verified_at": None}):
        User.objects.filter(pk=user.pk).update(is_active=True, enters_verified_only=False)
        User.objects.filter(pk=user.pk).update(**changes)
        browser = Client(headers=HOST)
        browser.post(LOGIN, {"credential": passkey.get(ask(browser), user.pk)})
        assert not is_signed_in(browser)


@pytest.mark.parametrize(
    "junk", ["", "0", "[]", "{", '{"id": 1}', '{"response": {"userHandle": 1}}', '{"response": []}', '{"a":' * 9_000]
)
def test_junk_is_refused_and_leads_back_to_the_login(junk: str) -> None:
    browser = Client(headers=HOST)
    ask(browser)
    answer = browser.post(LOGIN, {"credential": junk})
    assert (answer.status_code, answer["Location"]) == (302, reverse("account_login"))


def test_tries_are_counted_by_address_and_keep_nobody_out_elsewhere(user: User, passkey: SoftPasskey) -> None:
    attacker = Client(headers=HOST, REMOTE_ADDR="192.0.2.66")
    forger = SoftPasskey("http://localhost", passkey.credential_id)
    for _ in range(limits.SIGN_IN_FAILURES_PER_ADDRESS_AND_MINUTE_MAX):
        attacker.post(LOGIN, {"credential": forger.get(ask(attacker), user.pk)})
    refused = attacker.post(LOGIN, {"credential": passkey.get(ask(attacker), user.pk)}, follow=True)
    assert "Too many wrong codes" in refused.content.decode()
    assert not is_signed_in(attacker)
    owner = Client(headers=HOST, REMOTE_ADDR="198.51.100.1")
    owner.post(LOGIN, {"credential": passkey.get(ask(owner), user.pk)})
    assert is_signed_in(owner)


def test_questions_are_counted_as_well_for_each_begins_a_session() -> None:
    asking = Client(headers=HOST, REMOTE_ADDR="192.0.2.77")
    for _ in range(limits.PASSKEY_QUESTIONS_PER_ADDRESS_AND_MINUTE_MAX):
        assert asking.get(LOGIN, headers=AJAX).status_code == 200
    before = Session.objects.count()
    assert Client(headers=HOST, REMOTE_ADDR="192.0.2.77").get(LOGIN, headers=AJAX).status_code == 429
    assert Session.objects.count() == before
    assert Client(headers=HOST, REMOTE_ADDR="192.0.2.78").get(LOGIN, headers=AJAX).status_code == 200


def test_the_login_page_offers_it_and_leaves_no_session_behind() -> None:
    before = Session.objects.count()
    shown = Client(headers=HOST).get(reverse("account_login")).content.decode()
    assert f'data-options-url="{LOGIN}"' in shown
    assert Session.objects.count() == before


def test_a_look_at_the_address_leads_to_the_login() -> None:
    assert Client().get(LOGIN)["Location"] == reverse("account_login")


def test_a_form_from_another_site_is_refused(user: User, passkey: SoftPasskey) -> None:
    browser = Client(headers=HOST, enforce_csrf_checks=True)
    assert browser.post(LOGIN, {"credential": passkey.get(ask(browser), user.pk)}).status_code == 403
    assert not is_signed_in(browser)


def test_the_address_of_a_sign_in_is_audited(user: User, passkey: SoftPasskey) -> None:
    browser = Client(headers={**HOST, "User-Agent": "Firefox"}, REMOTE_ADDR="198.51.100.99")
    browser.post(LOGIN, {"credential": passkey.get(ask(browser), user.pk)})
    assert AuditEntry.objects.filter(target_id=user.pk, ip="198.51.100.99").exists()
