"""Writes: stops unused instances if their plan defines an idle stop. Idempotent and safe to run concurrently.

A stop is a suspension that the tenant can end with one click: stored data stays and can be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from functools import partial
from itertools import islice

import structlog
from django.db import transaction
from django.db.models import Max

from billing.idle import decide
from billing.models import IdleWarning, Plan, UsageHour
from billing.selectors import complete_until
from instances import services as instances
from instances.choices import Reason
from instances.lifecycle.phases import Phase
from instances.models import Instance
from tenants import mails
from tenants.actors import system_actor
from tenants.choices import Role
from tenants.containment import contained
from tenants.errors import Conflict
from tenants.models import Member

log = structlog.get_logger(__name__)

SYSTEM = "idle stop"
AT_ONCE = 500
HOUR = timedelta(hours=1)
MOVED = ("produce", "consume")
# Roles that may resume the instance.
MAILED_ROLES = (Role.OWNER, Role.ADMIN, Role.DEVELOPER)
MAILS_MAX = 20


def watch() -> None:
    """Checks all running instances of plans with an idle stop."""
    days = dict(Plan.objects.exclude(idle_stop_days=decide.NEVER).values_list("code", "idle_stop_days"))
    running = Instance.objects.filter(plan__in=days, phase=Phase.RUNNING, suspended_for="").order_by("pk")
    remaining = running.iterator(chunk_size=AT_ONCE)
    while rows := list(islice(remaining, AT_ONCE)):
        used = last_used(row.pk for row in rows)
        for instance in rows:
            with contained("idle_stop_failed", instance=instance.pk):
                known_until = complete_until(instance.pk)
                if known_until is not None:
                    _take_step(instance, used.get(instance.pk), known_until, days[instance.plan])


def last_used(instance_ids: Iterable[str]) -> Mapping[str, datetime]:
    """Returns the end of the last hour with traffic, by instance; instances that never had traffic are omitted."""
    hours = UsageHour.objects.filter(instance_id__in=list(instance_ids), direction__in=MOVED, bytes__gt=0)
    return {
        row["instance_id"]: row["last"] + HOUR
        for row in hours.order_by().values("instance_id").annotate(last=Max("hour"))
    }


def _take_step(instance: Instance, used: datetime | None, known_until: datetime, stop_days: int) -> None:
    idle = decide.idle_since(instance.phase_since, used)
    warning = IdleWarning.objects.filter(pk=instance.pk, idle_since=idle).first()
    due = decide.step(idle, known_until, stop_days, warning.warned_at if warning else None)
    if due is decide.IdleStep.WARN:
        _warn(instance, idle, known_until, stop_days)
    elif due is decide.IdleStep.STOP:
        _stop(instance, idle)


@transaction.atomic
def _warn(instance: Instance, idle: datetime, now: datetime, stop_days: int) -> None:
    # The second of two concurrent runs waits here, and then finds the warning of the first.
    Instance.objects.select_for_update(no_key=True).get(pk=instance.pk)
    if IdleWarning.objects.filter(pk=instance.pk, idle_since=idle).exists():
        return
    IdleWarning.objects.update_or_create(pk=instance.pk, defaults={"idle_since": idle, "warned_at": now})
    stops_at = max(idle + timedelta(days=stop_days), now + decide.WARNED_FOR)
    transaction.on_commit(partial(_send, instance, idle, stops_at))


@transaction.atomic
def _stop(instance: Instance, idle: datetime) -> None:
    locked = Instance.objects.select_for_update(no_key=True).get(pk=instance.pk)
    if locked.phase_since != instance.phase_since:
        return  # the instance changed in the meantime
    try:
        instances.suspend_instance(acting=system_actor(SYSTEM), instance=locked, reason=Reason.IDLE)
    except Conflict:
        return
    IdleWarning.objects.filter(pk=instance.pk).delete()
    log.info("instance_stopped_idle", instance=instance.pk, idle_since=idle.isoformat())


def _send(instance: Instance, idle: datetime, stops_at: datetime) -> None:
    members = Member.objects.filter(
        tenant=instance.tenant, role__in=MAILED_ROLES, user__is_active=True, user__email_verified_at__isnull=False
    )
    for member in members.select_related("user").order_by("pk")[:MAILS_MAX]:
        mails.send(
            "idle", member.user.email, member.user.language, instance=instance.name, tenant=instance.tenant.name,
            idle_since=idle, stops_at=stops_at, link=mails.public_url(f"/instances/{instance.pk}/"),
        )  # fmt: skip
