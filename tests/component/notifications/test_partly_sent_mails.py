"""A mail of which the server accepts only a part is sent again to the people who did not get it."""

from __future__ import annotations

import smtplib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, ClassVar

import pytest
from django.core import mail
from django.core.cache import cache
from django.core.mail import EmailMessage
from django.core.mail.backends.locmem import EmailBackend
from django.utils import timezone

from notifications import outbox
from notifications.budgets import alerts as budget_alerts
from notifications.models import BudgetAlert, MailNotice, NoticeKind
from tenants import mails
from tenants.choices import Role
from tenants.models import Member, User
from tests.testkit.api_cases import make_member

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 11, 1, 12, 0, tzinfo=UTC)
MEMBERS = 5


class RefusingBackend(EmailBackend):
    """Mail server that accepts `left` mails, any number if None, and none to `refused`."""

    left: ClassVar[int | None] = None
    refused: ClassVar[str] = ""

    def send_messages(self, messages: Sequence[EmailMessage]) -> int:
        kind = type(self)
        if kind.left == 0 or kind.refused in [address for message in messages for address in message.to]:
            raise smtplib.SMTPServerDisconnected
        if kind.left is not None:
            kind.left -= 1
        return int(super().send_messages(messages))


@pytest.fixture(autouse=True)
def server(settings: Any) -> Iterator[type[RefusingBackend]]:
    cache.clear()
    settings.EMAIL_BACKEND = f"{__name__}.RefusingBackend"
    yield RefusingBackend
    RefusingBackend.left, RefusingBackend.refused = None, ""


@pytest.fixture
def owner() -> Member:
    first = make_member()
    for _ in range(MEMBERS - 1):
        make_member(Role.ADMIN, first.tenant)
    User.objects.update(email_verified_at=timezone.now())
    return first


def make_notice(owner: Member, name: str, at: datetime = NOW) -> MailNotice:
    alert = BudgetAlert.objects.create(
        tenant=owner.tenant, budget_id=name, budget_name=name, month=NOW, mark=50, amount=Decimal(1), spent=Decimal(1),
        forecast=Decimal(1), at=at,
    )  # fmt: skip
    return MailNotice.objects.create(
        tenant=owner.tenant, kind=NoticeKind.BUDGET, budget_alert=alert, created_at=at, next_at=at
    )


def send(now: datetime) -> list[str]:
    before = len(mail.outbox)
    outbox.send_due(now, budgets=budget_alerts.send_mail, alerts=budget_alerts.send_mail)
    return [message.to[0] for message in mail.outbox[before:]]


def test_people_whose_mail_was_refused_get_it_later_and_the_others_get_it_once(
    owner: Member, server: type[RefusingBackend]
) -> None:
    notice = make_notice(owner, "a")
    server.left = 2
    first = send(NOW)
    assert len(first) == 2
    assert BudgetAlert.objects.get().sent_to == 2
    server.left = None
    later = send(NOW + outbox.RETRY_DELAYS[0])
    assert len(later) == MEMBERS - 2 and len({*first, *later}) == MEMBERS
    notice.refresh_from_db()
    assert notice.finished_at is not None and notice.sent_to == BudgetAlert.objects.get().sent_to == MEMBERS
    assert send(NOW + timedelta(days=1)) == []


def test_an_address_that_is_always_refused_is_given_up_at_last(owner: Member, server: type[RefusingBackend]) -> None:
    notice = make_notice(owner, "a")
    server.refused = owner.user.email
    sent = [send(NOW + number * timedelta(hours=3)) for number in range(10)]
    assert [len(addresses) for addresses in sent] == [MEMBERS - 1] + [0] * 9
    notice.refresh_from_db()
    assert notice.finished_at is not None and notice.sent_to == MEMBERS - 1
    assert notice.attempts == len(outbox.RETRY_DELAYS) + 1


def test_an_address_that_is_always_refused_does_not_lift_the_limit_of_its_tenant(
    owner: Member, server: type[RefusingBackend]
) -> None:
    most = outbox.BUDGET_MAILS_PER_TENANT_AND_HOUR_MAX
    for number in range(most + 3):
        make_notice(owner, f"b{number}")
    server.refused = owner.user.email
    sent = [address for minutes in range(0, 60, 2) for address in send(NOW + timedelta(minutes=minutes))]
    assert len(sent) == most * (MEMBERS - 1)
    assert MailNotice.objects.filter(sent_to=0).count() == 3


def test_an_error_after_some_mails_repeats_none_of_them(owner: Member, monkeypatch: pytest.MonkeyPatch) -> None:
    make_notice(owner, "a")
    render = mails.render_to_string
    calls: list[str] = []

    def breaking(template: str, values: dict[str, Any]) -> str:
        calls.append(template)
        if len(calls) == 5:  # the subject of the third mail
            raise RuntimeError("a template that cannot be rendered")
        return render(template, values)

    monkeypatch.setattr("tenants.mails.render_to_string", breaking)
    first = send(NOW)
    assert len(first) == 2
    later = send(NOW + outbox.RETRY_DELAYS[0])
    assert len(later) == MEMBERS - 2 and not set(first) & set(later)
