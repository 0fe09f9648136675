"""Outbox of mails: sends the mails whose notices are due, fair by tenant.

A notice is leased, sent and then marked as finished; each mail that the server accepts is recorded at once. If the
process dies before that, the lease expires: one mail may be sent twice, but none is lost. A refused mail is sent again
to the people whose mail was refused. Concurrent alerts of a tenant share one mail. The number of mails per hour is
limited for each tenant and address: the last mail within the limit says so, and later notices are postponed.
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

from brokers.infra.locks import Busy, exclusive_lock
from notifications import queues
from notifications.limits import (
    ALERT_MAILS_PER_TENANT_AND_HOUR_MAX,
    BUDGET_MAILS_PER_TENANT_AND_HOUR_MAX,
    MAILS_PER_ADDRESS_AND_HOUR_MAX,
)
from notifications.models import MailNotice, NoticeKind, Queue
from tenants import mails
from tenants.choices import Role
from tenants.containment import contained
from tenants.models import Member, Tenant, User

log = structlog.get_logger(__name__)

LOCK = "mail notices"

MAILS_PER_NOTICE_MAX = 20
NOTICES_PER_MAIL_MAX = 50
# A run starts no further mail after this time.
RUN_S = 20.0
LEASE = timedelta(minutes=5)
# Delays after the first, second, … attempt in which a mail was refused.
RETRY_DELAYS = tuple(timedelta(minutes=minutes) for minutes in (1, 5, 30, 120))
# Delay of notices whose tenant has no mail of this hour left.
POSTPONEMENT = timedelta(minutes=5)
NOTICE_RETENTION = timedelta(days=30)
DELETE_BATCH_SIZE = 5_000
HOUR = timedelta(hours=1)

ALERTS = (NoticeKind.FIRING, NoticeKind.RESOLVED)


class MailDelivery(NamedTuple):
    """Numbers of mails to send, of mails that the server accepted, and of mails that it refused.

    The remaining mails were not sent, because their addresses have reached the hourly limit.
    """

    to_send: int
    accepted: int
    failed: int


# Result of a sender that raised an exception.
NOT_SENT = MailDelivery(to_send=1, accepted=0, failed=1)

# Callback with the notices of one mail, and true if it is the last mail of their tenant in this hour.
Sender = Callable[[Sequence[MailNotice], bool], MailDelivery]


def send_due(now: datetime, *, budgets: Sender, alerts: Sender) -> int:
    """Sends the notices that are due and returns the number of notices that it attempted to send.

    The sender `budgets` is called with one notice, `alerts` with all alert notices of one tenant. Only one run is
    active at a time, so that a slow mail server blocks only one worker.
    """
    try:
        with exclusive_lock(LOCK):
            return _run(now, budgets, alerts)
    except Busy:
        return 0


def delete_old_notices(now: datetime) -> int:
    """Deletes notices that finished long ago and returns their number."""
    expired = MailNotice.objects.filter(finished_at__lt=now - NOTICE_RETENTION).values_list("pk", flat=True)
    return MailNotice.objects.filter(pk__in=list(expired[:DELETE_BATCH_SIZE])).delete()[0]


def _run(now: datetime, budgets: Sender, alerts: Sender) -> int:
    deadline_s = time.monotonic() + RUN_S
    attempted = 0
    while time.monotonic() < deadline_s:
        notices = _lease_due(now)
        if notices is None:
            return attempted
        if notices:
            sender = budgets if notices[0].kind == NoticeKind.BUDGET else alerts
            delivery = NOT_SENT
            with contained("mail_failed", tenant=notices[0].tenant_id, notice=notices[0].pk):
                is_last = _mails_left(notices[0].tenant_id, _kinds_sharing_limit(notices[0]), now) == 1
                delivery = sender(notices, is_last)
            _record_result(notices, delivery, now)
            attempted += len(notices)
    return attempted


def members_of(tenant: Tenant, roles: Iterable[Role]) -> list[User]:
    """Returns the active members with one of the roles and a verified address."""
    members = Member.objects.filter(
        tenant=tenant, role__in=roles, removed_at=None, user__is_active=True, user__email_verified_at__isnull=False
    )
    return [member.user for member in members.select_related("user").order_by("pk")[:MAILS_PER_NOTICE_MAX]]


def operators() -> list[User]:
    """Returns the operators of the platform with a verified address."""
    users = User.objects.filter(is_staff=True, is_active=True, email_verified_at__isnull=False)
    return list(users.order_by("pk")[:MAILS_PER_NOTICE_MAX])


def send_to_each(
    notices: Sequence[MailNotice], recipients: Sequence[User], name: str, *, is_last: bool = False, **values: Any
) -> MailDelivery:
    """Sends the mail `name` about notices to each recipient, in their language, for whom a notice is not yet accepted.

    An address that reached its limit of this hour is skipped. The last mail to an address within the limit says that it
    is the last one of this hour; `is_last` makes all mails say so, because the tenant's limit is reached.
    """
    unserved_recipients = [
        person for person in recipients if any(person.pk not in notice.accepted_for for notice in notices)
    ]
    accepted = failed = 0
    for person in unserved_recipients:
        number = _number_in_hour(person.email)
        if number > MAILS_PER_ADDRESS_AND_HOUR_MAX:
            log.warning("mail_limit_of_address", mail=name, user=person.pk)
            continue
        is_last_here = is_last or number == MAILS_PER_ADDRESS_AND_HOUR_MAX
        if mails.send(name, person.email, person.language, is_last=is_last_here, **values):
            _record_accepted(notices, person)
            accepted += 1
        else:
            failed += 1
    return MailDelivery(len(unserved_recipients), accepted, failed)


def _record_accepted(notices: Sequence[MailNotice], person: User) -> None:
    """Stores at once that a person's mail was accepted, so that it is not repeated if the process dies."""
    for notice in notices:
        if person.pk not in notice.accepted_for:
            notice.accepted_for = [*notice.accepted_for, person.pk]
    MailNotice.objects.bulk_update(notices, ["accepted_for"])


