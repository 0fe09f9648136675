"""Conversion of the log of operations into the sizes that an instance had over time: pure.

An instance is charged from the moment it first ran. A change of size counts from its confirmation by all brokers, a
suspension and a deletion from the request, the end of a suspension from its confirmation. The time between a deletion
and its restoration is free. A failed operation has no effect, unless it is a deletion.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from billing.rating.terms import SizeSpan
from instances.choices import OperationType

DELETIONS = (OperationType.DELETE, OperationType.PURGE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeChange:
    """One operation of an instance, with the state of the instance after it succeeded.

    `done_at` is None for an operation that failed or is not finished.
    """

    type: str
    requested_at: datetime
    done_at: datetime | None
    plan: str
    bandwidth_mb_s: int
    storage_gb: int
    is_suspended: bool


@dataclass(frozen=True, slots=True)
class _Effect:
    """State from `at` on: the size of the change, or no charges after a deletion."""

    at: datetime
    change: SizeChange
    kind: str


def spans(changes: Sequence[SizeChange]) -> list[SizeSpan]:
    """Returns the spans of one instance, oldest first, without overlaps; the last has no end while the instance exists.

    `changes` may be in any order. Each describes the whole state of the instance, including changes requested before
    it, so one that is confirmed after a later request is ignored.
    """
    effects = [effect for change in changes if (effect := _effect(change)) is not None]
    effects.sort(key=lambda effect: effect.at)
    result: list[SizeSpan] = []
    current: SizeSpan | None = None
    has_run = False
    latest = effects[0].change.requested_at if effects else None
    for effect in effects:
        change, at = effect.change, effect.at
        if latest is not None and change.requested_at < latest:
            continue
        if effect.kind in DELETIONS:
            next_span = None
        elif effect.kind == OperationType.CREATE or has_run:
            has_run = True
            if current is None and effect.kind not in (OperationType.CREATE, OperationType.RESTORE):
                continue  # it took effect while the instance was deleted
            next_span = SizeSpan(
                plan=change.plan,
                bandwidth_mb_s=change.bandwidth_mb_s,
                storage_gb=change.storage_gb,
                start=at,
                end=None,
                only_storage=change.is_suspended,
            )
        else:
            continue
        latest = change.requested_at
        if current is not None and next_span is not None and replace(next_span, start=current.start) == current:
            continue
        if current is not None and at > current.start:
            result.append(replace(current, end=at))
        current = next_span
    if current is not None:
        result.append(current)
    return result


def _effect(change: SizeChange) -> _Effect | None:
    """Returns the effect of an operation; None if it never took effect. Deletions take effect when requested."""
    if change.type in DELETIONS:
        return _Effect(change.requested_at, change, change.type)
    if change.done_at is None:
        return None
    at = change.requested_at if change.type in (OperationType.SUSPEND, OperationType.RESTORE) else change.done_at
    return _Effect(at, change, change.type)
