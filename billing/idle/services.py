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

ACTOR_NAME = "idle stop"
CHUNK_SIZE = 500
HOUR = timedelta(hours=1)
TRAFFIC_DIRECTIONS = ("produce", "consume")
# Roles that may resume the instance.
MAILED_ROLES = (Role.OWNER, Role.ADMIN, Role.DEVELOPER)
MAILS_MAX = 20


def check_idle_instances() -> None:
    """Checks all running instances of plans with an idle stop."""
    days = dict(Plan.objects.exclude(idle_stop_days=decide.NEVER).values_list("code", "idle_stop_days"))
    running = Instance.objects.filter(plan__in=days, phase=Phase.RUNNING, suspended_for="").order_by("pk")
    remaining = running.iterator(chunk_size=CHUNK_SIZE)
    while rows := list(islice(remaining, CHUNK_SIZE)):
        last_used_by_id = last_used(row.pk for row in rows)
        for instance in rows:
            with contained("idle_stop_failed", instance=instance.pk):
                known_until = complete_until(instance.pk)
                if known_until is not None:
                    _take_step(instance, last_used_by_id.get(instance.pk), known_until, days[instance.plan])


def last_used(instance_ids: Iterable[str]) -> Mapping[str, datetime]:
    """Returns the end of the last hour with traffic, by instance; instances that never had traffic are omitted."""
    hours = UsageHour.objects.filter(instance_id__in=list(instance_ids), direction__in=TRAFFIC_DIRECTIONS, bytes__gt=0)
    return {
        row["instance_id"]: row["last"] + HOUR
        for row in hours.order_by().values("instance_id").annotate(last=Max("hour"))
    }


def _take_step(instance: Instance, last_use: datetime | None, known_until: datetime, stop_days: int) -> None:
    unused_since = decide.idle_since(instance.phase_since, last_use)
    warning = IdleWarning.objects.filter(pk=instance.pk, idle_since=unused_since).first()
    due = decide.step(unused_since, known_until, stop_days, warning.warned_at if warning else None)
    if due is decide.IdleStep.WARN:
        _warn(instance, unused_since, known_until, stop_days)
    elif due is decide.IdleStep.STOP:
        _stop(instance, unused_since)


@transaction.atomic
def _warn(instance: Instance, unused_since: datetime, now: datetime, stop_days: int) -> None:
    # The second of two concurrent runs waits here, and then finds the warning of the first.
    Instance.objects.select_for_update(no_key=True).get(pk=instance.pk)
    if IdleWarning.objects.filter(pk=instance.pk, idle_since=unused_since).exists():
        return
    IdleWarning.objects.update_or_create(pk=instance.pk, defaults={"idle_since": unused_since, "warned_at": now})
    stops_at = max(unused_since + timedelta(days=stop_days), now + decide.WARNING_PERIOD_MIN)
    transaction.on_commit(partial(_send, instance, unused_since, stops_at))


@transaction.atomic
def _stop(instance: Instance, unused_since: datetime) -> None:
    locked = Instance.objects.select_for_update(no_key=True).get(pk=instance.pk)
    if locked.phase_since != instance.phase_since:
        return  # the instance changed in the meantime
    try:
        instances.suspend_instance(acting=system_actor(ACTOR_NAME), instance=locked, reason=Reason.IDLE)
    except Conflict:
        return
    IdleWarning.objects.filter(pk=instance.pk).delete()
    log.info("instance_stopped_idle", instance=instance.pk, idle_since=unused_since.isoformat())


def _send(instance: Instance, unused_since: datetime, stops_at: datetime) -> None:
    members = Member.objects.filter(
        tenant=instance.tenant, role__in=MAILED_ROLES, user__is_active=True, user__email_verified_at__isnull=False
    )
    for member in members.select_related("user").order_by("pk")[:MAILS_MAX]:
        mails.send(
            "idle", member.user.email, member.user.language, instance=instance.name, tenant=instance.tenant.name,
            idle_since=unused_since, stops_at=stops_at, link=mails.public_url(f"/instances/{instance.pk}/"),
        )  # fmt: skip
