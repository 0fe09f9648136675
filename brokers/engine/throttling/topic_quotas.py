"""Limits of single topics, for everybody who uses them: this broker's part of what a topic may move over all brokers.

The part is by the partitions that a broker leads of the topic, as an instance's bandwidth is by all partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from brokers.engine.throttling.charging import (
    LIMITERS_PER_INSTANCE_MAX,
    UNUSED_MS_MAX,
    Limiter,
    Quota,
    Rule,
    new_pace,
)
from quotas.allocation import allocate
from quotas.pacing import BURST_MS
from quotas.rates import WINDOW, Window


@dataclass(slots=True)
class _TopicLimit:
    """As it was when the topic was `version` and had this limit; `part_bps` 0: nothing of the topic is led here."""

    version: object
    limit_bps: int
    part_bps: int
    limiter: Limiter


class TopicQuotas:
    """Of one instance."""

    __slots__ = ("_burst_ms", "_limits", "_window")

    def __init__(self, burst_ms: int = BURST_MS, window: Window = WINDOW) -> None:
        self._burst_ms = burst_ms
        self._window = window
        self._limits: dict[tuple[str, Quota], _TopicLimit] = {}

    def __len__(self) -> int:
        return len(self._limits)

    def limiter(
        self,
        topic: str,
        quota: Quota,
        limit_bps: int,
        version: object,
        leaders: Callable[[], Mapping[int, int]],
        broker_id: int,
        now_ms: int,
    ) -> Limiter | None:
        """None: this broker leads nothing of the topic. `leaders` counts the topic's partitions by the brokers that
        lead them; it is asked once for each `version` of the topic. Samples stay when a limit changes.
        """
        key = (topic, quota)
        known = self._limits.get(key)
        if known is None or known.version is not version or known.limit_bps != limit_bps:
            part_bps = _part(limit_bps, leaders(), broker_id)
            known = self._limits[key] = self._next(key, quota, limit_bps, part_bps, version, now_ms)
        known.limiter.used_ms = now_ms
        return known.limiter if known.part_bps else None

    def drop_unused(self, now_ms: int) -> int:
        """As `ClientQuotas.drop_unused`."""
        unused = [key for key, known in self._limits.items() if now_ms - known.limiter.used_ms >= UNUSED_MS_MAX]
        for key in unused:
            del self._limits[key]
        return len(unused)

    def _next(
        self, key: tuple[str, Quota], quota: Quota, limit_bps: int, part_bps: int, version: object, now_ms: int
    ) -> _TopicLimit:
        known = self._limits.get(key)
        if known is None:
            if len(self._limits) >= LIMITERS_PER_INSTANCE_MAX:
                del self._limits[min(self._limits, key=lambda other: self._limits[other].limiter.used_ms)]
            rule = Rule("topic_quota", quota, None, None)
            limiter = Limiter(rule, part_bps, now_ms, new_pace(self._burst_ms), self._window)
            limiter.whole_limit_per_s = limit_bps
        else:
            limiter = known.limiter
            if part_bps:
                limiter.limit(part_bps, now_ms, limit_bps)
        return _TopicLimit(version, limit_bps, part_bps, limiter)


def _part(limit_bps: int, leaders: Mapping[int, int], broker_id: int) -> int:
    brokers = sorted(broker for broker, count in leaders.items() if count)
    if broker_id not in brokers:
        return 0
    counts = [leaders[broker] for broker in brokers]
    return max(1, allocate(limit_bps, counts, [0] * len(brokers), "static")[brokers.index(broker_id)])
