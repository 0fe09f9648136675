"""Interfaces of `instances` to the apps above it (brokers, notifications, billing), which implement them and plug them
in `AppConfig.ready`.

Dependencies between apps have one direction, so calls in the other direction go through here:
`interfaces.plan_catalogue.implementation(...)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from quotas.explain import BYTES_PER_S, UNITS
from tenants.actors import Actor
from tenants.cached_values import cacheable
from tenants.errors import DomainError
from tenants.interfaces import Interface

if TYPE_CHECKING:
    from instances.lifecycle.conditions import Condition
    from instances.models import Instance
    from tenants.alert_state import Transition

__all__ = [
    "AccountNotice",
    "Bandwidth",
    "BrokerBandwidth",
    "BrokerObservation",
    "BrokerUnresponsive",
    "Capacity",
    "ConfigEntry",
    "DataPlane",
    "FiringAlert",
    "Flow",
    "Interface",
    "PartitionSummary",
    "PlacementForecast",
    "PlanCatalogue",
    "PlanTerms",
    "Throttle",
    "Throttles",
    "TopicDescription",
    "TopicSizes",
    "Traffic",
]


# --- billing ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTerms:
    """The content of a plan, and the largest size of an instance within it."""

    code: str
    name: str
    bandwidth_mb_s: int
    storage_gb: int
    bandwidth_mb_s_max: int
    storage_gb_max: int
    partitions_max: int


class PlanCatalogue(Protocol):
    """The plans; plugged by billing."""

    def __call__(
        self,
        code: str | None,
        *,
        bandwidth_mb_s: int | None = None,
        storage_gb: int | None = None,
        current_plan: str | None = None,
        currency: str | None = None,
    ) -> PlanTerms | None:
        """Returns the plan with `code` if it is on sale, or if it is `current_plan`, which the instance has already;
        without a code, the smallest plan on sale that allows the requested size. None if there is no such plan.

        With a `currency`, only plans with a price in it are on sale.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountNotice:
    """A sentence about the account of a tenant, with a link to its page; no link for members who may not
    see the page.
    """

    text: str
    link: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FiringAlert:
    """A firing alert rule of a tenant. `kind` is the kind of the rule, `text` the measurement in the reader's language,
    `group` the consumer group of a rule about one. `link` leads to the rule, and is empty for members who may not see
    it.
    """

    instance_id: str
    kind: str
    name: str
    text: str
    since: datetime
    group: str = ""
    link: str = ""


