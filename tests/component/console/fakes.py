"""Data plane and brokers in memory, for pages; `tests/product/system` tests the real ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from instances.interfaces import (
    Bandwidth,
    BrokerBandwidth,
    BrokerUnresponsive,
    ConfigEntry,
    Flow,
    PartitionSummary,
    RefusedTopic,
    Throttle,
    Throttles,
    TopicDescription,
    TopicSizes,
    Traffic,
)
from quotas.interfaces import AddressQuota, ClientQuota, EntityPart
from tenants.errors import Conflict, Invalid, NotFound

NOW_MS = 1_790_000_000_500
STEP_MS = 1_000


@dataclass
class FakeDataPlane:
    """Topics by (instance, name), without the broker's rules for names."""

    found: dict[tuple[str, str], TopicDescription] = field(default_factory=dict)
    configs: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)

    def topics(self, instance_id: str) -> Sequence[TopicDescription]:
        return [topic for (owner, _name), topic in self.found.items() if owner == instance_id]

    def topic(self, instance_id: str, name: str) -> TopicDescription:
        try:
            return self.found[instance_id, name]
        except KeyError:
            raise NotFound("There is no such topic.") from None

    def topic_config(self, instance_id: str, name: str) -> Sequence[ConfigEntry]:
        changed = self.configs.get((instance_id, name), {})
        defaults = {"retention.ms": "604800000", "cleanup.policy": "delete", "retention.bytes": "-1"}
        return [
            ConfigEntry(
                name=key, value=value, is_default=key not in changed, is_read_only=False, default=defaults.get(key)
            )
            for key, value in (defaults | changed).items()
        ]

    def topic_with_config(self, instance_id: str, name: str) -> tuple[TopicDescription, Sequence[ConfigEntry]]:
        return self.topic(instance_id, name), self.topic_config(instance_id, name)

    def create_topic(
        self, instance_id: str, name: str, *, partitions: int, replication_factor: int, config: Mapping[str, str],
        validate_only: bool,
    ) -> None:  # fmt: skip
        if (instance_id, name) in self.found:
            raise Conflict("There is a topic with this name.", code="already_exists")
        replicas = tuple(range(1, replication_factor + 1))
        looks = tuple(PartitionSummary(index=i, leader=1, replicas=replicas, isr=replicas) for i in range(partitions))
        self.found[instance_id, name] = TopicDescription(name=name, topic_id=f"id-{name}", partitions=looks)
        self.configs[instance_id, name] = dict(config)

    def grow_topic(self, instance_id: str, name: str, partitions: int, *, validate_only: bool) -> None:
        config = self.configs.get((instance_id, name), {})
        del self.found[instance_id, name]
        self.create_topic(
            instance_id, name, partitions=partitions, replication_factor=1, config=config, validate_only=validate_only
        )

    def alter_topic_config(
        self, instance_id: str, name: str, config: Mapping[str, str | None], *, validate_only: bool
    ) -> None:
        if unknown := [value for value in config.values() if value == "refused"]:
            raise Invalid.at("/config", f"Invalid value {unknown[0]} for configuration {next(iter(config))}")
        if validate_only:
            return
        kept = self.configs.setdefault((instance_id, name), {})
        for key, value in config.items():
            if value is None:
                kept.pop(key, None)
            else:
                kept[key] = value

    def delete_topic(self, instance_id: str, name: str) -> None:
        del self.found[instance_id, name]

    def delete_hidden_topic(self, instance_id: str, name: str) -> None:
        self.found.pop((instance_id, name), None)


