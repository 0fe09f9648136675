"""HTTP client of the brokers' admin ports: queries all brokers of an instance or cluster at once, and merges answers.

Timeouts are short. Answers are cached for a second, shared by all web workers, so that a polled page costs a broker one
request per second for any number of readers. Results also name the brokers that did not answer.
"""

from __future__ import annotations

import http.client
import json
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from typing import Any, TypeVar
from urllib.parse import urlencode

from django.core.cache import cache as shared_cache
from django.utils import timezone
from redis import RedisError

from brokers import selectors
from brokers.contract.process_identity import ProcessIdentity
from brokers.dataplane.unresponsive_brokers import unresponsive_brokers
from brokers.infra import internal_tls
from brokers.limits import (
    OBSERVE_ANSWER_TIMEOUT_S,
    OBSERVE_BYTES_MAX,
    OBSERVE_CACHE_S,
    OBSERVE_CONNECT_TIMEOUT_S,
    OBSERVE_THREADS,
    SILENT_PATIENCE_S,
)
from brokers.models import Broker, Cluster
from brokers.monitoring import kafka_topics, second_samples
from brokers.monitoring.second_samples import Row, Spans
from instances.interfaces import (
    Bandwidth,
    BrokerBandwidth,
    BrokerUnresponsive,
    Flow,
    RefusedTopic,
    Throttle,
    Throttles,
    TopicSizes,
    Traffic,
)
from instances.limits import TRAFFIC_SECONDS_MAX
from tenants.cached_values import cacheable

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

STEP_MS = 1_000
# Minimum history that a broker retains of each instance's traffic.
TRAFFIC_HISTORY_MS = 900_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminTarget:
    """An admin port to query, with the process identity that it must prove; a broker without a certificate is sent the
    secret.
    """

    number: int
    host: str
    port: int
    secret: str
    certified_as: ProcessIdentity | None = None
    cluster_id: str = ""


@cacheable
@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerAnswers:
    """JSON bodies by broker number, and the brokers that did not answer. `queried_at` is None if not recorded."""

    bodies: Mapping[int, Mapping[str, Any]]
    silent: tuple[BrokerUnresponsive, ...]
    queried_at: datetime | None = None


@cache
def _threads(_pid: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=OBSERVE_THREADS, thread_name_prefix="observe")


def get(target: AdminTarget, path: str) -> Mapping[str, Any]:
    """Sends one GET to an admin port. Raises OSError or ValueError if there is no valid answer in time."""
    status, raw = _exchange(target, "GET", path)
    if status != 200 or len(raw) > OBSERVE_BYTES_MAX:
        raise ValueError(f"status {status}, {len(raw)} bytes")
    body = json.loads(raw)
    if not isinstance(body, dict):
        raise ValueError("not a JSON object")
    return body


def delete(target: AdminTarget, path: str) -> int:
    """Sends one DELETE to an admin port; returns the status. Raises OSError or ValueError if there is no answer."""
    return _exchange(target, "DELETE", path)[0]


def _exchange(target: AdminTarget, method: str, path: str) -> tuple[int, bytes]:
    """Returns the status and body of one request."""
    connection = http.client.HTTPConnection(target.host, target.port, timeout=OBSERVE_CONNECT_TIMEOUT_S)
    was_unresponsive = unresponsive_brokers.is_unresponsive((target.host, target.port))
    try:
        connection.connect()
        headers = {}
        if target.certified_as is None:
            headers["Authorization"] = f"Bearer {target.secret}"
        else:
            connection.sock = internal_tls.wrap_socket(connection.sock, target.certified_as)
        connection.sock.settimeout(SILENT_PATIENCE_S if was_unresponsive else OBSERVE_ANSWER_TIMEOUT_S)
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        raw = response.read(OBSERVE_BYTES_MAX + 1)
        unresponsive_brokers.mark_responsive((target.host, target.port))
        return response.status, raw
    except TimeoutError:
        if not was_unresponsive:  # otherwise a slow broker would never get enough time
            unresponsive_brokers.mark_unresponsive((target.host, target.port))
        raise
    except http.client.HTTPException as error:
        raise ValueError(type(error).__name__) from error
    finally:
        connection.close()


