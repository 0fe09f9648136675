"""Lags of the last quarter of an hour: samples in the cache, which may be lost.

A task samples every group (`record_samples`), a page the groups that it shows. Each group has two series of samples:
its total lag, for the trend; and the ends of its partitions' logs, for its lag in time, which is the time since the log
ended at the group's committed offset. The last lag by topic is stored beside them, for metrics.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

from django.core.cache import cache

from instances.groups.interfaces import Partition
from instances.limits import (
    LAG_BEHIND_SHOWN_FROM_S,
    LAG_ENDS_PARTITIONS_MAX,
    LAG_GREW_FOR_S,
    LAG_GROUPS_SHOWN_MAX,
    LAG_SAMPLE_EVERY_S,
    LAG_SAMPLES_MAX,
    LAG_SHOWN_FOR_S,
)

MS_PER_S = 1_000
RETENTION_S = LAG_SAMPLE_EVERY_S * LAG_SAMPLES_MAX
SPAN_MS = RETENTION_S * MS_PER_S

# (ms since 1970, messages)
Sample = tuple[int, int]
# (ms since 1970, end of the log by partition)
LogEnds = tuple[int, dict[Partition, int]]
# (ms since 1970, messages by topic)
LatestLags = tuple[int, dict[str, int]]
SampleType = TypeVar("SampleType", Sample, LogEnds)


@dataclass(frozen=True, slots=True)
class TimeLag:
    """Age of the message that a group reads next; `at_least`: it may be older than the samples show."""

    age_s: float
    at_least: bool


def record_samples(
    instance_id: str, offsets: Mapping[str, Mapping[Partition, int]], ends: Mapping[Partition, int], now_ms: int
) -> None:
    """Samples many groups at once from their committed offsets. A group with a partition whose end is not known is
    skipped.
    """
    lags = {
        group: {partition: max(0, ends[partition] - offset) for partition, offset in committed.items()}
        for group, committed in offsets.items()
        if committed and ends.keys() >= committed.keys()
    }
    if not lags:
        return
    record_lags(instance_id, {group: sum(partition_lags.values()) for group, partition_lags in lags.items()}, now_ms)
    _append_samples(
        {
            _key(instance_id, group, "ends"): (
                now_ms,
                _limited({partition: ends[partition] for partition in lags[group]}),
            )
            for group in lags
        },
        now_ms,
    )
    _record_latest(instance_id, lags, now_ms)


def record_lags(instance_id: str, lags: Mapping[str, int], now_ms: int) -> dict[str, tuple[Sample, ...]]:
    """Samples each group's lag; returns the samples of each, oldest first, including this one."""
    keys = {group: _key(instance_id, group, "lags") for group in lags}
    extended = _append_samples({keys[group]: (now_ms, lag) for group, lag in lags.items()}, now_ms)
    return {group: extended[key] for group, key in keys.items()}


def record_log_ends(instance_id: str, group: str, ends: Mapping[Partition, int], now_ms: int) -> tuple[LogEnds, ...]:
    """Samples the ends of a group's partitions, up to a bounded number of partitions; returns the samples."""
    key = _key(instance_id, group, "ends")
    return _append_samples({key: (now_ms, _limited(ends))}, now_ms)[key]


def latest_lags(instance_id: str, now_ms: int) -> dict[str, LatestLags]:
    """Returns the last sampled lags of each group that has a recent sample, by group."""
    return _unexpired(cache.get(_latest_key(instance_id)) or {}, now_ms)


def latest_lags_by_instance(instance_ids: Iterable[str], now_ms: int) -> dict[str, dict[str, LatestLags]]:
    """Returns the `latest_lags` of several instances, by instance id."""
    keys = {_latest_key(instance_id): instance_id for instance_id in instance_ids}
    return {keys[key]: _unexpired(cached, now_ms) for key, cached in cache.get_many(list(keys)).items()}


def _unexpired(cached: Mapping[str, LatestLags], now_ms: int) -> dict[str, LatestLags]:
    return {group: sample for group, sample in cached.items() if now_ms - sample[0] <= LAG_SHOWN_FOR_S * MS_PER_S}


