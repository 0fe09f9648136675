"""Quickstart of an instance: a topic, a user with rights and a password, sample data; and "push the limit", which shows
a quota in effect.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from django.db import transaction
from django.utils import timezone

from instances import interfaces
from instances.access import require_reachable
from instances.acls import selectors as acl_selectors
from instances.acls.presets import Preset
from instances.models import Instance, Route
from instances.naming import DEMO_CLIENT_ID
from instances.quickstart import runs
from instances.quickstart.limits import PUSH_LIMIT_BYTES_PER_S, PUSH_RUN_S, SAMPLE_RUN_S, USER_NAMES_TRIED_MAX
from instances.quickstart.pushing import DEMO_CLIENT
from instances.services.topics import create_topic, topic_ref
from instances.services.users import create_user
from instances.topics.presence import describe_topic
from instances.users.interfaces import NewSecret
from instances.users.routes import first_route, sasl_route
from quotas import services as quota_services
from tenants import access, audit
from tenants.actors import Actor
from tenants.choices import Scope
from tenants.errors import Conflict, DomainError

TOPIC = "orders"
USER = "quickstart"
# Codes of refusals of a user's name because another user has it, or one that can be restored.
NAME_TAKEN = ("already_exists", "recently_deleted")


@dataclass(frozen=True, slots=True, kw_only=True)
class Quickstart:
    """Result of a quickstart. `user` and `secret` are None on an instance without sign-in; `route` is the one for
    clients. `samples_until` is None if no sample data is sent, because too many runs are active.
    """

    topic: str
    is_topic_new: bool
    user: str | None
    secret: NewSecret | None
    route: Route | None
    samples_until: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Push:
    """A throttled run of the demo client. Its quota is removed at about `until`."""

    client_id: str
    limit_bytes_per_s: int
    until: datetime


def quickstart(
    *, acting: Actor, instance: Instance, topic: str = TOPIC, user: str | None = None, dry_run: bool = False
) -> Quickstart:
    """Creates a topic and a user that may produce and consume, and sends sample data to the topic for a minute.

    An existing topic is used. The user's default name is `quickstart`, with a number if that is taken. Raises
    `Conflict` for a `user` that exists or can be restored, and the errors of `create_topic` and `create_user`.
    """
    uses_sasl = sasl_route(instance) is not None
    is_closed = uses_sasl and not acl_selectors.allows_everyone(instance)
    required = [Scope.TOPICS_WRITE, Scope.MESSAGES_WRITE]
    required += [Scope.USERS_WRITE] if uses_sasl else []
    required += [Scope.ACLS_WRITE] if is_closed else []
    for scope in required:  # all are checked before the first change
        access.require(acting, scope)
    require_reachable(instance)
    is_topic_new = _ensure_topic(acting, instance, topic, dry_run=dry_run)
    name = secret = None
    if uses_sasl:
        rights = Preset.PRODUCE_CONSUME if is_closed else Preset.NOTHING
        name, secret = _create_user(acting, instance, user, rights, dry_run=dry_run)
    return Quickstart(
        topic=topic,
        is_topic_new=is_topic_new,
        user=name,
        secret=secret,
        route=sasl_route(instance) if uses_sasl else first_route(instance),
        samples_until=None if dry_run else _start_samples(acting, instance, topic),
    )


@audit.atomic
def push_limit(*, acting: Actor, instance: Instance, topic: str = TOPIC, dry_run: bool = False) -> Push:
    """Sets a small quota for the demo client, sends beyond it for some seconds, and removes the quota.

    Raises `NotFound` for an unknown topic, and `Conflict(already_running)` while too many runs are active.
    """
    access.require(acting, Scope.QUOTAS_WRITE)
    access.require(acting, Scope.MESSAGES_WRITE)
    require_reachable(instance)
    describe_topic(instance, topic)
    run = "" if dry_run else runs.begin(instance.tenant_id, instance.pk, runs.PUSH)
    if not run and not dry_run:
        raise Conflict("It goes on already. Try again in a minute.", code="already_running")
    limits: dict[str, float | None] = {"producer_byte_rate": float(PUSH_LIMIT_BYTES_PER_S)}
    try:
        quota_services.set_quota(
            acting=acting, instance=instance, user=None, client_id=DEMO_CLIENT, limits=limits, dry_run=dry_run
        )
    except DomainError:
        runs.end(run)
        raise
    if not dry_run:
        transaction.on_commit(partial(interfaces.push_limit.implementation, instance.pk, topic, run))
    return Push(
        client_id=DEMO_CLIENT_ID,
        limit_bytes_per_s=PUSH_LIMIT_BYTES_PER_S,
        until=timezone.now() + timedelta(seconds=PUSH_RUN_S),
    )


def _ensure_topic(acting: Actor, instance: Instance, name: str, *, dry_run: bool) -> bool:
    """Creates the topic; returns False if it exists already."""
    try:
        create_topic(acting=acting, instance=instance, name=name, dry_run=dry_run)
    except Conflict as error:
        if error.code != "already_exists":
            raise
        return False
    return True


def _create_user(
    acting: Actor, instance: Instance, wanted_name: str | None, rights: Preset, *, dry_run: bool
) -> tuple[str, NewSecret]:
    """Creates the user `wanted_name`, or one with the first default name that is not taken."""
    names = (
        [wanted_name] if wanted_name else [USER, *(f"{USER}-{number}" for number in range(2, USER_NAMES_TRIED_MAX + 1))]
    )
    for name in names:
        try:
            created, secret = create_user(acting=acting, instance=instance, name=name, rights=rights, dry_run=dry_run)
        except Conflict as error:
            if error.code not in NAME_TAKEN or name == names[-1]:
                raise
        else:
            return created.name, secret
    raise AssertionError("the last name is either created or refused")


def _start_samples(acting: Actor, instance: Instance, topic: str) -> datetime | None:
    """Starts to send sample data; returns its end, or None if too many runs are active."""
    run = runs.begin(instance.tenant_id, instance.pk)
    if not run:
        return None
    details = {"seconds": SAMPLE_RUN_S}
    audit.record(acting, "messages.samples_started", topic_ref(instance, topic), None, details, tenant=instance.tenant)
    transaction.on_commit(partial(interfaces.stream_samples.implementation, instance.pk, topic, run))
    return timezone.now() + timedelta(seconds=SAMPLE_RUN_S)
