"""Reads of this app. Lists are restricted to a tenant; the data plane is read through `instances.interfaces`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.core.cache import cache
from django.db.models import Count, Q, QuerySet, Sum

from instances import access, interfaces
from instances.choices import TopicState
from instances.interfaces import (
    Bandwidth,
    ConfigEntry,
    PartitionSummary,
    Throttles,
    TopicDescription,
    TopicSizes,
    Traffic,
)
from instances.lifecycle.conditions import OBSERVED
from instances.lifecycle.operations import OPEN_STATES
from instances.lifecycle.phases import COUNTED, REACHABLE, Phase
from instances.limits import BYTES_PER_MB, TOPIC_NAMES_KEPT_S, TOPICS_CREATED_CONSIDERED_MAX, TRAFFIC_LATEST_MS
from instances.models import DelayedMinute, Instance, Operation, Route, ThrottledMinute, TopicAllowList
from instances.topics.pending import PendingTopic
from instances.topics.presence import describe_topic_with_config
from instances.topics.warnings import TopicWarning, topic_warnings
from tenants.actors import Actor
from tenants.models import AuditEntry, Tenant

MS_PER_S = 1_000


def failed_instances() -> QuerySet[Instance]:
    """Returns the failed instances of all tenants, latest failure first; for operators."""
    return Instance.objects.filter(phase=Phase.FAILED.value).select_related("tenant").order_by("-phase_since")


def operations_open_since(before: datetime) -> QuerySet[Operation]:
    """Returns the open operations of all tenants that began before an instant, oldest first; for operators."""
    rows = Operation.objects.filter(state__in=OPEN_STATES, created_at__lt=before)
    return rows.select_related("instance").order_by("created_at")


def lock_instance(instance: Instance) -> Instance:
    """Returns the current row, locked until the transaction ends."""
    return Instance.objects.select_for_update(of=("self",)).select_related("tenant").get(pk=instance.pk)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicView:
    """A topic as its owner sees it. Sizes are None if the leader of one of its partitions did not answer.

    While it is not ready, partitions have no leaders and `replication_factor` may be None.
    """

    name: str
    topic_id: str
    partitions: tuple[PartitionSummary, ...]
    replication_factor: int | None
    size_bytes: int | None
    message_count: int | None
    produce_ips: tuple[str, ...]
    consume_ips: tuple[str, ...]
    administer_ips: tuple[str, ...]
    config: tuple[ConfigEntry, ...] | None = None
    state: str = TopicState.READY.value

    @property
    def partition_count(self) -> int:
        return len(self.partitions)

    @property
    def etag(self) -> tuple[object, ...]:
        """Value that changes when the owner changes the topic, but not when messages arrive."""
        config = tuple((entry.name, entry.value) for entry in self.config or ())
        lists = self.produce_ips, self.consume_ips, self.administer_ips
        return self.topic_id, self.name, self.partition_count, config, *lists

    @property
    def warnings(self) -> tuple[TopicWarning, ...]:
        """Warnings about settings that have no effect; empty if the configuration was not read."""
        return topic_warnings({entry.name: entry.value for entry in self.config or ()}, self.replication_factor or 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """Bandwidth bought and in use, in bytes/s over the last full second, with the current throttles."""

    now_ms: int
    produce_limit_bytes_per_s: int
    consume_limit_bytes_per_s: int
    produce_bytes_per_s: int
    consume_bytes_per_s: int
    by_broker: dict[int, tuple[int, int]]
    throttles: Throttles
    silent: tuple[interfaces.BrokerUnresponsive, ...]


def instance_list(tenant: Tenant, *, contains: str = "", phase: str = "") -> QuerySet[Instance]:
    """Returns a tenant's instances, including those being deleted; `contains` is searched in name and id."""
    rows = access.instances_of(tenant).prefetch_related("routes")
    if contains:
        rows = rows.filter(Q(name__icontains=contains) | Q(pk__icontains=contains))
    return rows.filter(phase=phase) if phase else rows


def instance_detail(acting: Actor, instance_id: str) -> Instance:
    """Returns one instance of the actor's tenant. Raises `NotFound`."""
    return access.instance(acting, instance_id)


