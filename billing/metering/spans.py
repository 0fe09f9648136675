"""From the log of operations to the sizes an instance had, and for how long: pure.

An instance is charged from the moment it first ran. A change of its size counts from when all brokers confirmed it, a
suspension and a deletion from when they were asked for, the end of a suspension from when it was confirmed. The time
between a deletion and its undoing is free, and so is whatever failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from billing.rating.terms import SizeSpan
from instances.choices import OperationType

ENDINGS = (OperationType.DELETE, OperationType.PURGE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeChange:
    """One operation of an instance, and what the instance has and is once it succeeded. `done_at` is None for one that
    failed, or is not over.
    """

    type: str
    asked_at: datetime
    done_at: datetime | None
    plan: str
    bandwidth_mb_s: int
    storage_gb: int
    is_suspended: bool


@dataclass(frozen=True, slots=True)
class _Effect:
    """What is so from `at` on. `span` without an end says the size; None: nothing is charged."""

    at: datetime
    change: SizeChange
    kind: str


def spans(changes: Sequence[SizeChange]) -> list[SizeSpan]:
    """The spans of one instance, oldest first; they do not overlap, and the last has no end while it exists.

    `changes` in any order. Each says all that an instance has and is, those asked for before it included: one that is
    confirmed later than a change that was asked for after it says nothing new.
    """
    effects = [effect for change in changes if (effect := _effect(change)) is not None]
    effects.sort(key=lambda effect: effect.at)
    result: list[SizeSpan] = []
    present: SizeSpan | None = None
    has_run = False
    latest = effects[0].change.asked_at if effects else None
    for effect in effects:
        change, at = effect.change, effect.at
        if latest is not None and change.asked_at < latest:
            continue
        if effect.kind in ENDINGS:
            wanted = None
        elif effect.kind == OperationType.CREATE or has_run:
            has_run = True
            if present is None and effect.kind not in (OperationType.CREATE, OperationType.RESTORE):
                continue  # it ended while it was deleted
            wanted = SizeSpan(
                plan=change.plan,
                bandwidth_mb_s=change.bandwidth_mb_s,
                storage_gb=change.storage_gb,
                start=at,
                end=None,
                only_storage=change.is_suspended,
            )
        else:
            continue
        latest = change.asked_at
        if present is not None and wanted is not None and replace(wanted, start=present.start) == present:
            continue
        if present is not None and at > present.start:
            result.append(replace(present, end=at))
        present = wanted
    if present is not None:
        result.append(present)
    return result


def _effect(change: SizeChange) -> _Effect | None:
    """When an operation takes effect; None where it never did. A deletion ends at once what is charged."""
    if change.type in ENDINGS:
        return _Effect(change.asked_at, change, change.type)
    if change.done_at is None:
        return None
    at = change.asked_at if change.type in (OperationType.SUSPEND, OperationType.RESTORE) else change.done_at
    return _Effect(at, change, change.type)