def _number_in_hour(address: str) -> int:
    """Counts a mail to an address and returns the number of mails to it in this hour.

    Returns 0 if the counters are unavailable, so that the mail is sent nevertheless.
    """
    key = f"mails:{hashlib.sha256(address.lower().encode()).hexdigest()}"
    try:
        shared_cache.add(key, 0, int(HOUR.total_seconds()))
        return int(shared_cache.incr(key))
    except (RedisError, OSError, ValueError):  # ValueError: the key expired in between
        return 0


@transaction.atomic
def _lease_due(now: datetime) -> list[MailNotice] | None:
    """Leases notices of the tenant that was served longest ago, operators first.

    Leases one notice of a budget, or all notices of alerts. Returns None if nothing is due, and an empty list if the
    notices were postponed or are locked by another transaction.
    """
    due_notices = MailNotice.objects.filter(finished_at=None, next_at__lte=now)
    waiting_tenants = set(due_notices.order_by().values_list("tenant_id", flat=True).distinct())
    if not waiting_tenants:
        return None
    tenant_id = (
        None
        if None in waiting_tenants
        else queues.in_service_order(Queue.MAILS, {str(pk) for pk in waiting_tenants})[0]
    )
    if tenant_id is not None:
        queues.record_served(Queue.MAILS, [tenant_id])
    tenant_notices = due_notices.filter(tenant=tenant_id)
    first_notice = (
        tenant_notices.order_by("next_at", "pk").select_for_update(skip_locked=True, no_key=True, of=("self",)).first()
    )
    if first_notice is None:
        return []
    kinds = _kinds_sharing_limit(first_notice)
    if not _mails_left(tenant_id, kinds, now):
        tenant_notices.filter(kind__in=kinds).update(next_at=now + POSTPONEMENT)
        return []
    mail_notices = Q(kind__in=kinds) if first_notice.kind in ALERTS else Q(pk=first_notice.pk)
    notices = list(
        tenant_notices.filter(mail_notices)
        .select_for_update(skip_locked=True, no_key=True, of=("self",))
        .select_related("tenant", "firing", "budget_alert__tenant")
        .order_by("pk")[:NOTICES_PER_MAIL_MAX]
    )
    MailNotice.objects.filter(pk__in=[notice.pk for notice in notices]).update(
        next_at=now + LEASE, attempts=F("attempts") + 1
    )
    for notice in notices:
        notice.attempts += 1
    return notices


def _kinds_sharing_limit(notice: MailNotice) -> tuple[NoticeKind, ...]:
    """Returns the kinds of notices that share an hourly limit."""
    return ALERTS if notice.kind in ALERTS else (NoticeKind.BUDGET,)


def _mails_left(tenant_id: str | None, kinds: Sequence[NoticeKind], now: datetime) -> int:
    """Returns the number of mails of these kinds that a tenant may still get in this hour.

    The notices of one mail have the same `sent_at`. Repeated attempts for refused recipients do not count. Operators
    have no limit.
    """
    limit = ALERT_MAILS_PER_TENANT_AND_HOUR_MAX if kinds == ALERTS else BUDGET_MAILS_PER_TENANT_AND_HOUR_MAX
    if tenant_id is None:
        return limit
    sent_notices = MailNotice.objects.filter(tenant=tenant_id, kind__in=kinds, sent_at__gt=now - HOUR)
    if kinds == ALERTS:
        return max(0, limit - sent_notices.values("sent_at").distinct().count())
    return max(0, limit - sent_notices.count())


def _record_result(notices: Sequence[MailNotice], delivery: MailDelivery, now: datetime) -> None:
    """Finishes notices if no mail was refused; otherwise schedules a retry, or finishes them after the last attempt.

    A retry is also scheduled if all addresses have reached their hourly limit.
    """
    is_done = not delivery.failed and (delivery.accepted > 0 or not delivery.to_send)
    for notice in notices:
        notice.sent_to = len(notice.accepted_for)
        if notice.accepted_for and notice.sent_at is None:
            notice.sent_at = now
        if not is_done and notice.attempts <= len(RETRY_DELAYS):
            notice.next_at = now + RETRY_DELAYS[notice.attempts - 1]
        else:
            notice.finished_at = now
    abandoned = 0 if is_done else sum(notice.finished_at is not None for notice in notices)
    if abandoned:
        log.warning("mail_given_up", notices=abandoned, kind=notices[0].kind)
    MailNotice.objects.bulk_update(notices, ["sent_to", "sent_at", "next_at", "finished_at"])
