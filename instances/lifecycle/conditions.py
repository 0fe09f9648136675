"""Conditions that come and go while an instance runs: whether its brokers answer and its partitions are led. Pure.

A condition is `{type, status, message, since, data}` in the instance's row: `message` is for programs, `data` for the
console, which says the same in the reader's language. One that is not there has never been false.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from instances.choices import ConditionType

OBSERVED = (ConditionType.BROKERS_ANSWER.value, ConditionType.PARTITIONS_LED.value)
PARTITIONS_NAMED_MAX = 5

Condition = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaderless:
    """Partitions of one instance that nobody leads: how many, and some of them as `topic/partition`."""

    count: int = 0
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A condition that is false at the moment."""

    type: str
    since: datetime
    data: Mapping[str, Any]


def observed(
    conditions: Sequence[Condition], *, silent: Iterable[int], leaderless: Leaderless | None, now: datetime
) -> list[Condition]:
    """The conditions after a look; `leaderless` None is not known, and then what was said of it stays."""
    brokers = sorted(silent)
    result = _put(
        conditions, ConditionType.BROKERS_ANSWER, not brokers, _silent_words(brokers), {"brokers": brokers}, now
    )
    if leaderless is None:
        return result
    data = {"count": leaderless.count, "partitions": list(leaderless.names[:PARTITIONS_NAMED_MAX])}
    return _put(result, ConditionType.PARTITIONS_LED, not leaderless.count, _leaderless_words(leaderless), data, now)


def kept(conditions: Iterable[Condition]) -> list[Condition]:
    """Those that are observed, for who writes the others anew."""
    return [condition for condition in conditions if condition["type"] in OBSERVED]


def changed(old: Iterable[Condition], new: Iterable[Condition]) -> list[Condition]:
    """The new conditions whose status is another one: what begins or ends."""
    before = {item["type"]: item["status"] for item in old}
    return [item for item in new if item["type"] in OBSERVED and before.get(item["type"], True) != item["status"]]


def faults_of(conditions: Iterable[Condition]) -> list[Fault]:
    """What is wrong at the moment."""
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