def has_grown(samples: Sequence[Sample]) -> bool:
    """True if a lag grew for a minute: it never decreased, and is larger now than at the start. Pure."""
    if not samples:
        return False
    from_ms = samples[-1][0] - LAG_GREW_FOR_S * MS_PER_S
    older = [sample for sample in samples if sample[0] <= from_ms]
    if not older:
        return False
    lags = [older[-1][1], *(lag for at_ms, lag in samples if at_ms > from_ms)]
    never_decreased = all(lag <= next_lag for lag, next_lag in pairwise(lags))
    return never_decreased and lags[-1] > lags[0]


def time_lag(partition: Partition, committed: int, ends: Sequence[LogEnds]) -> TimeLag | None:
    """Returns how far behind in time a group is in a partition, from samples of its end, oldest first. None: not known.

    Pure.
    """
    samples = [
        (at_ms, end_by_partition[partition]) for at_ms, end_by_partition in ends if partition in end_by_partition
    ]
    if not samples:
        return None
    now_ms, end = samples[-1]
    if committed >= end:
        return TimeLag(0.0, at_least=False)
    earlier = [at_ms for at_ms, earlier_end in samples if earlier_end <= committed]
    if not earlier and now_ms - samples[0][0] < LAG_BEHIND_SHOWN_FROM_S * MS_PER_S:
        return None
    since_ms = earlier[-1] if earlier else samples[0][0]
    return TimeLag((now_ms - since_ms) / MS_PER_S, at_least=not earlier)


def _append_samples(new_samples: Mapping[str, SampleType], now_ms: int) -> dict[str, tuple[SampleType, ...]]:
    """Returns each series with its new sample at the end; the new sample is stored if the last one is old enough."""
    cached = cache.get_many(list(new_samples))
    extended: dict[str, tuple[SampleType, ...]] = {}
    changed: dict[str, tuple[SampleType, ...]] = {}
    for key, sample in new_samples.items():
        before: tuple[SampleType, ...] = cached.get(key, ())
        new_sample: tuple[SampleType, ...] = (sample,)
        extended[key] = _recent(before, now_ms) + new_sample
        if _is_due(before, now_ms):
            changed[key] = extended[key][-LAG_SAMPLES_MAX:]
    if changed:
        cache.set_many(changed, RETENTION_S)
    return extended


def _record_latest(instance_id: str, lags: Mapping[str, Mapping[Partition, int]], now_ms: int) -> None:
    samples = latest_lags(instance_id, now_ms)
    for group, lag_by_partition in lags.items():
        by_topic: dict[str, int] = {}
        for (topic, _), lag in lag_by_partition.items():
            by_topic[topic] = by_topic.get(topic, 0) + lag
        samples[group] = (now_ms, by_topic)
    youngest = sorted(samples.items(), key=lambda pair: -pair[1][0])[:LAG_GROUPS_SHOWN_MAX]
    cache.set(_latest_key(instance_id), dict(youngest), LAG_SHOWN_FOR_S)


def _limited(ends: Mapping[Partition, int]) -> dict[Partition, int]:
    return dict(sorted(ends.items())[:LAG_ENDS_PARTITIONS_MAX])


def _latest_key(instance_id: str) -> str:
    return f"groups:{instance_id}:latest"


def _recent(samples: tuple[SampleType, ...], now_ms: int) -> tuple[SampleType, ...]:
    return tuple(sample for sample in samples if now_ms - SPAN_MS <= sample[0] <= now_ms)


def _is_due(samples: Sequence[Sample | LogEnds], now_ms: int) -> bool:
    """True if the last sample is old enough for another; clocks of web workers may differ slightly."""
    return not samples or now_ms - samples[-1][0] >= LAG_SAMPLE_EVERY_S * MS_PER_S


def _key(instance_id: str, group: str, kind: str) -> str:
    return f"groups:{instance_id}:{kind}:{hashlib.sha256(group.encode()).hexdigest()[:32]}"