@dataclass
class FakeObservation:
    """Reports of brokers in memory. `silent` makes every answer partial."""

    data_plane: FakeDataPlane
    points: tuple[tuple[int, int, int, int], ...] = ()
    entries: tuple[Throttle, ...] = ()
    silent: tuple[BrokerUnresponsive, ...] = ()
    refused: tuple[RefusedTopic, ...] = ()
    messages_per_partition: int = 10
    alive_since_ms: int = 0
    alive_since_by_broker: dict[int, int] = field(default_factory=dict)
    shares: dict[int, BrokerBandwidth | None] = field(default_factory=dict)

    def traffic(self, instance_id: str, since_ms: int) -> Traffic:
        silent = {silence.broker_id for silence in self.silent}
        alive = self.alive_since_by_broker or {1: self.alive_since_ms}
        return Traffic(
            now_ms=NOW_MS, step_ms=STEP_MS, alive_since_ms=self.alive_since_ms, by_broker={1: (0, 0)},
            known_by_broker={id: () if id in silent else ((since, NOW_MS),) for id, since in alive.items()},
            silent=self.silent,
            points=tuple(point for point in self.points if point[0] >= since_ms),
        )  # fmt: skip

    def throttles(self, instance_id: str) -> Throttles:
        return Throttles(now_ms=NOW_MS, entries=self.entries, silent=self.silent)

    def bandwidth(self, instance_id: str) -> Bandwidth:
        return Bandwidth(brokers=self.shares)

    def topic_sizes(self, instance_id: str, topic: str = "") -> TopicSizes:
        count = self.messages_per_partition
        describe = {"leader_epoch": 0, "log_start_offset": 0, "high_watermark": count, "size_bytes": 100 * count}
        topics = {} if self.silent else {topic.name: topic for topic in self.data_plane.topics(instance_id)}
        return TopicSizes(
            topics={name: (100 * count * len(t.partitions), count * len(t.partitions)) for name, t in topics.items()},
            partitions={name: {p.index: dict(describe) for p in t.partitions} for name, t in topics.items()},
            silent=self.silent,
            stored_bytes=sum(100 * count * len(t.partitions) for t in topics.values()),
            refused=self.refused,
        )


def throttle(**changes: object) -> Throttle:
    """Returns a throttle, by default of a client that waits for its user's produce quota."""
    values: dict[str, object] = {
        "broker_id": 2, "kind": "client_quota", "quota": "producer_byte_rate", "level": 3,
        "entity": {"user": "reports"},
        "limit_per_s": 2_000_000.0, "user": "reports", "client_id": "etl", "count": 10, "delay_ms_mean": 35.0,
        "delay_ms_p95": 80.0, "delay_ms_max": 120.0, "waited_ms_total": 350.0, "since_ms": NOW_MS - 60_000,
        "last_ms": NOW_MS - 200, "active": True,
    }  # fmt: skip
    values |= changes
    values = {"whole_limit_per_s": values["limit_per_s"], "burst_since_ms": values["since_ms"], "bursts": 1, **values}
    return Throttle(**values)  # type: ignore[arg-type]


def share(broker_id: int, reason: str = "follows_demand", **changes: int) -> BrokerBandwidth:
    """Returns a share of a third of 20 MB/s in both directions, partly demanded and used."""
    flow = Flow(**{
        "leaders": 2, "share_bytes_per_s": 6_700_000, "wanted_bytes_per_s": 3_000_000,
        "admitted_bytes_per_s": 2_000_000, **changes,
    })  # fmt: skip
    return BrokerBandwidth(broker_id=broker_id, policy="adaptive", reason=reason, produce=flow, consume=flow)


@dataclass
class FakeQuotaAdminClient:
    """Client quotas by instance, in memory."""

    found: dict[str, dict[tuple[EntityPart | None, EntityPart | None], dict[str, float]]] = field(default_factory=dict)
    addresses: dict[str, dict[str | None, int]] = field(default_factory=dict)

    def describe(self, instance_id: str) -> Sequence[ClientQuota]:
        kept = self.found.get(instance_id, {})
        return [
            ClientQuota(user=user, client_id=client, limits=dict(limits)) for (user, client), limits in kept.items()
        ]

    def alter(
        self, instance_id: str, user: EntityPart | None, client_id: EntityPart | None,
        limits: dict[str, float | None], *, validate_only: bool,
    ) -> None:  # fmt: skip
        kept = self.found.setdefault(instance_id, {})
        merged = {**kept.get((user, client_id), {}), **limits}
        left = {key: value for key, value in merged.items() if value is not None}
        if left:
            kept[user, client_id] = left
        else:
            kept.pop((user, client_id), None)

    def describe_addresses(self, instance_id: str) -> Sequence[AddressQuota]:
        kept = self.addresses.get(instance_id, {})
        return [AddressQuota(address=address, connections_per_s=limit) for address, limit in kept.items()]

    def alter_address(
        self, instance_id: str, address: str | None, connections_per_s: int | None, *, validate_only: bool
    ) -> None:
        kept = self.addresses.setdefault(instance_id, {})
        if connections_per_s is None:
            kept.pop(address, None)
        else:
            kept[address] = connections_per_s
