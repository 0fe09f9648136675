"""Conditions of a running instance: its brokers answer, its partitions have leaders, it has storage left, nothing was
deleted prematurely, and it grows as configured. Pure.

A condition is `{type, status, message, since, data}` in the instance's row: `message` is for programs, `data` for the
console, which shows it in the reader's language. A missing condition has never been false.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from instances.choices import ConditionType
from instances.metrics.storage_use import FULL_PERCENT, is_storage_full, used_percent
from tenants.formatting import from_ms

OBSERVED = (
    ConditionType.BROKERS_ANSWER.value,
    ConditionType.PARTITIONS_LED.value,
    ConditionType.STORAGE_AVAILABLE.value,
    ConditionType.RETENTION_KEPT.value,
    ConditionType.STORAGE_GROWS.value,
)
PARTITIONS_NAMED_MAX = 5
# Percent of the bought storage at which the tenant is warned; at the last one produce is refused.
STORAGE_FULL = FULL_PERCENT
STORAGE_LEVELS = (80, 90, STORAGE_FULL)
# A warning ends when usage is lower by this much, so that it does not change with every segment.
STORAGE_BACK_PERCENT = 2

Condition = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaderless:
    """Partitions of one instance without a leader: their number, and some of them as `topic/partition`."""

    count: int = 0
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageUsed:
    """The stored bytes of an instance, all replicas; `is_full`: its brokers refuse produce because of that."""

    used_bytes: int = 0
    is_full: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortened:
    """The retention of an instance that was shortened because it was nearly full: for some topics, the minute of the
    oldest remaining record, in ms since 1970.
    """

    topics: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One observation of one instance. `leaderless`, `storage` or `shortened` None is not known, and leaves the
    condition unchanged.
    """

    at: datetime
    silent: frozenset[int] = frozenset()
    leaderless: Leaderless | None = None
    storage: StorageUsed | None = None
    shortened: Shortened | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A condition that is false at the moment."""

    type: str
    since: datetime
    data: Mapping[str, Any]


def observed(conditions: Sequence[Condition], seen: Observation, *, bought_bytes: int) -> list[Condition]:
    """Returns the conditions after an observation."""
    brokers, now = sorted(seen.silent), seen.at
    result = _put(
        conditions, ConditionType.BROKERS_ANSWER, not brokers, _silent_words(brokers), {"brokers": brokers}, now
    )
    leaderless = seen.leaderless
    if leaderless is not None:
        data = {"count": leaderless.count, "partitions": list(leaderless.names[:PARTITIONS_NAMED_MAX])}
        result = _put(
            result, ConditionType.PARTITIONS_LED, not leaderless.count, _leaderless_words(leaderless), data, now
        )
    if seen.storage is not None:
        level = storage_level(seen.storage, bought_bytes, _level_of(conditions))
        result = _put(
            result, ConditionType.STORAGE_AVAILABLE, not level, _storage_words(level), {"percent": level}, now
        )
    if seen.shortened is not None:
        topics = list(map(list, seen.shortened.topics))
        result = _put(
            result, ConditionType.RETENTION_KEPT, not topics, _shortened_words(topics), {"topics": topics}, now
        )
    return result


def growth_refused(conditions: Sequence[Condition], code: str, detail: str, now: datetime) -> list[Condition]:
    """Returns the conditions after growth of the storage was refused."""
    data = {"code": code, "detail": detail, "tried_at": now.isoformat()}
    return _put(conditions, ConditionType.STORAGE_GROWS, False, f"Storage does not grow: {detail}", data, now)


def growth_possible(conditions: Sequence[Condition], now: datetime) -> list[Condition]:
    """Returns the conditions after the storage grew, or when it need not grow."""
    return _put(conditions, ConditionType.STORAGE_GROWS, True, "", {}, now)


def growth_tried_at(conditions: Iterable[Condition]) -> datetime | None:
    """Returns when growth was last refused, while that condition is false."""
    kind = ConditionType.STORAGE_GROWS.value
    faults = (fault for fault in faults_of(conditions) if fault.type == kind)
    return next((datetime.fromisoformat(fault.data["tried_at"]) for fault in faults), None)


def storage_level(used: StorageUsed, bought_bytes: int, before: int) -> int:
    """Returns the reached level, 0 for none; `before` is left only when usage is clearly lower."""
    if is_storage_full(used.used_bytes, bought_bytes, is_refused=used.is_full):
        return STORAGE_FULL
    percent = used_percent(used.used_bytes, bought_bytes)
    reached = max((level for level in STORAGE_LEVELS if percent >= level), default=0)
    if reached < before < STORAGE_FULL and percent >= before - STORAGE_BACK_PERCENT:
        return before
    return reached


def _level_of(conditions: Iterable[Condition]) -> int:
    """Returns the last reported level of storage."""
    kind = ConditionType.STORAGE_AVAILABLE.value
    return next((int(condition["data"].get("percent", 0)) for condition in conditions if condition["type"] == kind), 0)


def kept(conditions: Iterable[Condition]) -> list[Condition]:
    """Returns the observed conditions, for callers that rewrite the others."""
    return [condition for condition in conditions if condition["type"] in OBSERVED]


def changed(old: Iterable[Condition], new: Iterable[Condition]) -> list[Condition]:
    """Returns the new conditions whose status changed. For storage each level counts as a change."""
    old = list(old)
    before = {condition["type"]: condition["status"] for condition in old}
    kind = ConditionType.STORAGE_AVAILABLE.value
    is_other_level = _level_of(old) != _level_of(new := list(new))
    return [
        condition
        for condition in new
        if condition["type"] in OBSERVED
        and (
            before.get(condition["type"], True) != condition["status"] or (condition["type"] == kind and is_other_level)
        )
    ]


def faults_of(conditions: Iterable[Condition]) -> list[Fault]:
    """Returns the conditions that are false."""
    return [
        Fault(
            type=condition["type"], since=datetime.fromisoformat(condition["since"]), data=condition.get("data") or {}
        )
        for condition in conditions
        if condition["type"] in OBSERVED and not condition["status"]
    ]


def _put(
    conditions: Sequence[Condition],
    kind: ConditionType,
    status: bool,
    message: str,
    data: dict[str, Any],
    now: datetime,
) -> list[Condition]:
    old = next((condition for condition in conditions if condition["type"] == kind.value), None)
    if old is None and status:
        return list(conditions)
    since = old["since"] if old is not None and old["status"] == status else now.isoformat()
    new = {"type": kind.value, "status": status, "message": message, "since": since, "data": data}
    others = [condition for condition in conditions if condition["type"] != kind.value]
    return [*others, new]


def _silent_words(brokers: list[int]) -> str:
    return f"Silent: broker {', '.join(map(str, brokers))}." if brokers else ""


def _leaderless_words(leaderless: Leaderless) -> str:
    if not leaderless.count:
        return ""
    names = leaderless.names[:PARTITIONS_NAMED_MAX]
    more = "" if leaderless.count <= len(names) else f" and {leaderless.count - len(names)} more"
    return f"Without a leader: {', '.join(names)}{more}."


def _shortened_words(topics: Sequence[Sequence[Any]]) -> str:
    """Returns the message; times in UTC."""
    if not topics:
        return ""
    kept = (f"{name} from {_minute(from_ms(oldest_ms))}" for name, oldest_ms in topics)
    return f"Retention was shortened. Oldest record kept: {', '.join(kept)}."


def _minute(instant: datetime | None) -> str:
    """Returns the minute of a record's timestamp, which clients set freely, even to microseconds."""
    return "an unknown time" if instant is None else f"{instant:%Y-%m-%d %H:%M}"


def _storage_words(level: int) -> str:
    if level == STORAGE_FULL:
        return "The storage bought is used up: produce is refused until less than 98 % is used."
    return f"{level} % of the storage bought is used." if level else ""
