"""Map of a cluster: its configured brokers with their health, and the counts of partitions by state.

Counts come from the metadata image of one broker, the controller if it answers. Partitions are read page by page.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django.core.cache import cache as shared_cache
from django.utils import timezone
from redis import RedisError

from brokers.choices import Health, ProcessState, WantedState
from brokers.limits import KEPT_IMAGE_S, OBSERVE_CACHE_S
from brokers.models import Broker, Cluster, Rebalance
from brokers.monitoring import observe
from brokers.monitoring.health import health, modules_of, upstream_lost_since
from instances.interfaces import BrokerUnresponsive
from instances.lifecycle.conditions import ShortenedRetention, StorageUsed
from instances.limits import BYTES_PER_GB
from tenants.containment import contained
from tenants.errors import Unavailable

logger = logging.getLogger(__name__)

MS_PER_MINUTE = 60_000
SHORTENED_TOPICS_NAMED_MAX = 5
COUNTS = ("topics", "partitions", "replicas", "under_replicated", "offline", "under_min_isr", "moving")
UNKNOWN_WHILE_CHECKING = ("under_replicated", "offline", "under_min_isr")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSummary:
    """Row, health and replica counts of one broker; counts are None if no broker reports them."""

    row: Broker
    health: Health
    is_controller: bool
    is_live: bool
    is_draining: bool
    leaders: int | None
    preferred: int | None
    replicas: int | None
    out_of_sync: int | None
    # Version of Penstock that it registered with; "" for a broker of an earlier version, and for one that is not live.
    version: str = ""

    @property
    def is_gone(self) -> bool:
        """True if it does not answer, so it may be lost permanently."""
        return not self.is_live and self.health in (Health.LATE, Health.DOWN, Health.STOPPED)

    @property
    def upstream_lost_since(self) -> datetime | None:
        """Returns the time since when the upstream of a gateway does not answer; None if it answers."""
        return upstream_lost_since(self.row) if self.health == Health.UPSTREAM_LOST else None

    @property
    def number(self) -> int:
        return self.row.number

    @property
    def log_bytes(self) -> int | None:
        """Returns the size of its logs as last reported."""
        return (self.row.observed or {}).get("log_bytes")

    @property
    def modules(self) -> str:
        """Returns the localized kind of its modules."""
        return modules_of(self.row)

    @property
    def capacity_bytes(self) -> int:
        return self.row.storage_gb * BYTES_PER_GB


def _parse_storage(body: Mapping[str, Any]) -> dict[str, StorageUsed] | None:
    entries = body.get("storage")
    if entries is None:
        return None
    return {
        str(id): StorageUsed(used_bytes=int(used_bytes), is_full=bool(is_full)) for id, used_bytes, is_full in entries
    }


def _merge_shortened_retention(bodies: Iterable[Mapping[str, Any]]) -> dict[str, ShortenedRetention]:
    """Returns the topics with shortened retention of each instance, with the minute of the oldest remaining record in
    any partition; a bounded number of topics.
    """
    topics_by_instance: dict[str, dict[str, int]] = {}
    for body in bodies:
        for instance_id, shortened in body.get("storage_shortened", {}).items():
            topics = topics_by_instance.setdefault(str(instance_id), {})
            for name, oldest_ms in shortened["topics"]:
                minute_ms = int(oldest_ms) - int(oldest_ms) % MS_PER_MINUTE
                topics[str(name)] = min(topics.get(str(name), minute_ms), minute_ms)
    return {
        instance_id: ShortenedRetention(topics=tuple(sorted(topics.items())[:SHORTENED_TOPICS_NAMED_MAX]))
        for instance_id, topics in topics_by_instance.items()
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterMap:
    """Map of a cluster. `counts` is empty if no broker answers; `silent` are the brokers that should run and do not
    answer.

    `incomplete` are the numbers of lost brokers that the image still lists as live. `is_decided` is True if the
    controller has elected new leaders after each loss in the image; otherwise the counts do not show the loss.
    """

    cluster: Cluster
    controller: int
    counts: Mapping[str, int]
    brokers: tuple[BrokerSummary, ...]
    silent: tuple[BrokerUnresponsive, ...]
    incomplete: tuple[int, ...] = ()
    is_decided: bool = True
    # The controller's report of instances that use much of their storage: bytes, and whether they are full. None: not
    # known; instances that are not listed use little.
    storage: Mapping[str, StorageUsed] | None = None
    # Instances whose oldest records were recently deleted because they were nearly full, as reported by all brokers
    # that answered.
    shortened: Mapping[str, ShortenedRetention] = field(default_factory=dict)

    @property
    def is_checking(self) -> bool:
        """True if a broker was lost, and the counts do not show the consequences yet."""
        return self.is_known and (bool(self.incomplete) or not self.is_decided)

    @property
    def is_known(self) -> bool:
        return bool(self.counts)

    @property
    def versions(self) -> list[str]:
        """Returns the versions of Penstock that live brokers run; "" stands for versions that do not report theirs."""
        return sorted({broker.version for broker in self.brokers if broker.is_live})

    @property
    def shown(self) -> Mapping[str, int | None]:
        """Returns every count for display, None if it is not known."""
        unknown_names = UNKNOWN_WHILE_CHECKING if self.is_checking else ()
        return {name: None if name in unknown_names else self.counts.get(name) for name in COUNTS}

    @property
    def is_safe(self) -> bool:
        """True if every partition has a leader."""
        return self.is_known and not self.is_checking and not self.counts["offline"]

    @property
    def is_whole(self) -> bool:
        """True if every replica is in sync and every broker answers."""
        return self.is_safe and not self.counts["under_replicated"] and not self.silent


def cluster_map(cluster: Cluster) -> ClusterMap:
    """Returns the map, at most one second old."""
    rows = list(Broker.objects.filter(cluster=cluster, removed_at=None).select_related("host").order_by("number"))
    draining_ids = set(
        Rebalance.objects.filter(cluster=cluster, broker__isnull=False, state__in=("running", "paused")).values_list(
            "broker_id", flat=True
        )
    )
    return build_map(cluster, rows, _query_brokers(cluster), draining_ids)


def build_map(
    cluster: Cluster, rows: Sequence[Broker], answers: observe.BrokerAnswers, draining_ids: Collection[str] = ()
) -> ClusterMap:
    """Returns the map from a cluster's rows and its brokers' answers; `draining_ids` are ids of drained brokers."""
    body = _authoritative_body(answers.bodies)
    shares = {share["id"]: share for share in body.get("brokers", ())}
    controller = int(body.get("controller_id", -1))
    stopped = {row.number for row in rows if row.wanted == WantedState.STOPPED}
    return ClusterMap(
        cluster=cluster,
        controller=controller,
        counts={name: int(body[name]) for name in COUNTS} if body else {},
        brokers=tuple(
            _summary(row, shares, controller, is_known=bool(body), draining_ids=draining_ids) for row in rows
        ),
        silent=tuple(broker for broker in answers.silent if broker.broker_id not in stopped),
        incomplete=tuple(row.number for row in rows if _is_unnoticed_loss(row, shares, answers)),
        is_decided=_is_loss_handled(body, shares),
        storage=_parse_storage(body),
        shortened=_merge_shortened_retention(answers.bodies.values()),
    )


def cache_images(now: datetime) -> list[tuple[Cluster, dict[str, int]]]:
    """Queries the brokers of every cluster, and caches the answers for pages that query no broker. Returns the clusters
    with the counts of their partitions; empty counts if no broker answers.
    """
    result = []
    for cluster in Cluster.objects.active().order_by("pk"):
        with contained("overview.cluster_failed", cluster_id=cluster.pk):
            answers = observe.query_all(observe.targets_of_cluster(cluster), "/v1/cluster")
            shared_cache.set(_image_key(cluster), (now, answers), KEPT_IMAGE_S)
            body = _authoritative_body(answers.bodies)
            result.append((cluster, {name: int(body[name]) for name in COUNTS} if body else {}))
    return result


def cached_images(clusters: Iterable[Cluster]) -> dict[str, tuple[datetime, observe.BrokerAnswers]]:
    """Returns the last cached answers with their time, by cluster id; nothing for a cluster that was not queried
    recently.
    """
    keys = {_image_key(cluster): cluster.pk for cluster in clusters}
    return {keys[key]: result for key, result in shared_cache.get_many(list(keys)).items()}


def _image_key(cluster: Cluster) -> str:
    return f"observe:{cluster.pk}:kept"


def _is_unnoticed_loss(row: Broker, shares: Mapping[int, Mapping[str, Any]], answers: observe.BrokerAnswers) -> bool:
    """True if the image lists a broker as live although it does not answer, is starting, has ended, or was restarted
    after the query.
    """
    share = shares.get(row.number)
    if share is None or not share["live"] or row.wanted == WantedState.STOPPED:
        return False
    is_silent = any(broker.broker_id == row.number for broker in answers.silent)
    is_starting = not answers.bodies.get(row.number, {"ready": True})["ready"]
    has_ended = row.process_state in (ProcessState.BACKING_OFF, ProcessState.STOPPED)
    is_newer = bool(answers.queried_at and row.process_since and row.process_since > answers.queried_at)
    return is_silent or is_starting or has_ended or is_newer


def _is_loss_handled(body: Mapping[str, Any], shares: Mapping[int, Mapping[str, Any]]) -> bool:
    """True if there is a live controller, and no partition is led by a lost broker.

    Brokers of earlier versions do not report such partitions (`undecided`).
    """
    if not body:
        return True
    controller = shares.get(int(body["controller_id"]))
    return controller is not None and bool(controller["live"]) and not body.get("undecided", 0)


def _summary(
    row: Broker,
    shares: Mapping[int, Mapping[str, Any]],
    controller: int,
    *,
    is_known: bool,
    draining_ids: Collection[str],
) -> BrokerSummary:
    share = shares.get(row.number)
    default = 0 if is_known else None

    def figure(name: str) -> int | None:
        return default if share is None else int(share[name])

    return BrokerSummary(
        row=row,
        health=health(row, timezone.now()),
        is_controller=row.number == controller,
        is_live=bool(share and share["live"]),
        is_draining=row.pk in draining_ids,
        leaders=figure("leaders"),
        preferred=figure("preferred"),
        replicas=figure("replicas"),
        out_of_sync=figure("out_of_sync"),
        version=str((share or {}).get("version") or ""),
    )


def partition_page(
    cluster: Cluster, *, state: str = "all", broker: int | None = None, after: str = "", limit: int = 50
) -> tuple[list[Mapping[str, Any]], str]:
    """Returns partitions in a state, by name and index, with the position after the last of them ("" at the end).

    Raises `Unavailable` if no broker answers.
    """
    query: dict[str, str | int] = {"state": state, "after": after, "limit": limit}
    if broker is not None:
        query["broker"] = broker
    for target in observe.targets_of_cluster(cluster):
        try:
            body = observe.get(target, f"/v1/partitions?{urlencode(query)}")
        except (OSError, ValueError) as error:
            logger.warning("broker %s does not report its partitions: %s", target.number, type(error).__name__)
            continue
        return list(body["partitions"]), body["next"] or ""
    raise Unavailable("No broker of the cluster answers at the moment.", retry_after_s=1)


def _authoritative_body(bodies: Mapping[int, Mapping[str, Any]]) -> Mapping[str, Any]:
    """Returns the controller's own image, or the image with the latest controller. A starting broker has no
    image yet.
    """
    ready = [body for body in bodies.values() if body["ready"]]
    ready.sort(key=lambda body: (body["broker_id"] == body["controller_id"], body["controller_epoch"]))
    return ready[-1] if ready else {}


def _query_brokers(cluster: Cluster) -> observe.BrokerAnswers:
    key = f"observe:{cluster.pk}:cluster"
    try:
        cached = shared_cache.get(key)
    except (RedisError, OSError) as error:
        logger.warning("the cache does not answer: %s", type(error).__name__)
        cached = None
    if cached is not None:
        return cached
    answers = observe.query_all(observe.targets_of_cluster(cluster), "/v1/cluster")
    try:
        shared_cache.set(key, answers, OBSERVE_CACHE_S)
    except (RedisError, OSError) as error:
        logger.warning("the cache does not answer: %s", type(error).__name__)
    return answers
