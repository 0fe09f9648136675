"""Sends the mails whose notices are due. A notice is taken for a while, sent, and then marked: whoever dies in between
gives it back, and a mail may come twice, but none is lost. Alerts of a tenant that come at once share one mail, and a
tenant has so many of these in an hour; the next one tells the rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import structlog
from django.db import transaction
from django.db.models import F, Q

from billing.models import MailNotice, NoticeKind
from brokers.infra.locks import Busy, only_one
from tenants import mails
from tenants.choices import Role
from tenants.containment import contained
from tenants.models import Member, Tenant, User

log = structlog.get_logger(__name__)

LOCK = "mail notices"

MAILS_PER_NOTICE_MAX = 20
ALERT_MAILS_PER_TENANT_AND_HOUR_MAX = 12
NOTICES_PER_MAIL_MAX = 50
# A run takes up nothing more after so long.
RUN_S = 20.0
LEASE = timedelta(minutes=5)
# After the first try that nobody's mail server took, the second, and so on.
WAITS = tuple(timedelta(minutes=minutes) for minutes in (1, 5, 30, 120))
POSTPONED = timedelta(minutes=5)
NOTICES_KEPT_FOR = timedelta(days=30)
FORGOTTEN_AT_ONCE_MAX = 5_000
HOUR = timedelta(hours=1)

ALERTS = (NoticeKind.FIRING, NoticeKind.RESOLVED)


class Sent(NamedTuple):
    """How many mails there were to send, and how many of them were taken."""

    wanted: int
    taken: int


NOT_SENT = Sent(wanted=1, taken=0)

Sender = Callable[[Sequence[MailNotice]], Sent]


def send_due(now: datetime, *, budgets: Sender, alerts: Sender) -> int:
    """How many notices were tried. `budgets` sends one notice at a time, `alerts` those of one tenant. One run at a
    time: a mail server that is slow holds one worker of ours, not each of them.
    """
    try:
        with only_one(LOCK):
            return _run(now, budgets, alerts)
    except Busy:
        return 0


def forget_old(now: datetime) -> int:
    """Notices that are over since long ago."""
    old = MailNotice.objects.filter(finished_at__lt=now - NOTICES_KEPT_FOR).values_list("pk", flat=True)
    return MailNotice.objects.filter(pk__in=list(old[:FORGOTTEN_AT_ONCE_MAX])).delete()[0]


def _run(now: datetime, budgets: Sender, alerts: Sender) -> int:
    ends_s = time.monotonic() + RUN_S
    tried = 0
    while time.monotonic() < ends_s:
        notices = _take(now)
        if notices is None:
            return tried
        if notices:
            sender = budgets if notices[0].kind == NoticeKind.BUDGET else alerts
            sent = NOT_SENT
            with contained("mail_failed", tenant=notices[0].tenant_id, notice=notices[0].pk):
                sent = sender(notices)
            _note(notices, sent, now)
            tried += len(notices)
    return tried


def members_of(tenant: Tenant, roles: Iterable[Role]) -> list[User]:
    """Those with one of the roles whose address is verified."""
    found = Member.objects.filter(
        tenant=tenant, role__in=roles, removed_at=None, user__is_active=True, user__email_verified_at__isnull=False
    )
    return [each.user for each in found.select_related("user").order_by("pk")[:MAILS_PER_NOTICE_MAX]]


def operators() -> list[User]:
    """Of the platform, whose address is verified."""
    found = User.objects.filter(is_staff=True, is_active=True, email_verified_at__isnull=False)
    return list(found.order_by("pk")[:MAILS_PER_NOTICE_MAX])


def to_each(people: Sequence[User], name: str, **values: Any) -> Sent:
    """The mail of a template to each of them, in their languages."""
    return Sent(len(people), sum(mails.send(name, each.email, each.language, **values) for each in people))


@transaction.atomic
def _take(now: datetime) -> list[MailNotice] | None:
    """The oldest that is due: a budget's alone, of alerts all of its tenant. None: nothing is due. An empty list: they
    are put off, or somebody else has them.
    """
    due = MailNotice.objects.filter(finished_at=None, next_at__lte=now)
    first = due.order_by("next_at", "pk").select_for_update(skip_locked=True, no_key=True, of=("self",)).first()
    if first is None:
        return None
    same = Q(pk=first.pk)
    if first.kind in ALERTS:
        if _had_enough(first.tenant_id, now):
            due.filter(tenant=first.tenant_id, kind__in=ALERTS).update(next_at=now + POSTPONED)
            return []
        same = Q(tenant=first.tenant_id, kind__in=ALERTS)
    found = list(
        due.filter(same)
        .select_for_update(skip_locked=True, no_key=True, of=("self",))
        .select_related("tenant", "firing", "budget_alert__tenant")
        .order_by("pk")[:NOTICES_PER_MAIL_MAX]
    )
    MailNotice.objects.filter(pk__in=[each.pk for each in found]).update(
        next_at=now + LEASE, attempts=F("attempts") + 1
    )
    for each in found:
        each.attempts += 1
    return found


def _had_enough(tenant_id: str | None, now: datetime) -> bool:
    """The notices of one mail are marked with one instant. Operators are told all."""
    if tenant_id is None:
        return False
    lately = MailNotice.objects.filter(tenant=tenant_id, kind__in=ALERTS, sent_to__gt=0, finished_at__gt=now - HOUR)
    return lately.values("finished_at").distinct().count() >= ALERT_MAILS_PER_TENANT_AND_HOUR_MAX


def _note(notices: Sequence[MailNotice], sent: Sent, now: datetime) -> None:
    """Where somebody's mail was taken, or there is nobody to tell, it is over."""
    rows = MailNotice.objects.filter(pk__in=[each.pk for each in notices])
    attempts = max(each.attempts for each in notices)
    if sent.taken or not sent.wanted:
        rows.update(finished_at=now, sent_to=sent.taken)
    elif attempts <= len(WAITS):
        rows.update(next_at=now + WAITS[attempts - 1])
    else:
        log.warning("mail_given_up", notices=len(notices), kind=notices[0].kind)
        rows.update(finished_at=now)
