"""Collection of traffic samples (decision 113): queries each broker for the traffic of all instances since the last
query, and stores seconds in the cache and throttled minutes in the database.

A query costs a broker one request for all of its instances, or a few if many of them had traffic. A backlog is read in
spans of time, a bounded number of pages in each round. Rows that are stored twice count once.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

from brokers.limits import SAMPLE_PAGES_MAX, SAMPLE_SPAN_MS, SAMPLES_KEPT_S
from brokers.models import Cluster
from brokers.monitoring import observe, second_samples
from brokers.monitoring.observe import AdminTarget
from brokers.monitoring.second_samples import MS_PER_S, Row, Spans
from instances import services
from instances.services import ThrottledMinuteReport
from tenants.containment import contained

logger = logging.getLogger(__name__)

# Overlap of a query with the previous one: a request that began in a second may be counted slightly after its end.
OVERLAP_MS: Final = 2_000


@dataclass(slots=True)
class BrokerRound:
    """State of one broker in one round: the span being queried, the received rows, and the spans known afterwards.

    `ends_ms` is the end of the first page of a span; later pages may reach further.
    """

    spans: Spans
    since_ms: int
    until_ms: int = 0
    after: str = ""
    ends_ms: int = 0
    is_done: bool = False
    rows: dict[str, list[Row]] = field(default_factory=dict)
    minutes: list[ThrottledMinuteReport] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.until_ms = self.since_ms + SAMPLE_SPAN_MS


def collect_samples(now_ms: int) -> int:
    """Runs one round over every cluster; returns the number of instances with traffic."""
    count = 0
    for cluster in Cluster.objects.active().order_by("pk"):
        with contained("traffic.cluster_failed", cluster_id=cluster.pk):
            count += _collect_cluster(cluster, now_ms)
    return count


def begin_round(spans: Spans, now_ms: int) -> BrokerRound:
    """Returns the state of a new round: a broker is queried from the end of its stored part, or for its whole history.
    Pure.
    """
    oldest_ms = now_ms - observe.TRAFFIC_HISTORY_MS
    return BrokerRound(spans=spans, since_ms=max(oldest_ms, spans[-1][1] - OVERLAP_MS if spans else 0))


def _collect_cluster(cluster: Cluster, now_ms: int) -> int:
    targets = observe.targets_of_cluster(cluster)
    spans_by_broker = second_samples.read_spans(cluster.pk, [target.number for target in targets])
    rounds = {target.number: begin_round(spans_by_broker[target.number], now_ms) for target in targets}
    _query_rounds(targets, rounds)
    by_instance: dict[str, dict[int, list[Row]]] = {}
    for number, broker_round in rounds.items():
        for instance_id, rows in broker_round.rows.items():
            by_instance.setdefault(instance_id, {})[number] = rows
    second_samples.store_rows(by_instance)
    services.store_throttled_minutes([minute for broker_round in rounds.values() for minute in broker_round.minutes])
    changed = {
        number: broker_round.spans
        for number, broker_round in rounds.items()
        if broker_round.spans != spans_by_broker[number]
    }
    second_samples.store_spans(cluster.pk, changed)
    return len(by_instance)


def _query_rounds(targets: Sequence[AdminTarget], rounds: Mapping[int, BrokerRound]) -> None:
    """Queries brokers page by page and span by span, until they have no more or the pages of the round are used up."""
    unfinished = list(targets)
    for _ in range(SAMPLE_PAGES_MAX):
        answers = observe.query_each([(target, _traffic_path(rounds[target.number])) for target in unfinished])
        for number, body in answers.bodies.items():
            add_page(rounds[number], number, body)
        unfinished = [
            target for target in unfinished if target.number in answers.bodies and not rounds[target.number].is_done
        ]
        if not unfinished:
            return
    logger.info("samples of brokers %s exceed the pages of one round", [target.number for target in unfinished])


def _traffic_path(broker_round: BrokerRound) -> str:
    span = f"since_ms={broker_round.since_ms}&until_ms={broker_round.until_ms}"
    return f"/v1/traffic?{span}&after={quote(broker_round.after)}"


def add_page(broker_round: BrokerRound, number: int, body: Mapping[str, Any]) -> None:
    """Adds one page of a broker's answer to its round; after the last page of a span, begins the next span. Pure."""
    now_ms, alive_since_ms = int(body["now_ms"]), int(body["alive_since_ms"])
    last_ms = now_ms - now_ms % MS_PER_S
    broker_round.ends_ms = min(broker_round.ends_ms or last_ms, last_ms)
    for instance_id, traffic in body["instances"].items():
        if traffic["points"]:
            broker_round.rows.setdefault(instance_id, []).extend(second_samples.sum_points(traffic["points"]).values())
        broker_round.minutes += [
            ThrottledMinuteReport(instance_id, int(minute["minute_ms"]), number, alive_since_ms, minute["causes"])
            for minute in traffic["throttled"]
        ]
    broker_round.after = body["next"] or ""
    if broker_round.after:
        return
    end_ms = min(broker_round.until_ms, broker_round.ends_ms)
    first_ms = max(broker_round.since_ms, alive_since_ms, now_ms - observe.TRAFFIC_HISTORY_MS)
    broker_round.spans = second_samples.add_span(
        broker_round.spans, (first_ms, end_ms), now_ms - SAMPLES_KEPT_S * MS_PER_S
    )
    broker_round.is_done = broker_round.until_ms >= broker_round.ends_ms
    broker_round.since_ms, broker_round.until_ms, broker_round.ends_ms = end_ms, end_ms + SAMPLE_SPAN_MS, 0
