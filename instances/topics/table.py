"""Table of an instance's topics, cached for a moment and shared by all web workers.

Brokers are queried for all topics when the table is built, not when a page is shown: a page of a large instance shows
the cached table and requests a newer one. Traffic is the difference between two samples of the brokers' counters. All
of it is in the cache and may be lost.
"""

from __future__ import annotations

import base64
import json
import time
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from django.core.cache import cache

from instances.groups import lag_history
from instances.interfaces import BrokerUnresponsive, RefusedTopic
from instances.lifecycle.phases import REACHABLE
from instances.limits import (
    TOPIC_TABLE_DELETED_KEPT_S,
    TOPIC_TABLE_FRESH_S,
    TOPIC_TABLE_KEPT_S,
    TOPIC_TABLE_QUICK_MS,
    TOPIC_TABLE_REFRESH_EVERY_S,
    TOPIC_TABLE_REFRESH_FACTOR,
)
from instances.models import Instance
from instances.topics import rates
from instances.topics.interfaces import TopicReport, refresh_topics, topic_report
from tenants.errors import Unavailable

MS_PER_S = 1_000
# Decoded tables that a process caches: ten thousand rows take some megabytes.
TABLES_DECODED_MAX = 2
DELETE = "delete"


class TopicRow(NamedTuple):
    """One topic. Sizes are None if a leader did not answer, rates without a second sample, `lag` if no group's lag is
    known;
    `retention_ms` is None for a compacted topic without deletion, -1 without a limit.
    """

    name: str
    topic_id: str
    partition_count: int
    replication_factor: int | None
    message_count: int | None
    size_bytes: int | None
    produce_bps: float | None
    consume_bps: float | None
    retention_ms: int | None
    groups: int
    lag: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicTable:
    """All topics by name, as of `at_ms`. `rates_over_s` is the span of the rates, None while there are none."""

    rows: tuple[TopicRow, ...]
    at_ms: int
    build_ms: int = 0
    rates_over_s: float | None = None
    silent: tuple[BrokerUnresponsive, ...] = ()
    refused: tuple[RefusedTopic, ...] = ()


def topic_table(instance: Instance) -> TopicTable:
    """Returns the table for a page. Raises `Unavailable` if none is cached and no broker answers."""
    now_ms = _now_ms()
    if instance.current_phase not in REACHABLE:
        return TopicTable(rows=(), at_ms=now_ms)
    cached = _read(instance.pk)
    if cached is not None:
        age_s = (now_ms - cached.at_ms) / MS_PER_S
        if age_s <= TOPIC_TABLE_FRESH_S:
            return cached
        if cached.build_ms > TOPIC_TABLE_QUICK_MS and age_s <= TOPIC_TABLE_KEPT_S:
            refresh_after_s = cached.build_ms * TOPIC_TABLE_REFRESH_FACTOR / MS_PER_S
            if age_s >= refresh_after_s and cache.add(
                f"topics:{instance.pk}:refreshing", 1, TOPIC_TABLE_REFRESH_EVERY_S
            ):
                refresh_topics.implementation(instance.pk)
            return cached
    return rebuild(instance.pk)


def rebuild(instance_id: str) -> TopicTable:
    """Queries the brokers and caches the table. Raises `Unavailable` if none answers."""
    began_s = time.monotonic()
    now_ms = _now_ms()
    report = topic_report.implementation(instance_id)
    if not report.brokers:
        raise Unavailable("No broker of the instance answers at the moment. Nothing is lost.", retry_after_s=1)
    traffic = rates.sample_topic_rates(instance_id, report)
    table = build_table(report, traffic, lag_history.latest_lags(instance_id, now_ms), at_ms=now_ms)
    deleted = cache.get(_deleted_key(instance_id)) or {}
    if deleted:
        table = _without_deleted(table, deleted)
    build_ms = round((time.monotonic() - began_s) * MS_PER_S)
    table = TopicTable(
        rows=table.rows, at_ms=now_ms, build_ms=build_ms, rates_over_s=traffic.over_s, silent=report.silent,
        refused=table.refused,
    )  # fmt: skip
    cache.set(_key(instance_id), _encoded(table), TOPIC_TABLE_KEPT_S)
    return table