def query_all(targets: Sequence[AdminTarget], path: str) -> BrokerAnswers:
    """Sends the same GET to several brokers at once; brokers that do not answer are in `silent`."""
    return query_each([(target, path) for target in targets])


def query_each(requests: Sequence[tuple[AdminTarget, str]]) -> BrokerAnswers:
    """Sends one GET to each of several brokers at once."""
    queried_at = timezone.now()
    pending = [(target, path, _threads(os.getpid()).submit(get, target, path)) for target, path in requests]
    bodies: dict[int, Mapping[str, Any]] = {}
    silent: list[BrokerUnresponsive] = []
    for target, path, future in pending:
        try:
            bodies[target.number] = future.result()
        except (OSError, ValueError) as error:
            reason = "does not answer" if isinstance(error, OSError) else "answers nonsense"
            logger.warning("broker %s %s on %s: %s", target.number, reason, path, type(error).__name__)
            silent.append(BrokerUnresponsive(broker_id=target.number, reason=reason))
    return BrokerAnswers(bodies=bodies, silent=tuple(silent), queried_at=queried_at)


def query_all_pages(
    targets: Sequence[AdminTarget], path: str, pages_max: int
) -> tuple[dict[int, list[Mapping[str, Any]]], tuple[BrokerUnresponsive, ...]]:
    """Queries all brokers at once for all their pages: `next` of a page is the query parameter `after` of the next one.

    Returns up to `pages_max` pages by broker number, and the brokers that stopped answering, whose pages are omitted.
    """
    pending = [(target, _threads(os.getpid()).submit(_get_pages, target, path, pages_max)) for target in targets]
    result: dict[int, list[Mapping[str, Any]]] = {}
    silent: list[BrokerUnresponsive] = []
    for target, future in pending:
        try:
            result[target.number] = future.result()
        except (OSError, ValueError) as error:
            logger.warning("broker %s does not answer on %s: %s", target.number, path, type(error).__name__)
            silent.append(BrokerUnresponsive(broker_id=target.number, reason="does not answer"))
    return result, tuple(silent)


def _get_pages(target: AdminTarget, path: str, pages_max: int) -> list[Mapping[str, Any]]:
    pages = [get(target, path)]
    separator = "&" if "?" in path else "?"
    while pages[-1].get("next") is not None and len(pages) < pages_max:
        pages.append(get(target, f"{path}{separator}{urlencode({'after': pages[-1]['next']})}"))
    return pages


def targets_of_instance(instance_id: str) -> list[AdminTarget]:
    """Returns the admin ports of the brokers of an instance."""
    brokers = Broker.objects.filter(port_leases__instance_id=instance_id).select_related("host", "cluster")
    return _admin_targets(brokers.distinct().order_by("number"))


def targets_of_cluster(cluster: Cluster) -> list[AdminTarget]:
    """Returns the admin ports of all brokers of a cluster."""
    brokers = Broker.objects.filter(cluster=cluster, removed_at=None).select_related("host", "cluster")
    return _admin_targets(brokers.order_by("number"))


def _admin_targets(brokers: Any) -> list[AdminTarget]:
    secrets: dict[str, str] = {}
    result = []
    for broker in brokers:
        if broker.cluster_id not in secrets:
            secrets[broker.cluster_id] = broker.cluster.read_control_secret()
        host, port = broker.admin_address
        secret = secrets[broker.cluster_id]
        result.append(
            AdminTarget(
                number=broker.number,
                host=host,
                port=port,
                secret=secret,
                certified_as=broker.certified_as,
                cluster_id=broker.cluster_id,
            )
        )
    return result


def _query_instance(instance_id: str, resource: str) -> BrokerAnswers:
    """Returns answers about one instance, at most a second old. Without Redis every call queries the brokers."""
    path = f"/v1/instances/{instance_id}/{resource}"
    return _cached_or_queried(
        f"observe:{instance_id}:{resource}", lambda: query_all(targets_of_instance(instance_id), path)
    )