# --- brokers: the data plane ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSummary:
    """A partition as in Kafka's Metadata response, with ids of brokers; `leader` -1: none at the moment."""

    index: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    """A topic as brokers describe it, under the tenant's name."""

    name: str
    topic_id: str
    partitions: tuple[PartitionSummary, ...]

    @property
    def replication_factor(self) -> int:
        return max((len(partition.replicas) for partition in self.partitions), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """A configuration value of a topic. `is_default`: it is not set on the topic itself. `default` is the value without
    such a setting; None if brokers do not report it.
    """

    name: str
    value: str | None
    is_default: bool
    is_read_only: bool
    default: str | None = None


class DataPlane(Protocol):
    """Kafka admin client that is connected to an instance as its owner. Brokers check its requests as any client's.

    All methods raise `tenants.errors.Unavailable` if no broker answers in time, and otherwise the error that
    corresponds to the Kafka error: `NotFound`, `Conflict`, `Invalid`, `PermissionDenied`, `QuotaExceeded`.
    """

    def topics(self, instance_id: str) -> Sequence[TopicDescription]: ...

    def topic(self, instance_id: str, name: str) -> TopicDescription: ...

    def topic_config(self, instance_id: str, name: str) -> Sequence[ConfigEntry]: ...

    def topic_with_config(self, instance_id: str, name: str) -> tuple[TopicDescription, Sequence[ConfigEntry]]:
        """Returns what `topic` and `topic_config` return, in the time of one of them."""
        ...

    def create_topic(
        self,
        instance_id: str,
        name: str,
        *,
        partitions: int,
        replication_factor: int,
        config: Mapping[str, str],
        validate_only: bool,
    ) -> None: ...

    def grow_topic(self, instance_id: str, name: str, partitions: int, *, validate_only: bool) -> None: ...

    def alter_topic_config(
        self, instance_id: str, name: str, config: Mapping[str, str | None], *, validate_only: bool
    ) -> None: ...

    def delete_topic(self, instance_id: str, name: str) -> None: ...

    def delete_hidden_topic(self, instance_id: str, name: str) -> None:
        """Purges a deleted topic, which brokers hide from clients. Does nothing if it is purged already."""
        ...


# --- brokers: observation -------------------------------------------------------------------------------------------


@cacheable
@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerUnresponsive:
    """A broker that did not answer; sums without it are partial."""

    broker_id: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Bytes by step of `step_ms`, summed over brokers. A point is `(start ms, produce bytes, consume bytes, longest
    delay ms)`; steps without data have none.

    `known_by_broker` has the spans `[from, to)` in ms in which the traffic of each broker is known. A step without a
    point is zero if it is known of every broker; else it is unknown, in part or as a whole. Since `alive_since_ms` the
    traffic of all brokers that answered is known. `by_broker` has the bytes of the last full step: broker id ->
    (produce, consume).
    """

    now_ms: int
    step_ms: int
    alive_since_ms: int
    known_by_broker: Mapping[int, Sequence[tuple[int, int]]]
    points: tuple[tuple[int, int, int, int], ...]
    by_broker: Mapping[int, tuple[int, int]]
    silent: tuple[BrokerUnresponsive, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttle:
    """A rule and the client that it throttles on one broker. Limits are in the quota's own unit (`unit`), None if the
    rule has none: `limit_per_s` is the share of this broker, `whole_limit_per_s` the limit of all brokers together.
    Instants in ms since the epoch: the first of `bursts` began at `since_ms`, the latest at `burst_since_ms`.
    """

    broker_id: int
    kind: str
    quota: str
    level: int | None
    entity: Mapping[str, str | None]
    limit_per_s: float | None
    whole_limit_per_s: float | None
    user: str
    client_id: str
    count: int
    delay_ms_mean: float
    delay_ms_p95: float
    delay_ms_max: float
    waited_ms_total: float
    since_ms: int
    last_ms: int
    active: bool
    burst_since_ms: int
    bursts: int

    @property
    def unit(self) -> str | None:
        """Unit of the limits: `bytes_per_s`, `percent` (of a broker's time), `partitions_per_s`, or None."""
        return UNITS.get(self.quota)

    @property
    def limit_bytes_per_s(self) -> float | None:
        """Limit of this broker in bytes/s; None if the unit is another one."""
        return self.limit_per_s if self.unit == BYTES_PER_S else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttles:
    """The throttles of an instance, longest mean delay first. `totals`: by broker and kind of rule, the number of
    requests delayed or refused since the broker's start, and their total delay in ms.
    """

    now_ms: int
    entries: tuple[Throttle, ...]
    silent: tuple[BrokerUnresponsive, ...]
    totals: Mapping[int, Mapping[str, tuple[int, int]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """One direction of an instance's bandwidth on one broker, in bytes/s: its share, the demand of its clients in the
    last interval, and the admitted bytes. `leaders`: partitions that it leads.
    """

    leaders: int
    share_bytes_per_s: int
    wanted_bytes_per_s: int
    admitted_bytes_per_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerBandwidth:
    """One broker's share of an instance's bandwidth, with its policy and the reason: `static`, `follows_demand`,
    `layout_changed`, `no_answer` or `not_reported`. `loop_used_ms` is time of its event loop charged to the instance;
    None: the broker does not report it.
    """

    broker_id: int
    policy: str
    reason: str
    produce: Flow
    consume: Flow
    loop_used_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bandwidth:
    """Bandwidth by broker id; None for a broker that serves the instance and does not answer."""

    brokers: Mapping[int, BrokerBandwidth | None]

    @property
    def is_known(self) -> bool:
        return bool(self.brokers) and None not in self.brokers.values()


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedTopic:
    """A topic that a client recently tried to auto-create, and the reason why it could not be created."""

    name: str
    reason: str
    last_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSizes:
    """Sizes of topics: `(bytes, messages)` at the leaders by topic, without the partitions of unresponsive brokers.

    `stored_bytes` is the storage used by the instance, with all replicas; `stored_by_topic` is that of each topic, and
    `hidden` that of each deleted topic that can be restored (brokers hide it from clients). `partitions` has the
    leader's report of each partition, by topic and partition number.

    Gateways of a Kafka cluster know sizes with all replicas only: they are `silent`, but with `has_stored_bytes`.
    """

    topics: Mapping[str, tuple[int, int]]
    partitions: Mapping[str, Mapping[int, Mapping[str, int]]]
    silent: tuple[BrokerUnresponsive, ...]
    stored_bytes: int
    refused: tuple[RefusedTopic, ...] = ()
    stored_by_topic: Mapping[str, int] = field(default_factory=dict)
    hidden: Mapping[str, int] = field(default_factory=dict)
    has_stored_bytes: bool = False

    @property
    def known_stored_bytes(self) -> int | None:
        """Returns `stored_bytes`; None if a broker did not answer."""
        return self.stored_bytes if self.has_stored_bytes or not self.silent else None


class BrokerObservation(Protocol):
    """Reader of the reports on the admin ports of an instance's brokers, with short timeouts. A broker that does not
    answer makes a result incomplete and raises no error.
    """

    def traffic(self, instance_id: str, since_ms: int) -> Traffic:
        """Returns the traffic since `since_ms` (ms since 1970); below 0 it counts from the brokers' current time."""
        ...

    def throttles(self, instance_id: str) -> Throttles: ...

    def bandwidth(self, instance_id: str) -> Bandwidth: ...

    def topic_sizes(self, instance_id: str, topic: str = "") -> TopicSizes:
        """Returns the sizes of all topics, or one of them."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementForecast:
    """Forecast of an instance's placement: `fact` is a sentence for people; `data` is for programs, with `outcome`
    (`placed`, `forms_cluster` or `waits`) and figures.
    """

    fact: str
    data: Mapping[str, Any]


class Capacity(Protocol):
    """Capacity of the cluster of an instance."""

    def reserve(self, instance: Instance, *, bandwidth_mb_s: int, storage_gb: int) -> None:
        """Reserves the capacity for another size, in the caller's transaction. Raises `Conflict(no_room)`."""
        ...

    def forecast(self, instance: Instance) -> PlacementForecast:
        """Returns the forecast of an instance's placement in the current state of the clusters."""
        ...

    def release_bandwidth(self, instance: Instance) -> None:
        """Releases the bandwidth of a deleted instance; its storage is reserved until its files are deleted."""
        ...


plan_catalogue: Interface[PlanCatalogue] = Interface("instances.interfaces.plan_catalogue")
# Takes the reader; returns notices about the tenant's account, such as an overdue invoice. Plugged by billing.
account_notices: Interface[Callable[[Actor], Sequence[AccountNotice]]] = Interface(
    "instances.interfaces.account_notices"
)
# Takes the reader and an instance's id or "" for all; returns the tenant's firing alerts. Plugged by notifications.
firing_alerts: Interface[Callable[[Actor, str], Sequence[FiringAlert]]] = Interface(
    "instances.interfaces.firing_alerts"
)
# Takes the acting user, the instance and its changed conditions: writes notices of them in the caller's transaction.
# Plugged by notifications.
notify_conditions: Interface[Callable[[Actor, Instance, Sequence[tuple[Condition, Transition]]], None]] = Interface(
    "instances.interfaces.notify_conditions"
)
data_plane: Interface[DataPlane] = Interface("instances.interfaces.data_plane")
observation: Interface[BrokerObservation] = Interface("instances.interfaces.observation")
# Takes (instance id, topic, first offset to keep by partition): deletes the records below, as the instance's owner.
# Returns the error of each partition whose records were not deleted. Raises `OutcomeUnknown` if the result is unknown.
delete_records: Interface[Callable[[str, str, Mapping[int, int]], Mapping[int, DomainError]]] = Interface(
    "instances.interfaces.delete_records"
)
# True for an instance whose records are in an existing Kafka, with gateways in front of it.
is_on_kafka: Interface[Callable[[str], bool]] = Interface("instances.interfaces.is_on_kafka")
capacity: Interface[Capacity] = Interface("instances.interfaces.capacity")
# True if other machines may reach brokers.
exposure: Interface[Callable[[], bool]] = Interface("instances.interfaces.exposure")
# Takes the instance id: enqueues its reconciliation; losing the call is harmless (a sweep repairs it).
reconcile: Interface[Callable[[str], Any]] = Interface("instances.interfaces.reconcile")
# Takes (instance id, topic, run): sends sample data for a minute; losing the call is harmless.
stream_samples: Interface[Callable[[str, str, str], Any]] = Interface("instances.interfaces.stream_samples")
# Takes (instance id, topic, run): sends above the demo client's quota, and removes the quota.
push_limit: Interface[Callable[[str, str, str], Any]] = Interface("instances.interfaces.push_limit")
# Takes the instance id: enqueues the publication of its OAuth configuration; losing the call is harmless.
publish_oauth: Interface[Callable[[str], Any]] = Interface("instances.interfaces.publish_oauth")