def needing_attention(tenant: Tenant, *, include_ids: Sequence[str] = ()) -> QuerySet[Instance]:
    """Returns instances that need attention: suspended, failed, with a condition that is false, or in `include_ids`."""
    is_stopped = Q(phase__in=(Phase.SUSPENDED.value, Phase.FAILED.value))
    is_faulty = Q()
    for kind in OBSERVED:
        is_faulty |= Q(conditions__contains=[{"type": kind, "status": False}])
    reachable = [phase.value for phase in REACHABLE]
    return instance_list(tenant).filter(is_stopped | (is_faulty & Q(phase__in=reachable)) | Q(pk__in=include_ids))


def counted_instances(tenant: Tenant) -> QuerySet[Instance]:
    """Returns a tenant's instances without failed and deleted ones: those that are counted, summed and priced."""
    return access.instances_of(tenant).filter(phase__in=[phase.value for phase in COUNTED])


def purchased_totals(tenant: Tenant) -> dict[str, int]:
    """Returns totals over the counted instances: `{"instances", "bandwidth_mb_s", "storage_gb"}`."""
    rows = counted_instances(tenant)
    sums = rows.aggregate(count=Count("pk"), bandwidth=Sum("bandwidth_mb_s"), storage=Sum("storage_gb"))
    return {
        "instances": sums["count"],
        "bandwidth_mb_s": sums["bandwidth"] or 0,
        "storage_gb": sums["storage"] or 0,
    }


def operation_detail(acting: Actor, operation_id: str) -> Operation:
    """Returns one operation of the actor's tenant. Raises `NotFound`."""
    return access.operation(acting, operation_id)


def operation_list(tenant: Tenant, *, instance_id: str = "", state: str = "") -> QuerySet[Operation]:
    """Returns a tenant's operations, latest first."""
    rows = Operation.objects.filter(tenant=tenant).select_related("instance")
    if instance_id:
        rows = rows.filter(instance_id=instance_id)
    return rows.filter(state=state) if state else rows


def route_list(instance: Instance) -> QuerySet[Route]:
    """Returns the routes of an instance in the order of their creation."""
    return instance.routes.order_by("pk")


def events(instance: Instance) -> QuerySet[AuditEntry]:
    """Returns the audit rows of an instance and its topics and quotas, latest first."""
    is_about_instance = Q(target_id=instance.pk) | Q(target_id__startswith=f"{instance.pk}/")
    return AuditEntry.objects.filter(is_about_instance, tenant_id=instance.tenant_id)


def recently_created_topics(instance: Instance) -> list[str]:
    """Returns the names of topics recently created in the console or over REST, latest first."""
    rows = events(instance).filter(action="topic.created").order_by("-time", "-id")
    target_ids = rows.values_list("target_id", flat=True)[:TOPICS_CREATED_CONSIDERED_MAX]
    return [target_id.partition("/")[2] for target_id in target_ids]


def topic_names(instance: Instance) -> list[str]:
    """Returns the names of all topics, cached for a few seconds: completion in a form reads them at each key press."""
    key = f"topic-names:{instance.pk}"
    names: list[str] | None = cache.get(key)
    if names is None:
        names = sorted(topic.name for topic in interfaces.data_plane.implementation.topics(instance.pk))
        cache.set(key, names, TOPIC_NAMES_KEPT_S)
    return names


def topic_detail(instance: Instance, name: str) -> TopicView:
    """Returns one topic with its configuration.

    Raises `NotFound`, `TopicNotReady` while brokers do not show it yet, and `Conflict` while the instance has no
    brokers.
    """
    access.require_reachable(instance)
    description, config = describe_topic_with_config(instance, name)
    sizes = interfaces.observation.implementation.topic_sizes(instance.pk, name)
    allow_list = TopicAllowList.objects.filter(instance=instance, topic=name).first()
    return _view(description, sizes, allow_list, tuple(config))


