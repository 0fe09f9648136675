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
from instances.services.group_common import listed, present, record, require_empty, write
from tenants import audit
from tenants.actors import Actor
from tenants.errors import Conflict, FieldError, Invalid, Message, NotFound, Unavailable

PLACES_SHOWN_MAX = 20
# Topics with their partitions; None stands for all of them.
Wanted = Sequence[tuple[str, Sequence[int] | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """Plan or result of a reset. `blocked_by` counts members that must stop first.

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
        """Hash of the plan. For a change to the start or end of a log it covers that word instead of the offset,
        because the ends of a log in use move before a person can confirm the plan.
        """
        changes = [(change.place, change.before, change.edge.value or change.after) for change in self.changes]
        return hashlib.sha256(repr(changes).encode()).hexdigest()[:16]


def plan_reset(*, acting: Actor, instance: Instance, group: str, target: ResetTarget, wanted: Wanted = ()) -> Reset:
    """Returns the plan of a reset without changing anything; the group may have members.

    `wanted` names topics and their partitions; an empty one stands for all partitions with an offset. Raises
    `NotFound` for an unknown group, `Invalid` with pointers for a reset that cannot be planned, and `Unavailable` if a
    leader does not answer.
    """
    description, offsets = present(acting, instance, group)
    committed = {offset.place: offset for offset in offsets}
    places = _places(instance, target, wanted, committed)
    if len(places) > RESET_PARTITIONS_MAX:
        raise Invalid.at(
            "/topics",
            Message(gettext_noop("At most %(n)s partitions at once."), n=RESET_PARTITIONS_MAX),
            code="too_many",
        )
    logs = _logs(instance, places, target)
    missing = sorted(set(places) - set(logs))
    if missing and not wanted:
        missing = _still_there(instance, missing)
    if target.aim is ResetMode.GIVEN:
        _require_known(target, sorted(set(places) - set(logs) - set(missing) - set(committed)))
    if missing:
        raise Unavailable(
            Message(
                gettext_noop("The leaders of these partitions do not answer: %(places)s."), places=_message(missing)
            ),
            retry_after_s=1,
        )
    try:
        changes = plan(target, [place for place in places if place in logs], committed, logs)
    except NoOffsetToShift as error:
        detail = Message(gettext_noop("Nothing is committed to shift: %(places)s."), places=_message(error.places))
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
    wanted: Wanted = (),
    dry_run: bool = False,
    expected: str = "",
) -> Reset:
    """Resets a group's offsets. Raises `Conflict(group_not_empty)` while it has members; see also `plan_reset`.

    `expected` is the fingerprint of the confirmed plan: another one raises `Conflict(changed_since)`.
    """
    result = plan_reset(acting=acting, instance=instance, group=group, target=target, wanted=wanted)
    require_empty(group, result.state)
    if expected and expected != result.fingerprint:
        raise Conflict("The offsets have changed since the table was made. Look at it again.", code="changed_since")
    was = {change.place: result.committed.get(change.place) for change in result.changed}
    becomes = {change.place: _committed(change) for change in result.changed}
    if not becomes:
        return result
    after = {**_aim_words(target), "offsets": listed(becomes)}
    entry = record(acting, instance, group, "group.offsets_reset", {"offsets": listed(was)}, after)
    if not dry_run:
        with audit.in_doubt(entry):
            write(instance, group, becomes, was)
    return replace(result, entry_id=entry.pk)


# --- selection of partitions ------------------------------------------------------------------------------------------


def _places(
    instance: Instance,
    target: ResetTarget,
    wanted: Sequence[tuple[str, Sequence[int] | None]],
    committed: Mapping[Partition, CommittedOffset],
) -> list[Partition]:
    if target.aim is ResetMode.GIVEN:
        assert target.given is not None
        return sorted(target.given)
    if not wanted:
        if not committed:
            raise Invalid.at("/topics", "The group has committed nothing. Name topics.", code="nothing_committed")
        return sorted(committed)
    places: set[Partition] = set()
    for at, (topic, indexes) in enumerate(wanted):
        try:
            present = {summary.index for summary in interfaces.data_plane.it.topic(instance.pk, topic).partitions}
        except NotFound:
            raise Invalid.at(f"/topics/{at}/name", "There is no such topic.", code="not_found") from None
        unknown = [index for index in indexes or () if index not in present]
        if unknown:
            detail = Message(gettext_noop("The topic has no partition %(n)s."), n=unknown[0])
            raise Invalid(
                detail, errors=[FieldError(pointer=f"/topics/{at}/partitions", detail=detail, code="not_found")]
            )
        places |= {(topic, index) for index in (present if indexes is None else indexes)}
    return sorted(places)


def _logs(instance: Instance, places: Sequence[Partition], target: ResetTarget) -> dict[Partition, Log]:
    """Returns the bounds of partitions whose leaders answer."""
    starts = group_admin_client.it.bounds(instance.pk, places, EARLIEST, fresh=True)
    ends = group_admin_client.it.bounds(instance.pk, places, LATEST, fresh=True)
    times: Mapping[Partition, int] = {}
    if target.aim is ResetMode.TIME:
        assert target.at_ms is not None
        times = group_admin_client.it.bounds(instance.pk, places, target.at_ms, fresh=True)
    return {
        place: Log(start=starts[place], end=ends[place], at_time=times.get(place))
        for place in places
        if place in starts and place in ends and (target.aim is not ResetMode.TIME or place in times)
    }


def _still_there(instance: Instance, places: Sequence[Partition]) -> list[Partition]:
    """Returns the partitions that still exist; offsets of a deleted topic are left alone."""
    left: list[Partition] = []
    for topic in sorted({place[0] for place in places}):
        try:
            indexes = {summary.index for summary in interfaces.data_plane.it.topic(instance.pk, topic).partitions}
        except NotFound:
            continue
        left += [place for place in places if place[0] == topic and place[1] in indexes]
    return left


def _require_known(target: ResetTarget, unknown: Sequence[Partition]) -> None:
    """Raises `Invalid` for partitions of a list of offsets that neither exist nor have a committed offset."""
    named = list(target.given or ())
    detail = "There is no such topic or partition."
    if unknown:
        errors = [
            FieldError(pointer=f"/offsets/{named.index(place)}", detail=detail, code="not_found") for place in unknown
        ]
        raise Invalid(detail, errors=errors)


def _committed(change: Change) -> CommittedOffset | None:
    if change.after is None:
        return None
    return CommittedOffset(topic=change.topic, partition=change.partition, offset=change.after)


def _aim_words(target: ResetTarget) -> dict[str, Any]:
    given = {"time_ms": target.at_ms, "offset": target.offset, "by": target.by}
    return {"to": target.aim.value, **{name: value for name, value in given.items() if value is not None}}


def _message(places: Iterable[Partition]) -> str:
    """Returns partitions as text: `orders/0, orders/3 and 12 more`."""
    named = [f"{topic}/{index}" for topic, index in places]
    shown = ", ".join(named[:PLACES_SHOWN_MAX])
    return shown if len(named) <= PLACES_SHOWN_MAX else f"{shown} and {len(named) - PLACES_SHOWN_MAX} more"
