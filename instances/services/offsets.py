"""Reset of a group's offsets: a plan that can be shown, and its execution.

The audit row has every offset before and after, so that an undo needs nothing else. It is written first and the admin
client is called last: a refusal by the broker rolls everything back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from django.utils.translation import gettext_noop

from instances import interfaces
from instances.groups.interfaces import EARLIEST, EMPTY_STATES, LATEST, CommittedOffset, Partition, group_admin_client
from instances.groups.offset_plans import Change, Log, NoOffsetToShift, ResetMode, ResetTarget, plan
from instances.limits import RESET_PARTITIONS_MAX
from instances.models import Instance
from instances.services.group_common import (
    changeable_group,
    offsets_for_audit,
    record_group_change,
    require_empty,
    write_offsets,
)
from tenants import audit
from tenants.actors import Actor
from tenants.errors import Conflict, FieldError, Invalid, Message, NotFound, Unavailable

PARTITIONS_LISTED_MAX = 20
# Topics with their partitions; None stands for all of them.
Selection = Sequence[tuple[str, Sequence[int] | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """Plan or result of a reset. `blocked_by` is the number of members that must stop first.

    `entry_id` is the audit row for an undo, empty if nothing was done. `committed` has the offsets before with epochs
    and metadata.
    """

    group: str
    state: str
    changes: tuple[Change, ...]
    blocked_by: int = 0
    entry_id: str = ""
    committed: Mapping[Partition, CommittedOffset] = field(default_factory=dict)

    @property
    def changed(self) -> tuple[Change, ...]:
        return tuple(change for change in self.changes if change.is_change)

    @property
    def fingerprint(self) -> str:
        """Hash of the plan. For a change to the start or end of a log, it covers that word instead of the offset,
        because the ends of a log in use move before a person can confirm the plan.
        """
        changes = [
            (change.topic_partition, change.before, change.log_end.value or change.after) for change in self.changes
        ]
        return hashlib.sha256(repr(changes).encode()).hexdigest()[:16]


def plan_reset(
    *, acting: Actor, instance: Instance, group: str, target: ResetTarget, selection: Selection = ()
) -> Reset:
    """Returns the plan of a reset without changing anything; the group may have members.

    `selection` names topics and their partitions; an empty one stands for all partitions with an offset. Raises
    `NotFound` for an unknown group, `Invalid` with pointers for a reset that cannot be planned, and `Unavailable` if a
    leader does not answer.
    """
    description, offsets = changeable_group(acting, instance, group)
    committed = {offset.topic_partition: offset for offset in offsets}
    partitions = _selected_partitions(instance, target, selection, committed)
    if len(partitions) > RESET_PARTITIONS_MAX:
        raise Invalid.at(
            "/topics",
            Message(gettext_noop("At most %(n)s partitions at once."), n=RESET_PARTITIONS_MAX),
            code="too_many",
        )
    logs = _log_bounds(instance, partitions, target)
    missing = sorted(set(partitions) - set(logs))
    if missing and not selection:
        missing = _existing_partitions(instance, missing)
    if target.mode is ResetMode.GIVEN:
        _require_existing(target, sorted(set(partitions) - set(logs) - set(missing) - set(committed)))
    if missing:
        raise Unavailable(
            Message(
                gettext_noop("The leaders of these partitions do not answer: %(places)s."),
                places=_partition_list(missing),
            ),
            retry_after_s=1,
        )
    try:
        changes = plan(target, [partition for partition in partitions if partition in logs], committed, logs)
    except NoOffsetToShift as error:
        detail = Message(
            gettext_noop("Nothing is committed to shift: %(places)s."), places=_partition_list(error.partitions)
        )
        raise Invalid.at("/by", detail, code="no_committed_offset") from None
    is_empty = description.state in EMPTY_STATES
    return Reset(
        group=group,
        state=description.state,
        changes=changes,
        blocked_by=0 if is_empty else max(1, len(description.members)),
        committed=committed,
    )


@audit.atomic
def reset_offsets(
    *,
    acting: Actor,
    instance: Instance,
    group: str,
    target: ResetTarget,
    selection: Selection = (),
    dry_run: bool = False,
    expected: str = "",
) -> Reset:
    """Resets a group's offsets. Raises `Conflict(group_not_empty)` while it has members; see also `plan_reset`.

    `expected` is the fingerprint of the confirmed plan: another one raises `Conflict(changed_since)`.
    """
    result = plan_reset(acting=acting, instance=instance, group=group, target=target, selection=selection)
    require_empty(group, result.state)
    if expected and expected != result.fingerprint:
        raise Conflict("The offsets have changed since the table was made. Look at it again.", code="changed_since")
    before = {change.topic_partition: result.committed.get(change.topic_partition) for change in result.changed}
    after_offsets = {change.topic_partition: _new_offset(change) for change in result.changed}
    if not after_offsets:
        return result
    after = {**_audited_target(target), "offsets": offsets_for_audit(after_offsets)}
    entry = record_group_change(
        acting, instance, group, "group.offsets_reset", {"offsets": offsets_for_audit(before)}, after
    )
    if not dry_run:
        with audit.in_doubt(entry):
            write_offsets(instance, group, after_offsets, before)
    return replace(result, entry_id=entry.pk)


# --- selection of partitions ------------------------------------------------------------------------------------------


def _selected_partitions(
    instance: Instance,
    target: ResetTarget,
    selection: Sequence[tuple[str, Sequence[int] | None]],
    committed: Mapping[Partition, CommittedOffset],
) -> list[Partition]:
    if target.mode is ResetMode.GIVEN:
        assert target.given is not None
        return sorted(target.given)
    if not selection:
        if not committed:
            raise Invalid.at("/topics", "The group has committed nothing. Name topics.", code="nothing_committed")
        return sorted(committed)
    partitions: set[Partition] = set()
    for position, (topic, indexes) in enumerate(selection):
        try:
            existing = {
                summary.index for summary in interfaces.data_plane.implementation.topic(instance.pk, topic).partitions
            }
        except NotFound:
            raise Invalid.at(f"/topics/{position}/name", "There is no such topic.", code="not_found") from None
        unknown = [index for index in indexes or () if index not in existing]
        if unknown:
            detail = Message(gettext_noop("The topic has no partition %(n)s."), n=unknown[0])
            raise Invalid(
                detail, errors=[FieldError(pointer=f"/topics/{position}/partitions", detail=detail, code="not_found")]
            )
        partitions |= {(topic, index) for index in (existing if indexes is None else indexes)}
    return sorted(partitions)


def _log_bounds(instance: Instance, partitions: Sequence[Partition], target: ResetTarget) -> dict[Partition, Log]:
    """Returns the bounds of partitions whose leaders answer."""
    starts = group_admin_client.implementation.bounds(instance.pk, partitions, EARLIEST, fresh=True)
    ends = group_admin_client.implementation.bounds(instance.pk, partitions, LATEST, fresh=True)
    times: Mapping[Partition, int] = {}
    if target.mode is ResetMode.TIME:
        assert target.at_ms is not None
        times = group_admin_client.implementation.bounds(instance.pk, partitions, target.at_ms, fresh=True)
    return {
        partition: Log(start=starts[partition], end=ends[partition], at_time=times.get(partition))
        for partition in partitions
        if partition in starts and partition in ends and (target.mode is not ResetMode.TIME or partition in times)
    }


def _existing_partitions(instance: Instance, partitions: Sequence[Partition]) -> list[Partition]:
    """Returns the partitions that still exist; offsets of a deleted topic are ignored."""
    existing: list[Partition] = []
    for topic in sorted({partition[0] for partition in partitions}):
        try:
            indexes = {
                summary.index for summary in interfaces.data_plane.implementation.topic(instance.pk, topic).partitions
            }
        except NotFound:
            continue
        existing += [partition for partition in partitions if partition[0] == topic and partition[1] in indexes]
    return existing


def _require_existing(target: ResetTarget, unknown: Sequence[Partition]) -> None:
    """Raises `Invalid` for partitions of a list of offsets that neither exist nor have a committed offset."""
    partitions = list(target.given or ())
    detail = "There is no such topic or partition."
    if unknown:
        errors = [
            FieldError(pointer=f"/offsets/{partitions.index(partition)}", detail=detail, code="not_found")
            for partition in unknown
        ]
        raise Invalid(detail, errors=errors)


def _new_offset(change: Change) -> CommittedOffset | None:
    if change.after is None:
        return None
    return CommittedOffset(topic=change.topic, partition=change.partition, offset=change.after)


def _audited_target(target: ResetTarget) -> dict[str, Any]:
    values = {"time_ms": target.at_ms, "offset": target.offset, "by": target.by}
    return {"to": target.mode.value, **{name: value for name, value in values.items() if value is not None}}


def _partition_list(partitions: Iterable[Partition]) -> str:
    """Returns partitions as text: `orders/0, orders/3 and 12 more`."""
    texts = [f"{topic}/{index}" for topic, index in partitions]
    listed = ", ".join(texts[:PARTITIONS_LISTED_MAX])
    return listed if len(texts) <= PARTITIONS_LISTED_MAX else f"{listed} and {len(texts) - PARTITIONS_LISTED_MAX} more"
