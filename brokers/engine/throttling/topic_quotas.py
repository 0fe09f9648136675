"""Limits of single topics for all their clients together: this broker's part of a limit that holds over all brokers.

A limit is split by the leader partitions of the topic; an instance's bandwidth is split by the partitions of all
topics. If the instance's bandwidth is pooled, so are the limits of its topics, up to a number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from brokers.engine.throttling.charging import (
    LIMITERS_PER_INSTANCE_MAX,
    UNUSED_MS_MAX,
    Limiter,
    Quota,
    Rule,
    new_pace,
)
from brokers.engine.throttling.client_shares import DIRECTIONS, share_key
from brokers.engine.throttling.pool import TOPIC_PREFIX, NewPool, Pool
from quotas.allocation import allocate
from quotas.pacing import BURST_MS
from quotas.rates import SAMPLE_SETTINGS, SampleSettings

# Pooled limits of an instance's topics, both directions together; further ones stay split by partitions.
TOPIC_POOLS_MAX: Final = 50


@dataclass(slots=True)
class _TopicLimit:
    """Limiter of one topic, computed for a version of the topic and a limit.

    `part_bps` is 0 if this broker leads no partition of the topic.
    """

    version: object
    limit_bps: int
    part_bps: int
    limiter: Limiter


class TopicQuotas:
    """Topic limits of one instance. With `is_pooled`, brokers share a pool for each limit."""

    __slots__ = ("_burst_ms", "_limit_by_key", "_new_pool", "_pool_by_key", "_window", "is_pooled")

    def __init__(
        self, burst_ms: int = BURST_MS, window: SampleSettings = SAMPLE_SETTINGS, new_pool: NewPool | None = None
    ) -> None:
        self.is_pooled = False
        self._new_pool = new_pool
        self._pool_by_key: dict[tuple[str, Quota], Pool] = {}
        self._burst_ms = burst_ms
        self._window = window
        self._limit_by_key: dict[tuple[str, Quota], _TopicLimit] = {}

    def __len__(self) -> int:
        return len(self._limit_by_key)

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
        """Returns the limiter of a topic, None if this broker leads no partition of it.

        `leaders` returns the number of the topic's partitions by leader; it is called once for each `version` of the
        topic. Samples stay when the limit changes.
        """
        key = (topic, quota)
        topic_limit = self._limit_by_key.get(key)
        if topic_limit is None or topic_limit.version is not version or topic_limit.limit_bps != limit_bps:
            part_bps = _broker_part(limit_bps, leaders(), broker_id)
            topic_limit = self._limit_by_key[key] = self._make_limit(key, quota, limit_bps, part_bps, version, now_ms)
        topic_limit.limiter.last_used_ms = now_ms
        if not topic_limit.part_bps:
            return None
        is_shared = self.is_pooled and topic_limit.part_bps < limit_bps and topic_limit.limiter.pace is not None
        pool = self._get_pool(key) if is_shared else None
        if pool is not None:
            pool.set_limit(limit_bps, now_ms)
        topic_limit.limiter.use_pool(pool)
        return topic_limit.limiter

    def _get_pool(self, key: tuple[str, Quota]) -> Pool | None:
        pool = self._pool_by_key.get(key)
        if pool is None and self._new_pool is not None and len(self._pool_by_key) < TOPIC_POOLS_MAX:
            pool = self._pool_by_key[key] = self._new_pool(DIRECTIONS[key[1]], TOPIC_PREFIX + share_key("", key[0]))
        return pool

    def on_layout_changed(self, *, is_pooled: bool) -> None:
        """Computes this broker's parts anew, and ends all waits, so that clients are charged under the new ones."""
        self.is_pooled = is_pooled
        for topic_limit in self._limit_by_key.values():
            topic_limit.version = None
        self.release_waits()

    def release_waits(self) -> None:
        """Ends all waits, so that clients are charged again under changed limits."""
        for topic_limit in self._limit_by_key.values():
            if topic_limit.limiter.debt_watcher is not None:
                topic_limit.limiter.debt_watcher.end_all_waits()

    def drop_unused(self, now_ms: int) -> int:
        """Drops limiters that were not used for an hour and returns their number (QUO-8)."""
        unused = [
            key
            for key, topic_limit in self._limit_by_key.items()
            if now_ms - topic_limit.limiter.last_used_ms >= UNUSED_MS_MAX
        ]
        for key in unused:
            self._forget(key)
        return len(unused)

    def _forget(self, key: tuple[str, Quota]) -> None:
        self._limit_by_key.pop(key).limiter.use_pool(None)
        self._pool_by_key.pop(key, None)

    def _make_limit(
        self, key: tuple[str, Quota], quota: Quota, limit_bps: int, part_bps: int, version: object, now_ms: int
    ) -> _TopicLimit:
        topic_limit = self._limit_by_key.get(key)
        if topic_limit is None:
            if len(self._limit_by_key) >= LIMITERS_PER_INSTANCE_MAX:
                self._forget(
                    min(self._limit_by_key, key=lambda candidate: self._limit_by_key[candidate].limiter.last_used_ms)
                )
            rule = Rule("topic_quota", quota, None, None)
            limiter = Limiter(rule, part_bps, now_ms, new_pace(self._burst_ms), self._window)
            limiter.whole_limit_per_s = limit_bps
        else:
            limiter = topic_limit.limiter
            if part_bps:
                limiter.set_limit(part_bps, now_ms, limit_bps)
        return _TopicLimit(version, limit_bps, part_bps, limiter)


def _broker_part(limit_bps: int, leaders: Mapping[int, int], broker_id: int) -> int:
    brokers = sorted(broker for broker, count in leaders.items() if count)
    if broker_id not in brokers:
        return 0
    leader_counts = [leaders[broker] for broker in brokers]
    return max(1, allocate(limit_bps, leader_counts, [0] * len(brokers), "static")[brokers.index(broker_id)])
