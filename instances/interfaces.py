"""What instances needs of the apps above it (brokers, billing), as interfaces they plug from `AppConfig.ready`.

Apps lean one way, so the calls that must go up go through here: `interfaces.plan_catalogue.it(...)`.
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
    from instances.models import Instance

__all__ = [
    "AccountNotice",
    "Bandwidth",
    "BrokerBandwidth",
    "BrokerUnresponsive",
    "Capacity",
    "ConfigEntry",
    "DataPlane",
    "FiringAlert",
    "Flow",
    "Interface",
    "Observation",
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
    """What a plan includes and how far an instance may grow inside it."""

    code: str
    name: str
    bandwidth_mb_s: int
    storage_gb: int
    bandwidth_mb_s_max: int
    storage_gb_max: int
    partitions_max: int


class PlanCatalogue(Protocol):
    """Plugged by billing."""

    def __call__(
        self,
        code: str | None,
        *,
        bandwidth_mb_s: int | None = None,
        storage_gb: int | None = None,
        held: str | None = None,
        currency: str | None = None,
    ) -> PlanTerms | None:
        """The plan called `code`, if it is on sale or the one `held` by who asks; without a code the smallest on sale
        that can hold what is asked for, or None. With a `currency` only plans that have a price in it are sold.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountNotice:
    """Sentence about the account of a tenant, with the page it is about; no link for members who may not see that."""

    text: str
    link: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FiringAlert:
    """An alert rule of a tenant that fires. `kind` is the rule's, `text` says what was measured, in the reader's
    language; `link` leads to the rule, and is empty for members who may not see it.
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
    """One partition as Metadata tells it; broker ids, `leader` -1 = none at the moment."""

    index: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    """One topic under the tenant's name."""

    name: str
    topic_id: str
    partitions: tuple[PartitionSummary, ...]

    @property
    def replication_factor(self) -> int:
        return max((len(partition.replicas) for partition in self.partitions), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """One configuration value of a topic; `is_default` when nobody set it on the topic. `default` is what it would be
    then, where brokers say so.
    """

    name: str
    value: str | None
    is_default: bool
    is_read_only: bool
    default: str | None = None


class DataPlane(Protocol):
    """The admin client: an admin client connected to the instance as its owner. The same checks as for any Kafka
    client.

    All raise `tenants.errors.Unavailable` when no broker answers in time, and otherwise what the Kafka error means:
    `NotFound`, `Conflict`, `Invalid`, `PermissionDenied`, `QuotaExceeded`.
    """

    def topics(self, instance_id: str) -> Sequence[TopicDescription]: ...

    def topic(self, instance_id: str, name: str) -> TopicDescription: ...

    def topic_config(self, instance_id: str, name: str) -> Sequence[ConfigEntry]: ...

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
        """Delete a topic that its owner has deleted before and clients no longer see; one that is gone is fine."""
        ...


# --- brokers: what is seen ------------------------------------------------------------------------------------------


@cacheable
@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerUnresponsive:
    """A broker that did not answer, so that a sum without it is known to be partial."""

    broker_id: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Bytes per step summed over brokers. A point is `(start ms, produce bytes, consume bytes, longest delay ms)`.

    Points exist only for steps with data; a step without one is zero where it is known of every broker (all since
    `alive_since_ms`), else it is known in part, or not at all: `known_by_broker` has the spans `[from, to)` in ms of
    which each broker's part is known. `by_broker` has the bytes of the last full step: broker id -> (produce, consume).
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
    """A rule and who waits for it on one broker. Limits are in the quota's own unit (`unit`), None where the rule has
    none: `limit_per_s` is what this broker may admit, `whole_limit_per_s` what was bought or set for all brokers
    together. Instants in ms since the epoch: the first of `bursts` began at `since_ms`, the latest at
    `burst_since_ms`.
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
        """`bytes_per_s`, `percent` (of a broker's time), `partitions_per_s`, or None."""
        return UNITS.get(self.quota)

    @property
    def limit_bytes_per_s(self) -> float | None:
        """The broker's limit where it is one of bytes."""
        return self.limit_per_s if self.unit == BYTES_PER_S else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttles:
    """The ledger of an instance, longest mean delay first. `totals`: by broker and kind of rule, how many requests were
    delayed or refused since the broker's start, and how long they waited in ms.
    """

    now_ms: int
    entries: tuple[Throttle, ...]
    silent: tuple[BrokerUnresponsive, ...]
    totals: Mapping[int, Mapping[str, tuple[int, int]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """One direction of an instance's bandwidth on one broker, in bytes/s: what it may admit, what its clients wanted in
    the last interval, and what they were given. `leaders`: partitions that it leads.
    """

    leaders: int
    share_bytes_per_s: int
    wanted_bytes_per_s: int
    admitted_bytes_per_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerBandwidth:
    """What one broker has of an instance's bandwidth, by which policy, and why it is so much: `static`,
    `follows_demand`, `layout_changed`, `no_answer` or `not_reported`. `loop_used_ms` is time of its event loop that the
    instance was charged; None: the broker does not say.
    """

    broker_id: int
    policy: str
    reason: str
    produce: Flow
    consume: Flow
    loop_used_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bandwidth:
    """By broker; None of one that serves the instance and does not say."""

    brokers: Mapping[int, BrokerBandwidth | None]

    @property
    def is_known(self) -> bool:
        return bool(self.brokers) and None not in self.brokers.values()


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedTopic:
    """A topic that a client wanted to use into being lately, and why it could not be made."""

    name: str
    reason: str
    last_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSizes:
    """By topic: `(bytes, messages)` as the leaders hold them; a silent broker's partitions are missing.

    `stored_bytes` are those of all replicas together, `stored_by_topic` the same of each topic, `hidden` of each
    deleted topic that may be restored.
    """

    topics: Mapping[str, tuple[int, int]]
    partitions: Mapping[str, Mapping[int, Mapping[str, int]]]
    silent: tuple[BrokerUnresponsive, ...]
    stored_bytes: int
    refused: tuple[RefusedTopic, ...] = ()
    stored_by_topic: Mapping[str, int] = field(default_factory=dict)
    hidden: Mapping[str, int] = field(default_factory=dict)


class Observation(Protocol):
    """What the brokers of an instance report on their admin ports; short timeouts, partial answers, never an error."""

    def traffic(self, instance_id: str, since_ms: int) -> Traffic:
        """From an instant on; below 0: from so long before the brokers' now on."""
        ...

    def throttles(self, instance_id: str) -> Throttles: ...

    def bandwidth(self, instance_id: str) -> Bandwidth: ...

    def topic_sizes(self, instance_id: str, topic: str = "") -> TopicSizes:
        """All topics, or one of them."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementForecast:
    """Forecast for an instance that is to be placed: a sentence, and for programs `outcome` (`placed`, `forms_cluster`,
    `waits`) with figures.
    """

    fact: str
    data: Mapping[str, Any]


class Capacity(Protocol):
    """Room on the cluster that holds an instance."""

    def reserve(self, instance: Instance, *, bandwidth_mb_s: int, storage_gb: int) -> None:
        """Take the room for another size, in the caller's transaction; `Conflict(no_room)` when there is none."""
        ...

    def forecast(self, instance: Instance) -> PlacementForecast:
        """Tells what would become of an instance that is to be placed, as things stand."""
        ...

    def release_bandwidth(self, instance: Instance) -> None:
        """Give back the bandwidth of an instance that is deleted; its storage is held until its files are gone."""
        ...


plan_catalogue: Interface[PlanCatalogue] = Interface("instances.interfaces.plan_catalogue")
# (who looks): what is the matter with the tenant's account, such as an overdue invoice. Plugged by billing.
account_notices: Interface[Callable[[Actor], Sequence[AccountNotice]]] = Interface(
    "instances.interfaces.account_notices"
)
# (who looks, an instance's id or "" for all): the alerts of the tenant that fire. Plugged by billing.
firing_alerts: Interface[Callable[[Actor, str], Sequence[FiringAlert]]] = Interface(
    "instances.interfaces.firing_alerts"
)
data_plane: Interface[DataPlane] = Interface("instances.interfaces.data_plane")
observation: Interface[Observation] = Interface("instances.interfaces.observation")
# (instance id, topic, first offset to keep by partition): delete the records below, as the instance's owner. Returns
# the partitions that refused, each with what the refusal means; `OutcomeUnknown` where nobody says whether it was done.
delete_records: Interface[Callable[[str, str, Mapping[int, int]], Mapping[int, DomainError]]] = Interface(
    "instances.interfaces.delete_records"
)
capacity: Interface[Capacity] = Interface("instances.interfaces.capacity")
# True if other machines may reach brokers.
exposure: Interface[Callable[[], bool]] = Interface("instances.interfaces.exposure")
# (instance id): bring the world in line with what is wanted, soon; losing the call is harmless (a sweep repairs it).
reconcile: Interface[Callable[[str], Any]] = Interface("instances.interfaces.reconcile")
# (instance id, topic, run): send sample data for a minute; losing the call is harmless.
stream_samples: Interface[Callable[[str, str, str], Any]] = Interface("instances.interfaces.stream_samples")
# (instance id, topic, run): send beyond the demo client's quota, and take the quota back.
push_limit: Interface[Callable[[str, str, str], Any]] = Interface("instances.interfaces.push_limit")
# (instance id): tell brokers whose tokens they may take, soon; losing the call is harmless as well.
publish_oauth: Interface[Callable[[str], Any]] = Interface("instances.interfaces.publish_oauth")
