"""Verified addresses in installations that send mail: sign-up does not reveal accounts, and an address is verified
first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.hashers import MD5PasswordHasher
from django.core.cache import cache
from django.core.mail import EmailMessage
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from tenants import limits, services
from tenants.actors import member_actor
from tenants.models import AuditEntry, Member, Tenant, User
from tests.testkit.api_cases import PASSWORD, Api, make_member

pytestmark = pytest.mark.django_db(transaction=True)
EMAIL = "ada@example.com"
OTHER_PASSWORD = "another long passphrase"


@pytest.fixture(autouse=True)
def _mail(settings: Any) -> Iterator[None]:
    settings.MAIL_IS_CONFIGURED = True
    settings.PUBLIC_URL = "https://console.example.com"
    cache.clear()
    yield
    cache.clear()


def sign_up(email: str = EMAIL, password: str = PASSWORD) -> Any:
    body = {"email": email, "password": password, "tenant_name": "Engines"}
    return Client().post(reverse("page-sign-up"), body)


def sign_in(email: str = EMAIL, password: str = PASSWORD) -> Client | None:
    browser = Client()
    browser.post(reverse("account_login"), {"login": email, "password": password})
    return browser if browser.get("/api/v1/members").status_code == 200 else None


def link_in(mail: EmailMessage) -> str:
    found = re.search(r"https://console\.example\.com(/\S+)", mail.body)
    assert found is not None, mail.body
    return found[1]


def words(answer: Any) -> str:
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", answer.content.decode()))
    return text.replace(EMAIL, "E").replace("x@y.example", "E")


def test_a_known_and_an_unknown_address_get_the_same_answer_for_the_same_work_and_a_mail_each(
    mailoutbox: list[EmailMessage], monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[str] = []
    before = MD5PasswordHasher.encode

    def encode(self: MD5PasswordHasher, password: str, salt: str) -> str:
        hashed.append(password)
        return before(self, password, salt)

    services.sign_up(email=EMAIL, password=PASSWORD, tenant_name="Engines")
    monkeypatch.setattr(MD5PasswordHasher, "encode", encode)
    answers, hashings, writes = [], [], []
    for email in (EMAIL, "x@y.example"):
        hashed.clear()
        with CaptureQueriesContext(connection) as queries:
            answers.append(sign_up(email, OTHER_PASSWORD))
        hashings.append(len(hashed))
        writes.append(any("INSERT" in query["sql"] for query in queries.captured_queries))
    assert [answer.status_code for answer in answers] == [200, 200]
    assert words(answers[0]) == words(answers[1])
    assert hashings == [1, 1]
    assert writes == [True, True]
    assert [mail.to for mail in mailoutbox] == [[EMAIL], ["x@y.example"]]
    assert mailoutbox[0].subject == "[Penstock] You have an account"
    assert mailoutbox[1].subject == "[Penstock] Verify your e-mail address"
    # Nor does trying the password tell, whichever account it was.
    assert [sign_in(email, OTHER_PASSWORD) for email in (EMAIL, "x@y.example")] == [None, None]
    assert sign_in(EMAIL, PASSWORD) is not None, "a sign-up changed somebody's password"


def test_bad_values_are_the_same_for_known_and_unknown_addresses(mailoutbox: list[EmailMessage]) -> None:
    services.sign_up(email=EMAIL, password=PASSWORD, tenant_name="Engines")
    answers = [sign_up(email, "short") for email in (EMAIL, "x@y.example")]
    assert [answer.status_code for answer in answers] == [422, 422]
    assert words(answers[0]) == words(answers[1])
    assert not mailoutbox


def test_an_account_is_used_once_its_mailbox_is_proved_with_the_password_that_was_chosen(
    mailoutbox: list[EmailMessage],
) -> None:
    sign_up()
    assert sign_in() is None
    link = link_in(mailoutbox[0])
    browser = Client()
    assert EMAIL in browser.get(link).content.decode()
    assert User.objects.get(email=EMAIL).email_verified_at is None, "a look at the page verifies"
    assert browser.post(link, {"password": "a guess", "verify": "1"}).status_code == 422
    assert browser.post(link, {"verify": "1"}).status_code == 422
    assert User.objects.get(email=EMAIL).email_verified_at is None
    assert browser.post(link, {"password": PASSWORD, "verify": "1"}).status_code == 302
    assert browser.get("/api/v1/members").status_code == 200
    assert AuditEntry.objects.filter(action="email.verified").count() == 1
    assert browser.get(link).status_code == 410
    assert Client().get(link.replace("/verify/", "/verify/x")).status_code == 404
    assert sign_in() is not None


def test_a_stranger_who_signed_up_with_the_address_never_gets_in(mailoutbox: list[EmailMessage]) -> None:
    sign_up(password=OTHER_PASSWORD)  # the attacker
    sign_up(password=PASSWORD)  # whose address it is
    assert [mail.subject for mail in mailoutbox] == ["[Penstock] Verify your e-mail address"] * 2
    for mail in mailoutbox:
        assert Client().post(link_in(mail), {"password": PASSWORD, "verify": "1"}).status_code == 422
    assert sign_in(password=OTHER_PASSWORD) is None
    Client().post(reverse("account_reset_password"), {"email": EMAIL})
    browser = Client()
    at = browser.get(link_in(mailoutbox[-1]), follow=True).redirect_chain[-1][0]
    assert browser.post(at, {"password1": PASSWORD, "password2": PASSWORD}).status_code == 302
    assert sign_in(password=PASSWORD) is not None
    assert sign_in(password=OTHER_PASSWORD) is None


def test_one_address_gets_few_mails_and_the_answer_stays_the_same(mailoutbox: list[EmailMessage]) -> None:
    answers = [sign_up() for _ in range(limits.SIGN_UP_MAILS_PER_ADDRESS_AND_HOUR_MAX + 2)]
    assert len({words(answer) for answer in answers}) == 1
    assert len(mailoutbox) == limits.SIGN_UP_MAILS_PER_ADDRESS_AND_HOUR_MAX


def test_a_mail_server_that_is_away_changes_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(self: EmailMessage, *_: object, **__: object) -> int:
        raise ConnectionRefusedError

    monkeypatch.setattr(EmailMessage, "send", away)
    assert sign_up().status_code == 200
    assert User.objects.filter(email=EMAIL).count() == 1


def invite(owner: Member, mailoutbox: list[EmailMessage]) -> tuple[str, str]:
    """Creates an invitation; returns the link for the inviter and the one in the mail."""
    _invitation, secret = services.invite_member(acting=member_actor(owner), email=EMAIL, role="developer")
    assert mailoutbox[-1].to == [EMAIL]
    return reverse("page-join", args=[secret]), link_in(mailoutbox[-1])


def test_joining_by_the_mailed_link_proves_the_mailbox(mailoutbox: list[EmailMessage]) -> None:
    owner = make_member()
    _shown, mailed = invite(owner, mailoutbox)
    browser = Client()
    assert browser.post(mailed, {"email": EMAIL, "password": PASSWORD}).status_code == 302
    assert browser.get("/api/v1/members").status_code == 200
    user = User.objects.get(email=EMAIL)
    assert user.email_verified_at is not None
    assert user.memberships.get().tenant == owner.tenant


def test_the_mailed_link_proves_the_mailbox_of_an_existing_account(mailoutbox: list[EmailMessage]) -> None:
    services.sign_up(email=EMAIL, password=PASSWORD, tenant_name="Engines")
    _shown, mailed = invite(make_member(), mailoutbox)
    browser = sign_in()
    assert browser is not None
    assert browser.post(mailed).status_code == 302
    assert User.objects.get(email=EMAIL).email_verified_at is not None


def test_joining_by_the_link_that_the_inviter_sees_proves_nothing(mailoutbox: list[EmailMessage]) -> None:
    shown, mailed = invite(make_member(), mailoutbox)
    guessed = mailed.rstrip("/").rsplit("/", 1)[0] + "/" + "0" * 64 + "/"
    assert Client().get(guessed).status_code == 404
    assert Client().post(shown, {"email": EMAIL, "password": PASSWORD}).status_code == 200
    assert sign_in() is None
    assert Client().post(link_in(mailoutbox[-1]), {"password": PASSWORD, "verify": "1"}).status_code == 302
    assert sign_in() is not None


def test_an_inviter_does_not_learn_who_has_an_account(mailoutbox: list[EmailMessage]) -> None:
    owner = make_member()
    services.sign_up(email="x@y.example", password=PASSWORD, tenant_name="Engines")
    answers = []
    for email in (EMAIL, "x@y.example"):
        _invitation, secret = services.invite_member(acting=member_actor(owner), email=email, role="viewer")
        at = reverse("page-join", args=[secret])
        answers.append(Client().post(at, {"email": email, "password": OTHER_PASSWORD}))
    assert [answer.status_code for answer in answers] == [200, 200]
    assert words(answers[0]) == words(answers[1])
    wrong = Client().post(at, {"email": EMAIL, "password": OTHER_PASSWORD})
    assert (wrong.status_code, "no open invitation" in wrong.content.decode()) == (422, True)


def test_without_mail_an_account_begins_at_once(settings: Any, mailoutbox: list[EmailMessage]) -> None:
    settings.MAIL_IS_CONFIGURED = False
    assert sign_up().status_code == 302
    assert sign_in() is not None
    settings.MAIL_IS_CONFIGURED = True
    assert sign_in() is not None, "who was let in before mail was configured is locked out"
    assert not mailoutbox
    assert Tenant.objects.count() == 1


def test_an_unverified_user_asks_for_the_mail_under_settings(mailoutbox: list[EmailMessage]) -> None:
    services.sign_up(email=EMAIL, password=PASSWORD, tenant_name="Engines")
    browser = sign_in()
    assert browser is not None
    assert reverse("page-verify-send") in browser.get(reverse("page-settings")).content.decode()
    browser.post(reverse("page-verify-send"))
    assert browser.post(link_in(mailoutbox[0]), {"verify": "1"}).status_code == 302
    assert reverse("page-verify-send") not in browser.get(reverse("page-settings")).content.decode()
    assert Api(user=make_member().user).client.get(link_in(mailoutbox[0])).status_code == 410


def test_operators_and_the_demo_account_need_no_mailbox() -> None:
    operator, _made = services.create_operator(email="ops@example.com", password=PASSWORD)
    assert services.may_enter(operator)
    assert operator.email_verified_at is not None
