"""Metrics of an instance as Prometheus text, for the tenant's own monitoring and alerts. Pure.

The size of a scrape is bounded: beyond the limits it has the largest topics and lags, and the number of those left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from instances.interfaces import Throttles, TopicSizes, Traffic
from instances.limits import BYTES_PER_GB, BYTES_PER_MB, METRIC_LAGS_MAX, METRIC_RATE_SPAN_S, METRIC_TOPICS_MAX

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MS_PER_S = 1_000

Key = TypeVar("Key")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrapeValues:
    """Values of one scrape. `lags` are messages by group and topic; `lags_age_s` is the age of the oldest one."""

    bandwidth_mb_s: int
    storage_gb: int
    traffic: Traffic
    throttles: Throttles
    sizes: TopicSizes
    lags: Mapping[tuple[str, str], int]
    lags_age_s: float


def render(scrape: ScrapeValues) -> str:
    """Returns the metrics in Prometheus text format 0.0.4."""
    registry = CollectorRegistry()
    registry.register(_ScrapeCollector(scrape))
    return generate_latest(registry).decode()


class _ScrapeCollector(Collector):
    def __init__(self, scrape: ScrapeValues) -> None:
        self._scrape = scrape

    def collect(self) -> Iterator[Metric]:
        return _metrics(self._scrape)


def _metrics(scrape: ScrapeValues) -> Iterator[Metric]:
    produced, consumed = rates(scrape.traffic)
    limit = scrape.bandwidth_mb_s * BYTES_PER_MB
    active = [entry for entry in scrape.throttles.entries if entry.active]
    sizes = _largest({topic: size for topic, (size, _) in scrape.sizes.topics.items()}, METRIC_TOPICS_MAX)
    lags = _largest(scrape.lags, METRIC_LAGS_MAX)
    span = f"over the last {METRIC_RATE_SPAN_S} s"
    yield _gauge("penstock_instance_produce_bytes_per_second", f"Record-batch bytes accepted, {span}.", produced)
    yield _gauge("penstock_instance_consume_bytes_per_second", f"Record-batch bytes sent, {span}.", consumed)
    yield _gauge("penstock_instance_bandwidth_limit_bytes_per_second", "Bandwidth bought, in each direction.", limit)
    yield _gauge("penstock_instance_stored_bytes", "Bytes on disk, of all copies.", scrape.sizes.stored_bytes)
    help_text = "Storage bought."
    yield _gauge("penstock_instance_storage_limit_bytes", help_text, scrape.storage_gb * BYTES_PER_GB)
    yield _gauge("penstock_instance_throttled_clients", "Clients that a quota delays now.", len(active))
    longest_delay_ms = max((entry.delay_ms_mean for entry in active), default=0.0)
    yield _gauge("penstock_instance_throttle_delay_ms", "Mean delay where it is longest, now.", longest_delay_ms)
    yield from _by_cause(scrape.throttles)
    help_text = "Brokers that did not answer: the figures are without them."
    yield _gauge("penstock_instance_silent_brokers", help_text, len(scrape.traffic.silent))
    yield _by_topic("penstock_topic_size_bytes", "Bytes at the leaders.", sizes)
    messages = {topic: scrape.sizes.topics[topic][1] for topic in sizes}
    yield _by_topic("penstock_topic_messages", "Offsets between start and high watermark.", messages)
    help_text = "Messages between what a group committed and the end, summed over a topic's partitions."
    yield _labelled("penstock_group_lag_messages", help_text, ("group", "topic"), sorted(lags.items()))
    yield _gauge("penstock_group_lag_age_seconds", "How old the oldest of these lags is.", scrape.lags_age_s)
    omitted = len(scrape.sizes.topics) - len(sizes) + len(scrape.lags) - len(lags)
    yield _gauge("penstock_metrics_left_out", "Topics and lags beyond the limits of a scrape.", omitted)


def _by_cause(throttles: Throttles) -> Iterator[Metric]:
    """Yields the counters of throttling by broker: each broker counts from its own start."""
    help_text = "Requests delayed, and parts of requests refused, by the kind of limit."
    requests = CounterMetricFamily("penstock_instance_throttled_requests", help_text, labels=("broker", "cause"))
    help_text = "Time for which requests were delayed, by the kind of limit."
    seconds = CounterMetricFamily("penstock_instance_throttle_seconds", help_text, labels=("broker", "cause"))
    for number, causes in sorted(throttles.totals.items()):
        for kind, (count, waited_ms) in sorted(causes.items()):
            requests.add_metric((str(number), kind), count)
            seconds.add_metric((str(number), kind), waited_ms / MS_PER_S)
    yield requests
    yield seconds


def rates(traffic: Traffic) -> tuple[float, float]:
    """Returns bytes per second produced and consumed, over the last full seconds."""
    until_ms = traffic.now_ms - traffic.now_ms % traffic.step_ms
    since_ms = until_ms - METRIC_RATE_SPAN_S * MS_PER_S
    points = [point for point in traffic.points if since_ms <= point[0] < until_ms]
    return (
        sum(produced for _start_ms, produced, _consumed, _delay_ms in points) / METRIC_RATE_SPAN_S,
        sum(consumed for _start_ms, _produced, consumed, _delay_ms in points) / METRIC_RATE_SPAN_S,
    )


def _gauge(name: str, help_text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, help_text, value=value)


def _by_topic(name: str, help_text: str, values: Mapping[str, int]) -> GaugeMetricFamily:
    return _labelled(name, help_text, ("topic",), [((topic,), value) for topic, value in sorted(values.items())])


def _labelled(
    name: str, help_text: str, labels: Sequence[str], values: Iterable[tuple[Sequence[str], int]]
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, help_text, labels=labels)
    for names, value in values:
        family.add_metric(names, value)
    return family


def _largest(values: Mapping[Key, int], count_max: int) -> dict[Key, int]:
    return dict(sorted(values.items(), key=lambda pair: (-pair[1], str(pair[0])))[:count_max])