def build_table(
    report: TopicReport, traffic: rates.Rates, lags: Mapping[str, lag_history.LatestLags], *, at_ms: int
) -> TopicTable:
    """Returns the rows from reports of brokers and samples. Pure."""
    lag_by_topic: dict[str, int] = {}
    group_count_by_topic: dict[str, int] = {}
    for _, by_topic in lags.values():
        for topic, lag in by_topic.items():
            lag_by_topic[topic] = lag_by_topic.get(topic, 0) + lag
            group_count_by_topic[topic] = group_count_by_topic.get(topic, 0) + 1
    sums: dict[str, list[Any]] = {}
    for broker in report.brokers.values():
        for reported in broker.topics:
            totals = sums.get(reported.name)
            if totals is None:
                sums[reported.name] = [reported, reported.led_partitions, reported.size_bytes, reported.message_count]
            else:
                totals[1] += reported.led_partitions
                totals[2] += reported.size_bytes
                totals[3] = None if None in (totals[3], reported.message_count) else totals[3] + reported.message_count
    rows = []
    for name, (reported, led_partitions, size_bytes, message_count) in sorted(sums.items()):
        is_complete = led_partitions >= reported.partition_count
        produce_bps, consume_bps = traffic.of(name)
        has_retention = DELETE in reported.cleanup_policy
        row = TopicRow(
            name=name, topic_id=reported.topic_id, partition_count=reported.partition_count,
            replication_factor=reported.replication_factor, message_count=message_count if is_complete else None,
            size_bytes=size_bytes if is_complete else None, produce_bps=produce_bps, consume_bps=consume_bps,
            retention_ms=reported.retention_ms if has_retention else None, groups=group_count_by_topic.get(name, 0),
            lag=lag_by_topic.get(name),
        )  # fmt: skip
        rows.append(row)
    existing = {row.name for row in rows}
    refused = tuple(topic for topic in report.refused if topic.name not in existing)
    return TopicTable(rows=tuple(rows), at_ms=at_ms, silent=report.silent, refused=refused)


def invalidate(instance_id: str, *, deleted: Iterable[str] = (), created: Iterable[str] = ()) -> None:
    """Deletes the cached table, so that the next page shows a change that was made through the control plane.

    Deleted topics stay out of the table for a moment, even if a broker still reports them.
    """
    deleted_at_ms_before = cache.get(_deleted_key(instance_id)) or {}
    deleted_at_ms = {**deleted_at_ms_before, **dict.fromkeys(deleted, _now_ms())}
    for name in created:
        deleted_at_ms.pop(name, None)
    if deleted_at_ms != deleted_at_ms_before:
        cache.set(_deleted_key(instance_id), deleted_at_ms, TOPIC_TABLE_DELETED_KEPT_S)
    cache.delete(_key(instance_id))


def _without_deleted(table: TopicTable, deleted: Mapping[str, int]) -> TopicTable:
    oldest_ms = table.at_ms - TOPIC_TABLE_DELETED_KEPT_S * MS_PER_S
    removed = {name for name, at_ms in deleted.items() if at_ms >= oldest_ms}
    rows = tuple(row for row in table.rows if row.name not in removed)
    return TopicTable(rows=rows, at_ms=table.at_ms, refused=table.refused)


def _encoded(table: TopicTable) -> str:
    """Returns a compressed table for the cache: ten thousand rows are a third of a megabyte."""
    body = [
        table.rows, table.at_ms, table.build_ms, table.rates_over_s,
        [(broker.broker_id, broker.reason) for broker in table.silent],
        [(topic.name, topic.reason, topic.last_ms) for topic in table.refused],
    ]  # fmt: skip
    return base64.b64encode(zlib.compress(json.dumps(body, separators=(",", ":")).encode(), 1)).decode()


def _read(instance_id: str) -> TopicTable | None:
    cached = cache.get(_key(instance_id))
    return None if cached is None else _decoded(cached)


@lru_cache(maxsize=TABLES_DECODED_MAX)
def _decoded(cached: str) -> TopicTable:
    """Returns the table of a cached text; memoised for pages that follow each other."""
    rows, at_ms, build_ms, rates_over_s, silent, refused = json.loads(zlib.decompress(base64.b64decode(cached)))
    return TopicTable(
        rows=tuple(map(TopicRow._make, rows)),
        at_ms=at_ms,
        build_ms=build_ms,
        rates_over_s=rates_over_s,
        silent=tuple(BrokerUnresponsive(broker_id=number, reason=reason) for number, reason in silent),
        refused=tuple(RefusedTopic(name=name, reason=reason, last_ms=last_ms) for name, reason, last_ms in refused),
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _key(instance_id: str) -> str:
    return f"topics:{instance_id}:table"


def _deleted_key(instance_id: str) -> str:
    return f"topics:{instance_id}:deleted"
