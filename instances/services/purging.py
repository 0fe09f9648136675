"""Purge of a topic: deletion of its records below an offset or older than an instant. The topic stays.

The plan can be shown first. Brokers then delete exactly up to its offsets, even if records arrive meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from django.db import transaction
from django.utils.translation import gettext_noop

from instances import interfaces
from instances.access import require_reachable
from instances.groups.interfaces import EARLIEST, LATEST, group_admin_client
from instances.models import Instance
from instances.services.common import lock_topic
from instances.services.topics import refresh_topic_list_on_commit, topic_ref
from instances.topics.presence import describe_topic
from instances.topics.purging import (
    ERRORS_SHOWN_MAX,
    PartitionBounds,
    PartitionPurge,
    PurgeTarget,
    missing_partitions,
    plan,
    require_deletable,
)
from tenants import access, audit
from tenants.actors import Actor
from tenants.choices import Scope
from tenants.errors import DomainError, FieldError, Invalid, Message, OutcomeUnknown, Unavailable
from tenants.models import AuditEntry

RECORDS_DELETED = "topic.records_deleted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Purge:
    """Plan or result of a purge of one topic. `errors` has the error of each partition for which it was refused."""

    topic: str
    partitions: tuple[PartitionPurge, ...]
    errors: Mapping[int, DomainError] = field(default_factory=dict)

    @property
    def purged(self) -> tuple[PartitionPurge, ...]:
        """Partitions that lose messages."""
        return tuple(
            partition for partition in self.partitions if partition.messages and partition.partition not in self.errors
        )

    @property
    def messages(self) -> int:
        return sum(partition.messages for partition in self.purged)

    @property
    def offsets(self) -> dict[int, int]:
        """New first offset of each partition that loses messages."""
        return {partition.partition: partition.first_offset for partition in self.purged}


class _PartlyRefused(Exception):
    """The purge was refused for the partitions in `errors`."""

    def __init__(self, errors: Mapping[int, DomainError]) -> None:
        super().__init__(f"{len(errors)} partitions refused")
        self.errors = errors


def plan_purge(*, acting: Actor, instance: Instance, topic: str, target: PurgeTarget) -> Purge:
    """Returns the plan of a purge without changing anything.

    Raises `NotFound` for an unknown topic, `Conflict(policy_violation)` for one that is only compacted, `Invalid` for
    an unknown partition or offset, and `Unavailable` if a leader does not answer.
    """
    access.require(acting, Scope.TOPICS_WRITE)
    require_reachable(instance)
    description = describe_topic(instance, topic)
    existing = [partition.index for partition in description.partitions]
    missing = missing_partitions(target, existing)
    if missing:
        raise Invalid(
            Message(gettext_noop("The topic has no such partition.")),
            errors=[
                FieldError(
                    pointer=f"/before/{index}",
                    detail=Message(gettext_noop("The topic has no partition %(n)s."), n=index),
                    code="not_found",
                )
                for index in missing[:ERRORS_SHOWN_MAX]
            ],
        )
    require_deletable(
        {entry.name: entry.value for entry in interfaces.data_plane.implementation.topic_config(instance.pk, topic)}
    )
    selected = existing if target.offsets is None else sorted(target.offsets)
    return Purge(topic=topic, partitions=plan(target, _bounds(instance, topic, selected, target.at_ms)))


@audit.atomic
def purge_topic(*, acting: Actor, instance: Instance, topic: str, target: PurgeTarget, dry_run: bool = False) -> Purge:
    """Deletes records permanently. If only some partitions refuse, their errors are in `errors` of the result.

    Raises the errors of `plan_purge`, and the first refusal if no partition was purged.
    """
    lock_topic(instance, topic)
    purge = plan_purge(acting=acting, instance=instance, topic=topic, target=target)
    if dry_run or not purge.offsets:
        return purge
    refresh_topic_list_on_commit(instance)
    try:
        with transaction.atomic():  # rolled back after a partial refusal, for an audit row of what was deleted
            _purge(acting, instance, purge)
    except _PartlyRefused as refusal:
        partial_purge = replace(purge, errors=dict(refusal.errors))
        if not partial_purge.purged:
            raise next(iter(refusal.errors.values())) from None
        _record(acting, instance, partial_purge)
        return partial_purge
    return purge


def _purge(acting: Actor, instance: Instance, purge: Purge) -> None:
    entry = _record(acting, instance, purge)
    with audit.in_doubt(entry):
        errors = interfaces.delete_records.implementation(instance.pk, purge.topic, purge.offsets)
        doubt = next((error for error in errors.values() if isinstance(error, OutcomeUnknown)), None)
        if doubt is not None:
            raise doubt
    if errors:
        raise _PartlyRefused(errors)


def _record(acting: Actor, instance: Instance, purge: Purge) -> AuditEntry:
    purged = purge.purged
    before = {"offsets": [[partition.partition, partition.start] for partition in purged]}
    after = {
        "partitions": len(purged),
        "messages": purge.messages,
        "offsets": [[partition.partition, partition.first_offset] for partition in purged],
    }
    ref = topic_ref(instance, purge.topic)
    return audit.record(acting, RECORDS_DELETED, ref, before, after, tenant=instance.tenant)


def _bounds(instance: Instance, topic: str, partitions: Sequence[int], at_ms: int | None) -> dict[int, PartitionBounds]:
    """Returns the bounds of partitions from their leaders. Raises `Unavailable` if one does not answer."""
    topic_partitions = [(topic, index) for index in partitions]
    admin_client = group_admin_client.implementation
    starts = admin_client.bounds(instance.pk, topic_partitions, EARLIEST, fresh=True)
    ends = admin_client.bounds(instance.pk, topic_partitions, LATEST, fresh=True)
    times = {} if at_ms is None else admin_client.bounds(instance.pk, topic_partitions, at_ms, fresh=True)
    missing = [
        topic_partition[1]
        for topic_partition in topic_partitions
        if topic_partition not in starts
        or topic_partition not in ends
        or (at_ms is not None and topic_partition not in times)
    ]
    if missing:
        raise Unavailable(
            Message(
                gettext_noop("The leaders of these partitions do not answer: %(places)s."),
                places=", ".join(str(index) for index in missing[:ERRORS_SHOWN_MAX]),
            ),
            retry_after_s=1,
        )
    return {
        topic_partition[1]: PartitionBounds(
            start=starts[topic_partition],
            end=ends[topic_partition],
            at_time=times.get(topic_partition) if at_ms is not None else None,
        )
        for topic_partition in topic_partitions
    }
