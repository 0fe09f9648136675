"""Second factors: set-up, requirement at every sign-in, limits, recovery, and removal."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from django.contrib import admin
from django.core import signing
from django.core.cache import cache
from django.core.mail import EmailMessage
from django.test import Client
from django.urls import reverse
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tenants import limits, services
from tenants.models import AuditEntry, User
from tenants.services.mailboxes import VERIFICATION_SALT
from tests.testkit.api_cases import PASSWORD, make_member
from tests.testkit.factors import (
    code_at,
    current_code,
    give_code,
    give_password,
    is_signed_in,
    recovery_codes,
    set_up_app,
)
from tests.testkit.passkeys import SoftPasskey

pytestmark = pytest.mark.django_db
TOO_MANY = "Too many wrong codes"


@pytest.fixture(autouse=True)
def _fresh_cache() -> Iterator[None]:
    cache.clear()
    yield
    cache.clear()


@pytest.fixture
def user() -> User:
    return make_member().user


@pytest.fixture
def browser(user: User) -> Client:
    """A browser that has just signed in."""
    client = Client()
    assert give_password(client, user, PASSWORD).status_code == 302
    return client


def actions(user: User) -> list[str]:
    return list(AuditEntry.objects.filter(target_id=user.pk).order_by("time").values_list("action", flat=True))


def options_in(page: Any) -> dict[str, Any]:
    found = re.search(r'<script id="passkey-options" type="application/json">(.*?)</script>', page.content.decode())
    assert found is not None, page.content.decode()
    options: dict[str, Any] = json.loads(found[1])
    return options


def test_an_app_is_set_up_with_a_right_code_and_its_codes_are_shown_once(user: User, browser: Client) -> None:
    page = browser.get(reverse("mfa_activate_totp"))
    secret = page.context["form"].secret
    assert "data:image/svg+xml;base64," in page.content.decode()
    assert page.headers["Cache-Control"] == "no-store"
    assert "This code is wrong" in browser.post(reverse("mfa_activate_totp"), {"code": "000000"}).content.decode()
    assert not Authenticator.objects.exists(), "a wrong code sets nothing up"
    right = code_at(secret, time.time())
    done = browser.post(reverse("mfa_activate_totp"), {"code": right})
    assert done.headers["Location"] == reverse("mfa_view_recovery_codes")
    codes = recovery_codes(user)
    shown = browser.get(done.headers["Location"])
    assert [code in shown.content.decode() for code in codes] == [True] * limits.RECOVERY_CODES
    again = browser.get(done.headers["Location"]).content.decode()
    assert not [code for code in codes if code in again]
    other = Client()
    give_password(other, user, PASSWORD)
    give_code(other, right)
    assert not is_signed_in(other), "the code was used"
    rows = AuditEntry.objects.filter(action="second_factor.added", target_id=user.pk)
    assert sorted(row.after["kind"] for row in rows) == ["recovery_codes", "totp"]


def test_the_pages_speak_the_language_that_the_person_has_chosen(user: User, browser: Client) -> None:
    services.set_preferences(user=user, language="zh-hans")
    page = browser.get(reverse("mfa_activate_totp"))
    assert "设置验证器应用" in page.content.decode()
    assert page.headers["Content-Language"] == "zh-hans"
    assert "Log in" in Client().get(reverse("account_login")).content.decode()


def test_secrets_do_not_stand_in_the_database_as_they_are(user: User) -> None:
    secret = set_up_app(user)
    assert secret not in str(list(Authenticator.objects.values_list("data", flat=True)))


def test_under_another_key_no_code_is_right_and_the_key_before_it_still_reads(user: User, settings: Any) -> None:
    secret = set_up_app(user)
    before, settings.SECRET_KEY = settings.SECRET_KEY, "another one"
    browser = Client()
    give_password(browser, user, PASSWORD)
    for code in (current_code(user, secret), code_at("A" * 32, time.time()), "0" * limits.RECOVERY_CODES):
        assert "This code is wrong" in give_code(browser, code).content.decode()
    settings.SECRET_KEY_FALLBACKS = [before]
    give_code(browser, current_code(user, secret))
    assert is_signed_in(browser)


def test_a_sign_in_asks_for_a_code_after_the_password(user: User) -> None:
    secret, browser = set_up_app(user), Client()
    assert give_password(browser, user, PASSWORD).headers["Location"] == reverse("mfa_authenticate")
    assert not is_signed_in(browser)
    assert browser.get("/security/").status_code == 302
    assert browser.get("/api/v1/members").status_code == 401
    assert give_code(browser, "000000").status_code == 200
    assert not is_signed_in(browser)
    assert give_code(browser, current_code(user, secret)).status_code == 302
    assert browser.get("/security/").status_code == 200


def test_a_code_opens_once(user: User) -> None:
    secret = set_up_app(user)
    code = current_code(user, secret)
    for browser, opens in ((Client(), True), (Client(), False)):
        give_password(browser, user, PASSWORD)
        give_code(browser, code)
        assert is_signed_in(browser) is opens


def test_a_recovery_code_opens_once_and_leaves_a_row(user: User) -> None:
    set_up_app(user)
    code = recovery_codes(user)[3]
    for browser, opens in ((Client(), True), (Client(), False)):
        give_password(browser, user, PASSWORD)
        give_code(browser, f" {code[:4]} {code[4:]}")
        assert is_signed_in(browser) is opens
    row = AuditEntry.objects.get(action="recovery_code.used", target_id=user.pk)
    assert row.after == {"email": user.email, "left": limits.RECOVERY_CODES - 1}
    assert code not in str(row.after)


def test_wrong_codes_are_counted_by_account_and_address(user: User) -> None:
    secret = set_up_app(user)
    thief, owner = Client(REMOTE_ADDR="192.0.2.1"), Client(REMOTE_ADDR="192.0.2.2")
    give_password(thief, user, PASSWORD)
    for _ in range(limits.SIGN_IN_FAILURES_PER_ACCOUNT_AND_ADDRESS_MAX):
        assert TOO_MANY not in give_code(thief, "000000").content.decode()
    refused = give_code(thief, current_code(user, secret))
    assert TOO_MANY in refused.content.decode()
    assert not is_signed_in(thief)
    give_password(owner, user, PASSWORD)
    assert give_code(owner, current_code(user, secret)).status_code == 302, "the owner is locked out by somebody else"


def test_codes_guessed_from_everywhere_come_to_an_end_but_not_for_the_owner(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CODE_FAILURES_PER_ACCOUNT_AND_HOUR_MAX", 6)
    secret, owner = set_up_app(user), Client(REMOTE_ADDR="192.0.2.1")
    give_password(owner, user, PASSWORD)
    assert give_code(owner, current_code(user, secret)).status_code == 302
    for number in range(7):
        thief = Client(REMOTE_ADDR=f"198.51.100.{number + 1}")
        give_password(thief, user, PASSWORD)
        answer = give_code(thief, "000000").content.decode()
        assert (TOO_MANY in answer) is (number == 6)
    again = Client(REMOTE_ADDR="192.0.2.1")
    give_password(again, user, PASSWORD)
    assert give_code(again, current_code(user, secret)).status_code == 302


def test_a_passkey_is_added_and_opens(user: User, browser: Client) -> None:
    passkey = SoftPasskey("http://localhost")
    page = browser.get(reverse("mfa_add_webauthn"), headers={"Host": "localhost"})
    options = options_in(page)
    assert options["publicKey"]["rp"] == {"id": "localhost", "name": "Penstock"}
    form = {"name": "Key ring", "credential": passkey.create(options)}
    done = browser.post(reverse("mfa_add_webauthn"), form, headers={"Host": "localhost"})
    assert done.status_code == 302, done.content.decode()
    assert "Key ring" in browser.get("/security/").content.decode()
    other = Client(headers={"Host": "localhost"})
    give_password(other, user, PASSWORD)
    page = other.get(reverse("mfa_authenticate"))
    answer = other.post(reverse("mfa_authenticate"), {"credential": passkey.get(options_in(page))})
    assert answer.status_code == 302, answer.content.decode()
    assert is_signed_in(other)


def test_another_key_and_another_origin_do_not_open(user: User, browser: Client) -> None:
    passkey = SoftPasskey("http://localhost")
    host = {"Host": "localhost"}
    options = options_in(browser.get(reverse("mfa_add_webauthn"), headers=host))
    browser.post(reverse("mfa_add_webauthn"), {"credential": passkey.create(options)}, headers=host)
    forger = SoftPasskey("http://localhost")
    elsewhere = SoftPasskey("https://evil.example")
    elsewhere.key = passkey.key
    for wrong in (forger, elsewhere):
        other = Client(headers=host)
        give_password(other, user, PASSWORD)
        page = other.get(reverse("mfa_authenticate"))
        answer = other.post(reverse("mfa_authenticate"), {"credential": wrong.get(options_in(page))})
        assert answer.status_code == 200
        assert "This passkey did not work" in answer.content.decode()
        assert not is_signed_in(other)


KEYS = ("id", "rawId", "type", "response", "clientDataJSON", "attestationObject", "x")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)


@given(JSON)
@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
def test_junk_in_place_of_a_passkey_is_refused(browser: Client, junk: Any) -> None:
    answer = browser.post(reverse("mfa_add_webauthn"), {"credential": json.dumps(junk)})
    assert answer.status_code == 200
    assert not Authenticator.objects.exists()


@pytest.mark.parametrize("junk", ["[" * 10_000, '"' + "x" * 200_000 + '"', "{", ""])
def test_a_long_or_deep_answer_is_refused(browser: Client, junk: str) -> None:
    assert browser.post(reverse("mfa_add_webauthn"), {"credential": junk}).status_code == 200


def test_passkeys_per_account_are_limited(user: User, browser: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenants.second_factor.forms.PASSKEYS_PER_USER_MAX", 1)
    host = {"Host": "localhost"}
    for number in range(2):
        passkey = SoftPasskey("http://localhost", credential_id=bytes([number]) * 16)
        options = options_in(browser.get(reverse("mfa_add_webauthn"), headers=host))
        browser.post(reverse("mfa_add_webauthn"), {"credential": passkey.create(options)}, headers=host)
    assert Authenticator.objects.filter(type=Authenticator.Type.WEBAUTHN).count() == 1


def test_the_first_factor_ends_what_was_signed_in_to_without_it(user: User, browser: Client) -> None:
    elsewhere = Client()
    give_password(elsewhere, user, PASSWORD)
    host = {"Host": "localhost"}
    options = options_in(browser.get(reverse("mfa_add_webauthn"), headers=host))
    browser.post(
        reverse("mfa_add_webauthn"), {"credential": SoftPasskey("http://localhost").create(options)}, headers=host
    )
    assert browser.get("/api/v1/members").status_code == 200
    assert elsewhere.get("/api/v1/members").status_code == 401


def test_removing_an_app_asks_again_when_the_sign_in_is_long_ago(user: User, settings: Any) -> None:
    secret, browser = set_up_app(user), Client()
    give_password(browser, user, PASSWORD)
    give_code(browser, current_code(user, secret))
    settings.REAUTHENTICATION_S = 0
    asked = browser.post(reverse("mfa_deactivate_totp"))
    assert asked.headers["Location"].startswith(reverse("account_reauthenticate"))
    assert Authenticator.objects.filter(type=Authenticator.Type.TOTP).exists()
    page = browser.get(asked.headers["Location"])
    assert page.headers["Location"].startswith(reverse("mfa_reauthenticate")), "the password alone would undo it"
    settings.REAUTHENTICATION_S = 600
    confirmed = browser.post(page.headers["Location"], {"code": current_code(user, secret)})
    assert confirmed.status_code == 302
    assert browser.post(reverse("mfa_deactivate_totp")).status_code == 302
    assert not Authenticator.objects.exists(), "recovery codes stand in for nothing any more"
    assert actions(user).count("second_factor.removed") == 2


def test_somebody_elses_passkey_is_not_removed(user: User, browser: Client) -> None:
    other = make_member().user
    row = Authenticator.objects.create(
        user=other, type=Authenticator.Type.WEBAUTHN, data={"name": "x", "credential": {}}
    )
    assert browser.post(reverse("mfa_remove_webauthn", args=[row.pk])).status_code == 404
    assert Authenticator.objects.filter(pk=row.pk).exists()


def test_a_change_is_mailed(user: User, settings: Any, mailoutbox: list[EmailMessage],
                            django_capture_on_commit_callbacks: Any) -> None:  # fmt: skip
    settings.MAIL_IS_CONFIGURED = True
    with django_capture_on_commit_callbacks(execute=True):
        set_up_app(user)
    assert [mail.to for mail in mailoutbox] == [[user.email]]
    assert "added" in mailoutbox[0].body


def test_verifying_a_mailbox_is_no_way_around_the_factor(settings: Any, user: User) -> None:
    settings.MAIL_IS_CONFIGURED = True
    set_up_app(user)
    browser = Client()
    link = reverse("page-verify", args=[signing.dumps([user.pk, user.email], salt=VERIFICATION_SALT)])
    answer = browser.post(link, {"password": PASSWORD})
    assert answer.headers["Location"] == reverse("mfa_authenticate")
    assert not is_signed_in(browser)


def test_an_operator_takes_lost_factors_away(user: User) -> None:
    operator = services.create_operator(email="ops@example.com", password=PASSWORD)[0]
    set_up_app(user)
    panel = Client()
    panel.force_login(operator)
    form = {"action": "take_factors_away", "_selected_action": [user.pk]}
    page = panel.post(reverse("admin:tenants_user_changelist"), form, follow=True)
    assert "second factors taken away" in page.content.decode()
    rows = AuditEntry.objects.filter(action="second_factor.removed", target_id=user.pk)
    assert {row.actor_id for row in rows} == {operator.pk}
    assert not Authenticator.objects.filter(user=user).exists()
    assert panel.get(reverse("admin:index")).status_code == 200, "the operator's own session goes on"


def test_nobody_looks_at_secrets_in_the_panel() -> None:
    assert not admin.site.is_registered(Authenticator)