def _cached_or_queried(key: str, query: Callable[[], Result]) -> Result:
    """Returns the result of `query`, cached for `OBSERVE_CACHE_S`; queries without the cache if Redis fails."""
    try:
        cached: Result | None = shared_cache.get(key)
    except (RedisError, OSError) as error:
        logger.warning("the cache does not answer: %s", type(error).__name__)
        cached = None
    if cached is not None:
        return cached
    answers = query()
    try:
        shared_cache.set(key, answers, OBSERVE_CACHE_S)
    except (RedisError, OSError) as error:
        logger.warning("the cache does not answer: %s", type(error).__name__)
    return answers


@cacheable
@dataclass(frozen=True, slots=True, kw_only=True)
class LatestTraffic:
    """Brokers' answers about the traffic that is not stored yet.

    By broker number, `spans` are the periods whose traffic is stored, and `since_ms` is the start of the query.
    """

    answers: BrokerAnswers
    spans: Mapping[int, Spans]
    since_ms: Mapping[int, int]


def _query_traffic(instance_id: str) -> LatestTraffic:
    """Queries each broker for the seconds that are not stored yet: a few, or its whole history if nothing is stored."""
    targets = targets_of_instance(instance_id)
    spans: dict[int, Spans] = {}
    for cluster_id in {target.cluster_id for target in targets}:
        numbers = [target.number for target in targets if target.cluster_id == cluster_id]
        spans |= second_samples.read_spans(cluster_id, numbers)
    oldest_ms = time.time_ns() // 1_000_000 - TRAFFIC_HISTORY_MS
    since_ms = {number: _query_from_ms(broker_spans, oldest_ms) for number, broker_spans in spans.items()}
    path = f"/v1/instances/{instance_id}/traffic?since_ms="
    answers = query_each([(target, f"{path}{since_ms[target.number]}") for target in targets])
    return LatestTraffic(answers=answers, spans=spans, since_ms=since_ms)


def _query_from_ms(spans: Spans, oldest_ms: int) -> int:
    """Returns the start of a query to a broker: the end of its stored spans, or 0 (its whole history) if these begin
    after `oldest_ms`.
    """
    return max(0, spans[-1][1] - STEP_MS) if spans and spans[0][0] <= oldest_ms else 0


class AdminPortObservation:
    """Implements `instances.interfaces.observation`."""

    def traffic(self, instance_id: str, since_ms: int) -> Traffic:
        # All callers share one cached answer: it begins where the stored seconds end, independent of `since_ms`.
        latest = _cached_or_queried(f"observe:{instance_id}:latest", lambda: _query_traffic(instance_id))
        now_ms = _now_ms(latest.answers)
        stored_rows = (
            second_samples.read_rows(instance_id, latest.spans, _first_ms(since_ms, now_ms), now_ms) if now_ms else {}
        )
        return merge_traffic(latest, since_ms, stored_rows)

    def throttles(self, instance_id: str) -> Throttles:
        return merge_throttles(_query_instance(instance_id, "throttles"))

    def bandwidth(self, instance_id: str) -> Bandwidth:
        return merge_bandwidth(_query_instance(instance_id, "bandwidth"))

    def topic_sizes(self, instance_id: str, topic: str = "") -> TopicSizes:
        path = f"topics?{urlencode({'name': topic})}" if topic else "topics"
        answers = _query_instance(instance_id, path)
        if not selectors.is_on_kafka(instance_id):
            return merge_topics(answers)
        if topic:
            answers = replace(answers, bodies=kafka_topics.with_led_partitions(instance_id, topic, answers.bodies))
        return _sizes_on_kafka(answers, knows_leaders=bool(topic))


def _sizes_on_kafka(answers: BrokerAnswers, *, knows_leaders: bool) -> TopicSizes:
    """Returns the sizes of an instance on a Kafka cluster. Without leaders only those with all replicas are known, and
    all gateways are silent about the others.
    """
    numbers = () if knows_leaders else sorted(answers.bodies)
    silent = tuple(BrokerUnresponsive(broker_id=number, reason="knows no sizes") for number in numbers)
    return replace(
        merge_topics(answers),
        silent=answers.silent + silent,
        stored_by_topic=kafka_topics.stored_by_topic(answers.bodies.values()),
        has_stored_bytes=not answers.silent,
    )


