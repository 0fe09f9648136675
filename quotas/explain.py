"""Explanation of the quota rule that applies to a client, by the eight levels of QUO-2. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from quotas.precedence import Entity, candidates, resolve

QuotaKey = Literal["producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"]
QUOTA_KEYS: tuple[QuotaKey, ...] = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
)

Unit = Literal["bytes_per_s", "percent", "partitions_per_s"]
BYTES_PER_S: Unit = "bytes_per_s"
# Percent of the time of one broker's event loop, which corresponds to Kafka's request threads.
UNITS: dict[str, Unit] = {
    "producer_byte_rate": BYTES_PER_S,
    "consumer_byte_rate": BYTES_PER_S,
    "request_percentage": "percent",
    "controller_mutation_rate": "partitions_per_s",
}

# Description of each level, in order of precedence.
LEVEL_NAMES: dict[int, str] = {
    1: "this user with this client id",
    2: "this user with any client id",
    3: "this user",
    4: "any user with this client id",
    5: "any user with any client id",
    6: "any user",
    7: "this client id",
    8: "any client id",
}
SHARED_BY: dict[int, str] = {
    1: "all connections of this user and client id",
    2: "all connections of this user and client id",
    3: "all connections of this user",
    4: "all connections of this user and client id",
    5: "all connections of this user and client id",
    6: "all connections of this user",
    7: "all connections with this client id",
    8: "all connections with this client id",
}

# `not_asked`: the level is not looked up, because the client has no user or no client id.
Verdict = Literal["applies", "not_set", "weaker", "not_asked"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelView:
    """Result for one level and one quota key: the level's limit if it has one, and the verdict with its reason."""

    level: int
    name: str
    limit: float | None
    verdict: Verdict
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveLimit:
    """Limit in force for one quota key, with the rule that sets it; a `limit` of None means unlimited."""

    quota: QuotaKey
    unit: Unit
    limit: float | None
    level: int | None
    name: str
    shared_by: str
    levels: tuple[LevelView, ...]


Limits = Mapping[tuple[bool, str | None, bool, str | None], Mapping[str, float]]


def explain(limits: Limits, *, user: str, client_id: str) -> tuple[EffectiveLimit, ...]:
    """Returns the limit in force for each of the four quota keys. Keys of `limits` equal `precedence.Entity`."""
    return tuple(_explain_quota(limits, quota, user, client_id) for quota in QUOTA_KEYS)


def _explain_quota(limits: Limits, quota: QuotaKey, user: str, client_id: str) -> EffectiveLimit:
    rule = resolve(limits, quota, user, client_id)
    entity_by_level = dict(candidates(user, client_id))
    levels = tuple(
        _explain_level(level, entity_by_level.get(level), limits, quota, rule.level if rule else None)
        for level in LEVEL_NAMES
    )
    if rule is None:
        return EffectiveLimit(
            quota=quota, unit=UNITS[quota], limit=None, level=None, name="no rule", shared_by="nobody", levels=levels
        )
    return EffectiveLimit(
        quota=quota,
        unit=UNITS[quota],
        limit=rule.limit,
        level=rule.level,
        name=LEVEL_NAMES[rule.level],
        shared_by=SHARED_BY[rule.level],
        levels=levels,
    )


def _explain_level(
    level: int, entity: Entity | None, limits: Limits, quota: QuotaKey, applied_level: int | None
) -> LevelView:
    if entity is None:
        return LevelView(
            level=level,
            name=LEVEL_NAMES[level],
            limit=None,
            verdict="not_asked",
            why="The client has no user or no client id, which this level needs.",
        )
    limit = limits.get(entity, {}).get(quota)
    verdict, why = _verdict(level, limit, applied_level)
    return LevelView(level=level, name=LEVEL_NAMES[level], limit=limit, verdict=verdict, why=why)


def _verdict(level: int, limit: float | None, applied_level: int | None) -> tuple[Verdict, str]:
    if limit is None:
        return "not_set", "No limit of this kind is set here."
    if level == applied_level:
        return "applies", "The first level, from 1 on, that sets this limit."
    return "weaker", f"Level {applied_level} comes first; limits do not add up."


def limits_by_entity(
    entries: Iterable[tuple[Entity, Mapping[str, float]]],
) -> dict[tuple[bool, str | None, bool, str | None], Mapping[str, float]]:
    """Returns the limits in the form that `precedence.resolve` takes."""
    return {tuple(entity): limits for entity, limits in entries}  # type: ignore[misc]
