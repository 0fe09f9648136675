"""Sends the mails whose notices are due, fair by tenant. A notice is taken for a while, sent, and then marked: a
process that dies in between gives it back, and a mail may come twice, but none is lost. Alerts of a tenant that come
at once share one mail. Mails of a tenant, and to an address, are limited by the hour: the last mail says so, and the
rest follows later.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import structlog
from django.core.cache import cache as shared_cache
from django.db import transaction
from django.db.models import F, Q
from redis import RedisError

from billing import queues
from billing.alerts.limits import (
    ALERT_MAILS_PER_TENANT_AND_HOUR_MAX,
    BUDGET_MAILS_PER_TENANT_AND_HOUR_MAX,
    MAILS_PER_ADDRESS_AND_HOUR_MAX,
)
from billing.models import MailNotice, NoticeKind, Queue
from brokers.infra.locks import Busy, only_one
from tenants import mails
from tenants.choices import Role
from tenants.containment import contained
from tenants.models import Member, Tenant, User

log = structlog.get_logger(__name__)

LOCK = "mail notices"

MAILS_PER_NOTICE_MAX = 20
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

# Takes the notices of one mail, and whether it is the last one that their tenant gets in this hour.
Sender = Callable[[Sequence[MailNotice], bool], Sent]


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
                is_last = _mails_left(notices[0].tenant_id, _sharing(notices[0]), now) == 1
                sent = sender(notices, is_last)
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


def to_each(people: Sequence[User], name: str, *, is_last: bool = False, **values: Any) -> Sent:
    """Sends the mail of a template to each of these people, in their languages. An address that had its mails of this
    hour is passed over; the mail before says that it is the last one, as with `is_last`.
    """
    taken = 0
    for person in people:
        number = _number_in_hour(person.email)
        if number > MAILS_PER_ADDRESS_AND_HOUR_MAX:
            log.warning("mail_limit_of_address", mail=name, user=person.pk)
            continue
        is_last_here = is_last or number == MAILS_PER_ADDRESS_AND_HOUR_MAX
        taken += mails.send(name, person.email, person.language, is_last=is_last_here, **values)
    return Sent(len(people), taken)


def _number_in_hour(address: str) -> int:
    """Counts a mail to an address; 0 where the counters are away, and nobody is passed over for that."""
    key = f"mails:{hashlib.sha256(address.lower().encode()).hexdigest()}"
    try:
        shared_cache.add(key, 0, int(HOUR.total_seconds()))
        return int(shared_cache.incr(key))
    except (RedisError, OSError, ValueError):  # ValueError: the hour ended in between
        return 0


@transaction.atomic
def _take(now: datetime) -> list[MailNotice] | None:
    """Takes the oldest notice of the tenant that was served longest ago, operators first: a budget's alone, of alerts
    all of the tenant. None: nothing is due. An empty list: they are put off, or another transaction has them.
    """
    due = MailNotice.objects.filter(finished_at=None, next_at__lte=now)
    waiting = set(due.order_by().values_list("tenant_id", flat=True).distinct())
    if not waiting:
        return None
    tenant_id = None if None in waiting else queues.in_turn(Queue.MAILS, {str(item) for item in waiting})[0]
    if tenant_id is not None:
        queues.note_served(Queue.MAILS, [tenant_id])
    own = due.filter(tenant=tenant_id)
    first = own.order_by("next_at", "pk").select_for_update(skip_locked=True, no_key=True, of=("self",)).first()
    if first is None:
        return []
    kinds = _sharing(first)
    if not _mails_left(tenant_id, kinds, now):
        own.filter(kind__in=kinds).update(next_at=now + POSTPONED)
        return []
    same = Q(kind__in=kinds) if first.kind in ALERTS else Q(pk=first.pk)
    found = list(
        own.filter(same)
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


def _sharing(notice: MailNotice) -> tuple[NoticeKind, ...]:
    """Kinds of notices that share the limit of an hour."""
    return ALERTS if notice.kind in ALERTS else (NoticeKind.BUDGET,)


def _mails_left(tenant_id: str | None, kinds: Sequence[NoticeKind], now: datetime) -> int:
    """Number of mails of these kinds that a tenant may still get in this hour. The notices of one mail are marked with
    one instant. Operators have no limit.
    """
    most = ALERT_MAILS_PER_TENANT_AND_HOUR_MAX if kinds == ALERTS else BUDGET_MAILS_PER_TENANT_AND_HOUR_MAX
    if tenant_id is None:
        return most
    lately = MailNotice.objects.filter(tenant=tenant_id, kind__in=kinds, sent_to__gt=0, finished_at__gt=now - HOUR)
    if kinds == ALERTS:
        return max(0, most - lately.values("finished_at").distinct().count())
    return max(0, most - lately.count())


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