def merge_traffic(
    latest: LatestTraffic, since_ms: int, stored_rows: Mapping[int, Sequence[Row]] | None = None
) -> Traffic:
    """Returns the sum over brokers per second; the delay is the longest one. `stored_rows` are the stored rows by
    broker. Pure.
    """
    answers, stored_rows = latest.answers, stored_rows or {}
    now_ms = _now_ms(answers)
    from_ms = _first_ms(since_ms, now_ms)
    totals_by_ms: dict[int, list[int]] = {}
    by_broker: dict[int, tuple[int, int]] = {}
    stored_spans = {number: latest.spans.get(number, ()) for number in (*answers.bodies, *_broker_ids(answers.silent))}
    last_full_ms = now_ms - now_ms % STEP_MS - STEP_MS
    for number, body in answers.bodies.items():
        first_ms = max(int(body.get("alive_since_ms", 0)), latest.since_ms.get(number, 0), now_ms - TRAFFIC_HISTORY_MS)
        stored_spans[number] = second_samples.add_span(stored_spans[number], (first_ms, now_ms))
    for number in stored_spans:
        latest_rows = second_samples.sum_points(answers.bodies[number]["points"]) if number in answers.bodies else {}
        rows = second_samples.merge_rows([*stored_rows.get(number, ()), *latest_rows.values()])
        for at_ms, produced, consumed, delay_ms in rows.values():
            if at_ms >= from_ms:
                total = totals_by_ms.setdefault(at_ms, [0, 0, 0])
                total[0] += produced
                total[1] += consumed
                total[2] = max(total[2], delay_ms)
        if number in answers.bodies:
            by_broker[number] = rows.get(last_full_ms, (0, 0, 0, 0))[1:3]
    return Traffic(
        now_ms=now_ms,
        step_ms=STEP_MS,
        alive_since_ms=max(
            (stored_spans[number][-1][0] for number in answers.bodies if stored_spans[number]), default=now_ms
        ),
        known_by_broker=stored_spans,
        points=tuple((at_ms, *total) for at_ms, total in sorted(totals_by_ms.items())),  # type: ignore[misc]
        by_broker=by_broker,
        silent=answers.silent,
    )


def _now_ms(answers: BrokerAnswers) -> int:
    """Returns the time by the brokers' clocks; 0 if no broker answers."""
    return max((int(body["now_ms"]) for body in answers.bodies.values()), default=0)


def _first_ms(since_ms: int, now_ms: int) -> int:
    return max(since_ms if since_ms >= 0 else now_ms + since_ms, now_ms - TRAFFIC_SECONDS_MAX * STEP_MS)


def _broker_ids(silent: Sequence[BrokerUnresponsive]) -> list[int]:
    return [silence.broker_id for silence in silent]


def merge_throttles(answers: BrokerAnswers) -> Throttles:
    """Returns all entries of all brokers, active ones first, then by the time that clients wait. Pure."""
    entries = [_parse_throttle(number, entry) for number, body in answers.bodies.items() for entry in body["entries"]]
    entries.sort(
        key=lambda entry: (not entry.active, -entry.delay_ms_mean, entry.broker_id, entry.user, entry.client_id)
    )
    now_ms = max((int(body["now_ms"]) for body in answers.bodies.values()), default=0)
    totals = {
        number: {
            rule_kind: (int(count), int(waited_ms)) for rule_kind, (count, waited_ms) in body.get("totals", {}).items()
        }
        for number, body in answers.bodies.items()
    }
    return Throttles(now_ms=now_ms, entries=tuple(entries), silent=answers.silent, totals=totals)


def merge_bandwidth(answers: BrokerAnswers) -> Bandwidth:
    """Returns each broker's part; None for a broker that does not answer, or does not support the query. Pure."""
    brokers: dict[int, BrokerBandwidth | None] = {silence.broker_id: None for silence in answers.silent}
    for number, body in answers.bodies.items():
        brokers[number] = BrokerBandwidth(
            broker_id=number,
            policy=str(body["policy"]),
            reason=str(body["reason"]),
            produce=_parse_flow(body["produce"]),
            consume=_parse_flow(body["consume"]),
            loop_used_ms=body.get("loop_used_ms"),
        )
    return Bandwidth(brokers=dict(sorted(brokers.items())))