def pending_view(topic: PendingTopic) -> TopicView:
    """Returns a topic that brokers do not show yet."""
    is_empty = topic.state == TopicState.BEING_CREATED
    return TopicView(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=unassigned_partitions(topic.partition_count),
        replication_factor=topic.replication_factor,
        size_bytes=0 if is_empty else None,
        message_count=0 if is_empty else None,
        produce_ips=(),
        consume_ips=(),
        administer_ips=(),
        config=(),
        state=topic.state,
    )


def unassigned_partitions(count: int) -> tuple[PartitionSummary, ...]:
    """Returns partitions of which no leader and no replica is known."""
    return tuple(PartitionSummary(index=index, leader=-1, replicas=(), isr=()) for index in range(count))


def traffic(instance: Instance, *, since_ms: int) -> Traffic:
    """Returns the traffic since `since_ms` (ms since 1970), at most of the last quarter of an hour. Below 0 it counts
    from the brokers' current time.
    """
    return interfaces.observation.implementation.traffic(instance.pk, since_ms)


def topic_sizes(instance: Instance) -> TopicSizes:
    """Returns the sizes of all topics at their leaders."""
    return interfaces.observation.implementation.topic_sizes(instance.pk)


def throttles(instance: Instance) -> Throttles:
    """Returns the current throttles: clients, rules and delays."""
    return interfaces.observation.implementation.throttles(instance.pk)


def bandwidth(instance: Instance) -> Bandwidth:
    """Returns the current share of an instance's bandwidth on each of its brokers, with the reason."""
    return interfaces.observation.implementation.bandwidth(instance.pk)


def delays(instance: Instance, *, start: datetime, end: datetime, step_ms: int) -> dict[int, int]:
    """Returns the longest delay in ms by step (ms since 1970) of `[start, end)`, for steps in which clients waited."""
    result: dict[int, int] = {}
    rows = DelayedMinute.objects.filter(instance=instance, minute__gte=start, minute__lt=end)
    for minute, delay_ms in rows.values_list("minute", "delay_ms_max"):
        at_ms = round(minute.timestamp() * MS_PER_S)
        at_ms -= at_ms % step_ms
        result[at_ms] = max(delay_ms, result.get(at_ms, 0))
    return result


def throttled_minutes(instance: Instance, *, since: datetime, until: datetime) -> QuerySet[ThrottledMinute]:
    """Returns the causes of throttling by broker and minute of `[since, until)`."""
    return ThrottledMinute.objects.filter(instance=instance, minute__gte=since, minute__lt=until)


def throughput(instance: Instance) -> Throughput:
    """Returns the bandwidth bought and in use, with the current throttles."""
    recent = traffic(instance, since_ms=-TRAFFIC_LATEST_MS)  # relative to the brokers' clocks
    last_full_ms = recent.now_ms - recent.now_ms % recent.step_ms - recent.step_ms
    last_full = next((point for point in reversed(recent.points) if point[0] == last_full_ms), (0, 0, 0, 0))
    _start_ms, produced_bytes, consumed_bytes, _delay_ms = last_full
    limit = instance.bandwidth_mb_s * BYTES_PER_MB
    return Throughput(
        now_ms=recent.now_ms,
        produce_limit_bytes_per_s=limit,
        consume_limit_bytes_per_s=limit,
        produce_bytes_per_s=produced_bytes * MS_PER_S // recent.step_ms,
        consume_bytes_per_s=consumed_bytes * MS_PER_S // recent.step_ms,
        by_broker=dict(recent.by_broker),
        throttles=throttles(instance),
        silent=recent.silent,
    )


def _view(
    topic: TopicDescription,
    sizes: TopicSizes,
    allow_list: TopicAllowList | None,
    config: Sequence[ConfigEntry] | None = None,
) -> TopicView:
    reported = sizes.partitions.get(topic.name, {})
    is_complete = all(partition.index in reported for partition in topic.partitions)
    size_bytes, messages = sizes.topics.get(topic.name, (0, 0))
    return TopicView(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        size_bytes=size_bytes if is_complete else None,
        message_count=messages if is_complete else None,
        produce_ips=tuple(allow_list.produce_ips) if allow_list else (),
        consume_ips=tuple(allow_list.consume_ips) if allow_list else (),
        administer_ips=tuple(allow_list.administer_ips) if allow_list else (),
        config=tuple(config) if config is not None else None,
    )
