"""In-memory data plane: topics, observations and quotas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from instances.interfaces import (
    Bandwidth,
    BrokerBandwidth,
    BrokerUnresponsive,
    ConfigEntry,
    PartitionSummary,
    Throttle,
    Throttles,
    TopicDescription,
    TopicSizes,
    Traffic,
)
from instances.naming import is_valid_topic_name
from quotas.interfaces import AddressQuota, ClientQuota, EntityPart
from tenants.errors import Conflict, Invalid, NotFound, OutcomeUnknown, Unavailable

KNOWN_CONFIGS = {
    "retention.ms": "604800000",
    "cleanup.policy": "delete",
    "min.insync.replicas": "1",
    "max.message.bytes": "1048588",
    "penstock.consume.byte.rate": "-1",
}


def _partitions(count: int, factor: int) -> tuple[PartitionSummary, ...]:
    replicas = tuple(range(1, factor + 1))
    return tuple(PartitionSummary(index=index, leader=1, replicas=replicas, isr=replicas) for index in range(count))


@dataclass(slots=True)
class FakeDataPlane:
    """In-memory `instances.interfaces.DataPlane`, by (instance id, topic)."""

    descriptions: dict[tuple[str, str], TopicDescription] = field(default_factory=dict)
    configs: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)
    is_down: bool = False
    silent_instances: set[str] = field(default_factory=set)
    # The outcome of changes is unknown to the caller; they take effect if `applies_lost_changes`.
    is_lost: bool = False
    applies_lost_changes: bool = False

    def add(self, instance_id: str, name: str, partitions: int = 3) -> None:
        self.descriptions[instance_id, name] = TopicDescription(
            name=name, topic_id=f"id-of-{name}", partitions=_partitions(partitions, 1)
        )
        self.configs[instance_id, name] = {}

    def topics(self, instance_id: str) -> Sequence[TopicDescription]:
        self._require_up()
        return [topic for (owner, _), topic in self.descriptions.items() if owner == instance_id]

    def topic(self, instance_id: str, name: str) -> TopicDescription:
        self._require_up()
        if instance_id in self.silent_instances:
            raise Unavailable("No broker of the instance answers.", retry_after_s=1)
        if (instance_id, name) not in self.descriptions:
            raise NotFound
        return self.descriptions[instance_id, name]

    def topic_config(self, instance_id: str, name: str) -> Sequence[ConfigEntry]:
        own = self.configs[instance_id, name]
        return [
            ConfigEntry(name=key, value=own.get(key, value), is_default=key not in own, is_read_only=False)
            for key, value in KNOWN_CONFIGS.items()
        ]

    def topic_with_config(self, instance_id: str, name: str) -> tuple[TopicDescription, Sequence[ConfigEntry]]:
        return self.topic(instance_id, name), self.topic_config(instance_id, name)

    def create_topic(
        self,
        instance_id: str,
        name: str,
        *,
        partitions: int,
        replication_factor: int,
        config: Mapping[str, str],
        validate_only: bool,
    ) -> None:
        self._require_up()
        if not is_valid_topic_name(name):
            raise Invalid.at("/name", "Not a topic name.", code="invalid_name")
        if (instance_id, name) in self.descriptions:
            raise Conflict("There is a topic of this name.", code="already_exists")
        if not validate_only:
            if not self.is_lost or self.applies_lost_changes:
                self.add(instance_id, name, partitions)
                self.configs[instance_id, name] = dict(config)
            self._lose()

    def grow_topic(self, instance_id: str, name: str, partitions: int, *, validate_only: bool) -> None:
        if not validate_only:
            result = self.topic(instance_id, name)
            self._lose()
            self.descriptions[instance_id, name] = replace(result, partitions=_partitions(partitions, 1))

    def alter_topic_config(
        self, instance_id: str, name: str, config: Mapping[str, str | None], *, validate_only: bool
    ) -> None:
        if unknown := sorted(set(config) - set(KNOWN_CONFIGS)):
            raise Invalid.at("/config", f"Unknown topic config name: {unknown[0]}", code="invalid_config")
        if not validate_only:
            own = self.configs[instance_id, name] | dict(config)
            self.configs[instance_id, name] = {key: value for key, value in own.items() if value is not None}

    def delete_topic(self, instance_id: str, name: str) -> None:
        if not self.is_lost or self.applies_lost_changes:
            del self.descriptions[instance_id, name]
        self._lose()

    def delete_hidden_topic(self, instance_id: str, name: str) -> None:
        if not self.is_lost or self.applies_lost_changes:
            self.descriptions.pop((instance_id, name), None)
        self._lose()

    def _lose(self) -> None:
        if self.is_lost:
            raise OutcomeUnknown

    def _require_up(self) -> None:
        if self.is_down:
            raise Unavailable("No broker of the instance answers.", retry_after_s=1)


@dataclass(slots=True)
class FakeObservation:
    """In-memory `instances.interfaces.BrokerObservation` with values set by a test."""

    now_ms: int = 1_700_000_002_500
    points: tuple[tuple[int, int, int, int], ...] = ()
    entries: tuple[Throttle, ...] = ()
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict)
    stored_by_topic: dict[str, int] = field(default_factory=dict)
    silent: tuple[BrokerUnresponsive, ...] = ()
    shares: dict[int, BrokerBandwidth | None] = field(default_factory=dict)

    def traffic(self, instance_id: str, since_ms: int) -> Traffic:
        return Traffic(
            now_ms=self.now_ms,
            step_ms=1_000,
            alive_since_ms=0,
            known_by_broker={},
            points=tuple(point for point in self.points if point[0] >= since_ms),
            by_broker={1: (10, 20)},
            silent=self.silent,
        )

    def throttles(self, instance_id: str) -> Throttles:
        return Throttles(now_ms=self.now_ms, entries=self.entries, silent=self.silent)

    def bandwidth(self, instance_id: str) -> Bandwidth:
        return Bandwidth(brokers=self.shares)

    def topic_sizes(self, instance_id: str, topic: str = "") -> TopicSizes:
        known = {name: {index: {} for index in range(100)} for name in self.sizes}
        stored_bytes = sum(size for size, _ in self.sizes.values())
        return TopicSizes(
            topics=self.sizes,
            partitions=known,
            silent=self.silent,
            stored_bytes=stored_bytes,
            stored_by_topic=self.stored_by_topic,
        )


@dataclass(slots=True)
class FakeQuotas:
    """In-memory `quotas.interfaces.ClientQuotaAdminClient`."""

    quotas: dict[tuple[str, EntityPart | None, EntityPart | None], dict[str, float]] = field(default_factory=dict)
    # Limits by instance and address; the address None is the default.
    addresses: dict[tuple[str, str | None], int] = field(default_factory=dict)

    def describe(self, instance_id: str) -> Sequence[ClientQuota]:
        return [
            ClientQuota(user=user, client_id=client_id, limits=dict(limits))
            for (owner, user, client_id), limits in self.quotas.items()
            if owner == instance_id
        ]

    def alter(
        self,
        instance_id: str,
        user: EntityPart | None,
        client_id: EntityPart | None,
        limits: dict[str, float | None],
        *,
        validate_only: bool,
    ) -> None:
        if validate_only:
            return
        merged: dict[str, float | None] = {**self.quotas.get((instance_id, user, client_id), {}), **limits}
        remaining = {key: value for key, value in merged.items() if value is not None}
        if remaining:
            self.quotas[instance_id, user, client_id] = remaining
        else:
            self.quotas.pop((instance_id, user, client_id), None)

    def describe_addresses(self, instance_id: str) -> Sequence[AddressQuota]:
        return [
            AddressQuota(address=address, connections_per_s=limit)
            for (owner, address), limit in self.addresses.items()
            if owner == instance_id
        ]

    def alter_address(
        self, instance_id: str, address: str | None, connections_per_s: int | None, *, validate_only: bool
    ) -> None:
        if validate_only:
            return
        if connections_per_s is None:
            self.addresses.pop((instance_id, address), None)
        else:
            self.addresses[instance_id, address] = connections_per_s