def _parse_flow(part: Mapping[str, Any]) -> Flow:
    return Flow(
        leaders=int(part["leaders"]),
        share_bytes_per_s=int(part["share_bps"] or 0),
        wanted_bytes_per_s=int(part["wanted_bps"]),
        admitted_bytes_per_s=int(part["admitted_bps"]),
    )


def _parse_throttle(number: int, entry: Mapping[str, Any]) -> Throttle:
    rule = entry["rule"]
    limit = entry.get("limit_per_s", entry["limit_bytes_per_s"])  # older brokers report bytes only
    whole_limit = entry.get("whole_limit_per_s", limit)
    return Throttle(
        broker_id=number,
        kind=rule["kind"],
        quota=rule["quota"],
        level=rule.get("level"),
        entity=dict(rule.get("entity") or {}),
        limit_per_s=None if limit is None else float(limit),
        whole_limit_per_s=None if whole_limit is None else float(whole_limit),
        user=entry["user"],
        client_id=entry["client_id"],
        count=int(entry["count"]),
        delay_ms_mean=float(entry["delay_ms_mean"]),
        delay_ms_p95=float(entry["delay_ms_p95"]),
        delay_ms_max=float(entry["delay_ms_max"]),
        waited_ms_total=float(entry["waited_ms_total"]),
        since_ms=int(entry["since_ms"]),
        last_ms=int(entry["last_ms"]),
        active=bool(entry["active"]),
        burst_since_ms=int(entry.get("burst_since_ms", entry["since_ms"])),  # older brokers report no bursts
        bursts=int(entry.get("bursts", 1)),
    )


def merge_topics(answers: BrokerAnswers) -> TopicSizes:
    """Returns the sizes reported by each partition's leader. If two brokers claim a partition, the later leader epoch
    wins.
    """
    partitions: dict[str, dict[int, Mapping[str, int]]] = {}
    for body in answers.bodies.values():
        for topic, partition_sizes in body["topics"].items():
            topic_partitions = partitions.setdefault(topic, {})
            for partition in partition_sizes:
                previous = topic_partitions.get(partition["partition"])
                if previous is None or previous["leader_epoch"] < partition["leader_epoch"]:
                    topic_partitions[partition["partition"]] = partition
    totals = {
        topic: (
            sum(partition["size_bytes"] for partition in partition_sizes.values()),
            sum(partition["high_watermark"] - partition["log_start_offset"] for partition in partition_sizes.values()),
        )
        for topic, partition_sizes in partitions.items()
    }
    stored_bytes = sum(body.get("stored_bytes", 0) for body in answers.bodies.values())
    return TopicSizes(
        topics=totals,
        partitions=partitions,
        silent=answers.silent,
        stored_bytes=stored_bytes,
        refused=refused_topics(answers.bodies.values()),
        hidden=_sum_by_name(body.get("hidden", {}) for body in answers.bodies.values()),
        stored_by_topic={
            topic: sum(size["size_bytes"] * size.get("replicas", 1) for size in partition_sizes.values())
            for topic, partition_sizes in partitions.items()
        },
    )


def _sum_by_name(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    result: dict[str, int] = {}
    for part in parts:
        for name, count in part.items():
            result[name] = result.get(name, 0) + count
    return result


def refused_topics(bodies: Iterable[Mapping[str, Any]]) -> tuple[RefusedTopic, ...]:
    """Returns each name with the latest refusal of any broker, the latest first."""
    result: dict[str, RefusedTopic] = {}
    for body in bodies:
        for refused in body.get("refused_topics", []):
            latest = result.get(refused["name"])
            if latest is None or latest.last_ms < refused["last_ms"]:
                result[refused["name"]] = RefusedTopic(
                    name=refused["name"], reason=refused["reason"], last_ms=refused["last_ms"]
                )
    return tuple(sorted(result.values(), key=lambda refused: (-refused.last_ms, refused.name)))
