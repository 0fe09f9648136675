"""Rates of topics, from two samples of the brokers' counters some seconds apart.

Two earlier samples are cached. Rates are computed against the older one; once the younger one is old enough, it becomes
the older one. The counters of a broker that restarted between two samples start at zero.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.core.cache import cache

from instances.limits import TOPIC_RATE_SPAN_MAX_S, TOPIC_RATE_SPAN_MIN_S, TOPIC_RATE_SPAN_S
from instances.topics.interfaces import BrokerTopics, TopicReport

MS_PER_S = 1_000
# Bytes produced and consumed by topic name, for topics that had any.
Counters = Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class CounterSample:
    """Counters of one broker at an instant of its own clock."""

    at_ms: int
    alive_since_ms: int
    counters: Counters


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Bytes per second by topic, over `over_s` seconds; `over_s` is None while there is no earlier sample."""

    over_s: float | None = None
    by_topic: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def of(self, topic: str) -> tuple[float, float] | tuple[None, None]:
        """Returns the rates produced and consumed; zero for a topic without traffic."""
        return (None, None) if self.over_s is None else self.by_topic.get(topic, (0.0, 0.0))


def sample_topic_rates(instance_id: str, report: TopicReport) -> Rates:
    """Stores a sample of the counters, and returns the rates since an earlier one."""
    return sample_rates(_key(instance_id), {number: sample_of(broker) for number, broker in report.brokers.items()})


def sample_rates(key: str, current: dict[int, CounterSample]) -> Rates:
    """Stores a sample of cumulative counters under the cache key `key`, and returns the rates since an earlier one."""
    older: Mapping[int, CounterSample]
    younger: Mapping[int, CounterSample]
    older, younger = _read(key)
    rates = rates_between(older, current)
    if not current:
        return rates
    # The last counters of brokers that do not answer now are kept, so that a later rate includes these brokers.
    current = _still_valid(older, current) | _still_valid(younger, current) | current
    if not older or _age_s(older, current) > TOPIC_RATE_SPAN_MAX_S:
        older, younger = current, {}
        _write(key, older, younger)
    elif not younger and _age_s(older, current) >= TOPIC_RATE_SPAN_S / 2:
        _write(key, older, current)
    elif younger and _age_s(younger, current) >= TOPIC_RATE_SPAN_S:
        _write(key, younger, current)
    return rates


def _still_valid(
    earlier: Mapping[int, CounterSample], current: Mapping[int, CounterSample]
) -> dict[int, CounterSample]:
    """Returns the counters of an earlier sample that are young enough for a rate."""
    oldest_ms = max(sample.at_ms for sample in current.values()) - TOPIC_RATE_SPAN_MAX_S * MS_PER_S
    return {number: sample for number, sample in earlier.items() if sample.at_ms >= oldest_ms}


def sample_of(broker: BrokerTopics) -> CounterSample:
    counters = {
        topic.name: (topic.produced_bytes, topic.consumed_bytes)
        for topic in broker.topics
        if topic.produced_bytes or topic.consumed_bytes
    }
    return CounterSample(broker.now_ms, broker.alive_since_ms, counters)


def rates_between(before: Mapping[int, CounterSample], current: Mapping[int, CounterSample]) -> Rates:
    """Returns the rates between two samples, summed over the brokers in both samples; one that restarted in between
    counts from its start. Pure.
    """
    sums: dict[str, list[float]] = {}
    spans_s: list[float] = []
    for number, sample in current.items():
        earlier = before.get(number)
        if earlier is None:
            continue
        is_same_process = earlier.alive_since_ms == sample.alive_since_ms
        since_ms = earlier.at_ms if is_same_process else sample.alive_since_ms
        span_s = (sample.at_ms - since_ms) / MS_PER_S
        if not TOPIC_RATE_SPAN_MIN_S <= span_s <= TOPIC_RATE_SPAN_MAX_S:
            continue
        spans_s.append(span_s)
        earlier_counters = earlier.counters if is_same_process else {}
        for topic, (produced, consumed) in sample.counters.items():
            produced_before, consumed_before = earlier_counters.get(topic, (0, 0))
            total = sums.setdefault(topic, [0.0, 0.0])
            total[0] += max(0, produced - produced_before) / span_s
            total[1] += max(0, consumed - consumed_before) / span_s
    if not spans_s:
        return Rates()
    return Rates(over_s=max(spans_s), by_topic={topic: (total[0], total[1]) for topic, total in sums.items()})


def _age_s(before: Mapping[int, CounterSample], current: Mapping[int, CounterSample]) -> float:
    """Returns the age of an earlier sample, by the clock of a broker that is in both."""
    ages = [(sample.at_ms - before[number].at_ms) / MS_PER_S for number, sample in current.items() if number in before]
    return max(ages, default=float("inf"))


def _read(key: str) -> tuple[dict[int, CounterSample], dict[int, CounterSample]]:
    cached = cache.get(key)
    if cached is None:
        return {}, {}
    older, younger = json.loads(zlib.decompress(base64.b64decode(cached)))
    return _samples(older), _samples(younger)


def _samples(parts: Mapping[str, Any]) -> dict[int, CounterSample]:
    return {
        int(number): CounterSample(
            at_ms, alive_since_ms, {topic: (pair[0], pair[1]) for topic, pair in counters.items()}
        )
        for number, (at_ms, alive_since_ms, counters) in parts.items()
    }


def _write(key: str, older: Mapping[int, CounterSample], younger: Mapping[int, CounterSample]) -> None:
    body = [
        {number: (sample.at_ms, sample.alive_since_ms, dict(sample.counters)) for number, sample in samples.items()}
        for samples in (older, younger)
    ]
    encoded = base64.b64encode(zlib.compress(json.dumps(body, separators=(",", ":")).encode(), 1)).decode()
    cache.set(key, encoded, TOPIC_RATE_SPAN_MAX_S)


def _key(instance_id: str) -> str:
    return f"topics:{instance_id}:traffic"
