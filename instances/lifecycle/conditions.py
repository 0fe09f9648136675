"""Conditions of a running instance: its brokers answer, its partitions have leaders, it has storage left, its retention
was not shortened, and its storage grows as configured. Pure.

A condition is `{type, status, message, since, data}` in the instance's row: `message` is for programs, `data` for the
console, which shows it in the reader's language. It is an alert that fires while its status is false. A missing
condition has never been false.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from instances.choices import ConditionType
from instances.metrics.storage_use import FULL_PERCENT, is_storage_full, used_percent
from tenants.alert_state import (
    FACT_TERMS,
    AlertLevel,
    AlertState,
    AlertStatus,
    AlertTerms,
    Sample,
    Transition,
    advance,
    transition,
)
from tenants.formatting import from_ms
from tenants.message_field import entries

OBSERVED = (
    ConditionType.BROKERS_ANSWER.value,
    ConditionType.PARTITIONS_LED.value,
    ConditionType.STORAGE_AVAILABLE.value,
    ConditionType.RETENTION_KEPT.value,
    ConditionType.STORAGE_GROWS.value,
)
PARTITIONS_NAMED_MAX = 5
# Percent of the bought storage at which the tenant is warned; at the last one produce is refused.
STORAGE_FULL_PERCENT = FULL_PERCENT
STORAGE_LEVELS = (80, 90, STORAGE_FULL_PERCENT)
# A warning ends when usage is lower by this much, so that it does not change with every segment.
STORAGE_HYSTERESIS_PERCENT = 2
# Full storage has no such margin here: brokers apply one themselves, and report while they still refuse produce.
STORAGE_TERMS = AlertTerms(
    levels=tuple(
        AlertLevel(
            number=percent,
            fires_at=percent,
            ends_below=percent if percent == STORAGE_FULL_PERCENT else percent - STORAGE_HYSTERESIS_PERCENT,
        )
        for percent in STORAGE_LEVELS
    )
)

Condition = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderlessPartitions:
    """Partitions of one instance without a leader: their number, and some of them as `topic/partition`."""

    count: int = 0
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageUsed:
    """The stored bytes of an instance, all replicas; `is_full`: its brokers refuse produce because of that."""

    used_bytes: int = 0
    is_full: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortenedRetention:
    """The retention of an instance that was shortened because it was nearly full: for some topics, the minute of the
    oldest remaining record, in ms since 1970.
    """

    topics: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One observation of one instance. `silent` has the ids of brokers that did not answer. `leaderless`, `storage` and
    `shortened` are None if they are not known; then their conditions do not change.
    """

    at: datetime
    silent: frozenset[int] = frozenset()
    leaderless: LeaderlessPartitions | None = None
    storage: StorageUsed | None = None
    shortened: ShortenedRetention | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A condition that is false at the moment."""

    type: str
    since: datetime
    data: Mapping[str, Any]


def after_observation(
    conditions: Sequence[Condition], observation: Observation, *, bought_bytes: int
) -> list[Condition]:
    """Returns the conditions after an observation."""
    brokers, now = sorted(observation.silent), observation.at
    status = _advance(conditions, ConditionType.BROKERS_ANSWER, len(brokers), now)
    result = _with_condition(
        conditions, ConditionType.BROKERS_ANSWER, status, _unresponsive_message(brokers), {"brokers": brokers}
    )
    leaderless = observation.leaderless
    if leaderless is not None:
        status = _advance(conditions, ConditionType.PARTITIONS_LED, leaderless.count, now)
        data = {"count": leaderless.count, "partitions": list(leaderless.names[:PARTITIONS_NAMED_MAX])}
        result = _with_condition(result, ConditionType.PARTITIONS_LED, status, _leaderless_message(leaderless), data)
    if observation.storage is not None:
        percent = _storage_percent(observation.storage, bought_bytes)
        status = _advance(conditions, ConditionType.STORAGE_AVAILABLE, percent, now, STORAGE_TERMS)
        message = _storage_message(status.level)
        result = _with_condition(result, ConditionType.STORAGE_AVAILABLE, status, message, {"percent": status.level})
    if observation.shortened is not None:
        topics = list(map(list, observation.shortened.topics))
        status = _advance(conditions, ConditionType.RETENTION_KEPT, len(topics), now)
        result = _with_condition(
            result, ConditionType.RETENTION_KEPT, status, _shortened_message(topics), {"topics": topics}
        )
    return result


def after_growth_refused(conditions: Sequence[Condition], code: str, detail: str, now: datetime) -> list[Condition]:
    """Returns the conditions after growth of the storage was refused."""
    data = {"code": code, **entries("detail", detail), "tried_at": now.isoformat()}
    status = _advance(conditions, ConditionType.STORAGE_GROWS, 1, now)
    return _with_condition(conditions, ConditionType.STORAGE_GROWS, status, f"Storage does not grow: {detail}", data)


def after_growth_possible(conditions: Sequence[Condition], now: datetime) -> list[Condition]:
    """Returns the conditions after the storage grew, or when it need not grow."""
    status = _advance(conditions, ConditionType.STORAGE_GROWS, 0, now)
    return _with_condition(conditions, ConditionType.STORAGE_GROWS, status, "", {})


def growth_refused_at(conditions: Iterable[Condition]) -> datetime | None:
    """Returns when growth was last refused, while that condition is false."""
    kind = ConditionType.STORAGE_GROWS.value
    faults = (fault for fault in faults_of(conditions) if fault.type == kind)
    return next((datetime.fromisoformat(fault.data["tried_at"]) for fault in faults), None)


def _storage_percent(used: StorageUsed, bought_bytes: int) -> int:
    """Returns the used part of the storage; at least 100 while brokers refuse produce."""
    percent = used_percent(used.used_bytes, bought_bytes)
    is_full = is_storage_full(used.used_bytes, bought_bytes, is_refused=used.is_full)
    return max(percent, STORAGE_FULL_PERCENT) if is_full else percent


def observed_only(conditions: Iterable[Condition]) -> list[Condition]:
    """Returns the observed conditions, for callers that rewrite the others."""
    return [condition for condition in conditions if condition["type"] in OBSERVED]


def transitions_between(old: Sequence[Condition], new: Iterable[Condition]) -> list[tuple[Condition, Transition]]:
    """Returns the new conditions that began or ceased to be false, or reached another level."""
    changes = []
    for condition in new:
        kind = condition["type"]
        if kind in OBSERVED and (change := transition(_status_of(old, kind), _status_of([condition], kind))):
            changes.append((condition, change))
    return changes


def faults_of(conditions: Iterable[Condition]) -> list[Fault]:
    """Returns the conditions that are false."""
    return [
        Fault(
            type=condition["type"], since=datetime.fromisoformat(condition["since"]), data=condition.get("data") or {}
        )
        for condition in conditions
        if condition["type"] in OBSERVED and not condition["status"]
    ]


def _advance(
    conditions: Iterable[Condition], kind: ConditionType, value: int, now: datetime, terms: AlertTerms = FACT_TERMS
) -> AlertStatus:
    return advance(_status_of(conditions, kind.value), terms, Sample(value=value), now)


def _status_of(conditions: Iterable[Condition], kind: str) -> AlertStatus:
    """Returns the state of the alert that is stored as a condition."""
    condition = next((condition for condition in conditions if condition["type"] == kind), None)
    if condition is None:
        return AlertStatus()
    since = datetime.fromisoformat(condition["since"])
    if condition["status"]:
        return AlertStatus(state=AlertState.RESOLVED, since=since)
    return AlertStatus(state=AlertState.FIRING, since=since, level=int(condition["data"].get("percent", 1)))


def _with_condition(
    conditions: Sequence[Condition], kind: ConditionType, status: AlertStatus, message: str, data: dict[str, Any]
) -> list[Condition]:
    """Returns the conditions with that of a kind replaced."""
    if status.since is None:
        return list(conditions)
    new = {
        "type": kind.value, "status": not status.fires, "message": message, "since": status.since.isoformat(),
        "data": data,
    }  # fmt: skip
    return [*(condition for condition in conditions if condition["type"] != kind.value), new]


def _unresponsive_message(brokers: list[int]) -> str:
    return f"Silent: broker {', '.join(map(str, brokers))}." if brokers else ""


def _leaderless_message(leaderless: LeaderlessPartitions) -> str:
    if not leaderless.count:
        return ""
    names = leaderless.names[:PARTITIONS_NAMED_MAX]
    more = "" if leaderless.count <= len(names) else f" and {leaderless.count - len(names)} more"
    return f"Without a leader: {', '.join(names)}{more}."


def _shortened_message(topics: Sequence[Sequence[Any]]) -> str:
    """Returns the message; times in UTC."""
    if not topics:
        return ""
    oldest_records = (f"{name} from {_minute(from_ms(oldest_ms))}" for name, oldest_ms in topics)
    return f"Retention was shortened. Oldest record kept: {', '.join(oldest_records)}."


def _minute(instant: datetime | None) -> str:
    """Returns the minute of a record's timestamp, which clients set freely, even to microseconds."""
    return "an unknown time" if instant is None else f"{instant:%Y-%m-%d %H:%M}"


def _storage_message(level: int) -> str:
    if level == STORAGE_FULL_PERCENT:
        return "The storage bought is used up: produce is refused until less than 98 % is used."
    return f"{level} % of the storage bought is used." if level else ""
