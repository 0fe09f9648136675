"""Services of one broker for its handlers, in five groups; a handler takes the group it needs."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Final, Protocol, TypeVar
from weakref import WeakValueDictionary

from brokers.engine.access.acls import AclIndexes
from brokers.engine.access.authorizer import Address
from brokers.engine.access.principals import Principal
from brokers.engine.clock import Clock, LoopClock, StallDetector
from brokers.engine.cluster.current import CurrentImage
from brokers.engine.cluster.image import TopicImage
from brokers.engine.cluster.store import ClusterStore
from brokers.engine.coordinators.runtime import Runtime
from brokers.engine.coordinators.settings import CoordinatorSettings, from_overrides
from brokers.engine.deadlines import Deadlines
from brokers.engine.handlers.audit_trail import AuditTrail
from brokers.engine.handlers.authentication import Authentication
from brokers.engine.handlers.change_turns import ChangeLogReadBudget, ChangeTurns, TopicsBeingCreated
from brokers.engine.handlers.waiting_calls import WaitingCalls
from brokers.engine.loop_turns import LoopTurns
from brokers.engine.partitions.deletion import DurableLogStartOffsets
from brokers.engine.partitions.follower_session import FollowerSession
from brokers.engine.partitions.high_watermark_push import HighWatermarkPushes
from brokers.engine.partitions.leadership_check import LeadershipChecks
from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.table import PartitionTable
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.broker_reports import (
    AllotStorageRequest,
    AllotStorageResponse,
    ChargePoolsRequest,
    ChargePoolsResponse,
    ReportFlowRequest,
    ReportFlowResponse,
)
from brokers.engine.scheduling.accounts import Ownership
from brokers.engine.scheduling.permits import DecodeMemoryLimiter
from brokers.engine.scheduling.turn_queue import TurnQueue
from brokers.engine.scheduling.weights import LoopWeights
from brokers.engine.throttling.accounting import AccountingRegistry
from brokers.engine.throttling.replication import ReplicationThrottle

T = TypeVar("T")

NEVER_MS: Final = 1 << 62
_UNKNOWN: Final = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
_NOT_LEADER: Final = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)


@dataclass(frozen=True, slots=True)
class BrokerLayers:
    """Layers of settings, in Kafka's terms: `dynamic`, of one broker, overrides `dynamic_default`, of all brokers, and
    both override `static`, with which the broker was started. The first two have valid values only.
    """

    static: Mapping[str, str] = field(default_factory=dict)
    dynamic_default: Mapping[str, str] = field(default_factory=dict)
    dynamic: Mapping[str, str] = field(default_factory=dict)

    @property
    def effective(self) -> dict[str, str]:
        """Returns the settings in effect, without defaults."""
        return {**self.static, **self.dynamic_default, **self.dynamic}


# -- defaults of services that the assembly has not connected yet, since requests may arrive before --------------------


async def no_coordinator(
    transactional_id: str, producer_id: int, producer_epoch: int, partitions: Sequence[tuple[str, int]]
) -> dict[tuple[str, int], int]:
    """Answers that no coordinator of transactions is available."""
    return dict.fromkeys(partitions, int(ErrorCode.COORDINATOR_NOT_AVAILABLE))


def reject_as_non_controller(response: Callable[..., T]) -> Callable[[Any], T]:
    """Returns a service that answers that this broker is neither the controller nor the flow master."""
    return lambda _request: response(error_code=int(ErrorCode.NOT_CONTROLLER))


no_controller = reject_as_non_controller(AllotStorageResponse)
no_flow_master = reject_as_non_controller(ReportFlowResponse)
no_pools = reject_as_non_controller(ChargePoolsResponse)


def no_leader(_broker_id: int) -> bool:
    """Answers that the leader is not reached."""
    return False


def do_nothing(*_: object) -> None:
    """Does nothing."""


async def no_change_log() -> None:
    """Reads nothing."""


# -- the five groups ---------------------------------------------------------------------------------------------------


class ProducerIds(Protocol):
    """Allocates producer ids (IDE-1, IDE-2)."""

    async def next_id(self) -> int: ...


class VerifyTransaction(Protocol):
    """Asks the coordinator of a transaction whether partitions, by internal topic, were added to it (TXN-27). Returns
    an error code for each: TRANSACTION_ABORTABLE (120) if it was not added; 47, 49, 51 or 90 if the producer has no
    such transaction; 13, 14, 15 or 16 if the coordinator cannot answer.
    """

    async def __call__(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Sequence[tuple[str, int]]
    ) -> dict[tuple[str, int], int]: ...


class ForwardingFailed(Exception):
    """Raised if the other broker did not answer; the outcome of the call is unknown."""


class Forwarder(Protocol):
    """Forwards a client's call to another broker, in the client's name. Raises ForwardingFailed."""

    async def __call__(
        self,
        broker_id: int,
        principal: Principal,
        address: Address,
        client_id: str,
        api_key: int,
        version: int,
        message: Any,
    ) -> Any: ...


@dataclass(slots=True)
class Totals:
    """Counters of requests and traffic since the start of the process."""

    requests: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    produce_bytes: int = 0
    consume_bytes: int = 0
    delays: int = 0


@dataclass(slots=True, eq=False)
class StorageServices:
    """Partitions on this broker, their followers, and the threads that work on their records."""

    table: PartitionTable
    fetch_bytes_max: int
    # Threads that may wait for a disk.
    readers: Executor
    # Threads that convert records; None is the event loop's default pool, which flushes also use.
    converters: Executor | None = None
    # Fetch session of each follower, by its broker id.
    followers: dict[int, FollowerSession] = field(default_factory=dict)
    last_follower_session_id: int = 0
    # Requests that wait until followers have confirmed that this broker is still the leader.
    leadership_checks: LeadershipChecks = field(default_factory=LeadershipChecks)
    # Limits what this leader sends to throttled replicas.
    replication_throttle: ReplicationThrottle = field(default_factory=ReplicationThrottle)
    stall_detector: StallDetector = field(default_factory=lambda: StallDetector(0, NEVER_MS))
    # Sends high watermarks to the followers that clients read from.
    high_watermark_pushes: HighWatermarkPushes = field(init=False)
    # Takes a leader's broker id. Returns True if that leader answers the fetches of this broker.
    reaches_leader: Callable[[int], bool] = no_leader
    # Called with a partition that this broker leads when a follower outside of its ISR has caught up.
    may_join_isr: Callable[[Partition], object] = do_nothing
    # Writes log start offsets to disk.
    durable_start_offsets: DurableLogStartOffsets = field(init=False)
    # Converter threads are limited to one request of an instance at a time.
    converter_permits: DecodeMemoryLimiter = field(init=False)

    def find(self, topic: TopicImage, index: int) -> Partition | int:
        """Returns a partition on this broker, or the error code of requests for it."""
        if not 0 <= index < len(topic.partitions):
            return _UNKNOWN
        partition = self.table.get(topic.name, index)
        return _NOT_LEADER if partition is None else partition


@dataclass(slots=True, eq=False)
class MetadataServices:
    """The cluster metadata, and the writes that change it. `version` is replaced by a new object after every change of
    what a client may see or use.
    """

    current: CurrentImage
    store: ClusterStore
    topic_defaults: Mapping[str, str]
    # Returns when the metadata has all changes that were announced before the call.
    catch_up: Callable[[], Awaitable[None]] = no_change_log
    version: object = field(default_factory=object)
    topics_being_created: TopicsBeingCreated = field(default_factory=TopicsBeingCreated)
    # Queue of the changes in ZooKeeper.
    change_turns: ChangeTurns = field(init=False)
    # Settings of this broker, and the check of their combination, which raises SettingsWrong.
    broker_layers: BrokerLayers = field(default_factory=BrokerLayers)
    check_settings: Callable[[Mapping[str, str]], object] = do_nothing
    # The setting `delete.topic.enable`.
    deletes_topics: bool = True
    # Limits look-ups of unknown topics in the change log.
    change_log_reads: ChangeLogReadBudget = field(init=False)

    def bump_version(self) -> None:
        self.version = object()


@dataclass(slots=True, eq=False)
class CoordinatorServices:
    """Coordinators of groups and transactions on this broker, and access to those on others."""

    producer_ids: ProducerIds
    settings: CoordinatorSettings = field(default_factory=lambda: from_overrides({}))
    # None until the assembly sets them.
    groups: Runtime[Any] | None = None
    transactions: Runtime[Any] | None = None
    verify_transaction: VerifyTransaction = no_coordinator
    # Forwards calls to coordinators outside of an instance's brokers.
    forwarder: Forwarder | None = None
    # Writes that wait while their instance is in debt for coordinator writes, by instance id.
    state_write_queues: WeakValueDictionary[str, Any] = field(default_factory=WeakValueDictionary)


@dataclass(slots=True, eq=False)
class AccessServices:
    """Authentication, access control lists, and the audit of administrative calls."""

    control_secret: str
    acl_indexes: AclIndexes = field(default_factory=AclIndexes)
    # Authenticates clients of instances.
    authentication: Authentication = field(init=False)
    # Records administrative changes and failed sign-ins.
    audit: AuditTrail = field(init=False)
    # Ends waiting calls whose client loses a right.
    waiting_calls: WaitingCalls = field(init=False)


@dataclass(slots=True, eq=False)
class AccountingServices:
    """Limits and charges of clients, and the queues of instances that exceeded their share."""

    accountings: AccountingRegistry
    loop_turns: LoopTurns = field(default_factory=LoopTurns)
    totals: Totals = field(default_factory=Totals)
    # Shares of instances and tenants in the event loop when it is contended.
    loop_weights: LoopWeights = field(default_factory=LoopWeights)
    # Charges time of the event loop to an instance; takes its id, start and end, in seconds of `perf_counter`.
    charge_loop: Callable[[str, float, float], object] = do_nothing
    # As controller: grants other brokers the bytes that they may append for instances.
    allot_storage: Callable[[AllotStorageRequest], AllotStorageResponse] = no_controller
    # As flow master: grants brokers their shares of the instances' bandwidth.
    report_flow: Callable[[ReportFlowRequest], ReportFlowResponse] = no_flow_master
    charge_pools: Callable[[ChargePoolsRequest], ChargePoolsResponse] = no_pools
    # Turns of tenants' long requests; an instance in debt for request time waits.
    request_turns: TurnQueue = field(init=False)
    # Limits the memory of each instance's decoded long requests.
    decode_memory: DecodeMemoryLimiter = field(init=False)

    def weights_of(self, instance_id: str, tenant_id: str) -> tuple[float, float]:
        return self.loop_weights.instance_weight(instance_id), self.loop_weights.tenant_weight(tenant_id)


@dataclass(slots=True, eq=False)
class BrokerServices:
    """The five groups of services, and what all of them use: the event loop, its clock and its tasks."""

    broker_id: int
    loop: asyncio.AbstractEventLoop
    clock: Clock
    frame_bytes_max: int
    storage: StorageServices
    metadata: MetadataServices
    coordination: CoordinatorServices
    access: AccessServices
    accounting: AccountingServices
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    # Clock and timers of the waits until a limiter is paid.
    loop_clock: LoopClock = field(init=False)
    # Turns of the broker's own tasks.
    own_turns: TurnQueue = field(init=False)
    deadlines: Deadlines = field(init=False)

    def __post_init__(self) -> None:
        loop, clock, metadata, accounting = self.loop, self.clock, self.metadata, self.accounting
        self.loop_clock = LoopClock(loop, clock)
        self.own_turns = TurnQueue(loop)
        self.deadlines = Deadlines(loop, clock)
        metadata.change_log_reads = ChangeLogReadBudget(clock)
        self.access.audit = AuditTrail(self.broker_id, clock)
        self.access.authentication = Authentication(loop, clock, metadata.current)
        ownership = Ownership(metadata.current.tenant_of, accounting.weights_of)
        accounting.request_turns = TurnQueue(loop, self._request_time_debt_ms, ownership)
        metadata.change_turns = ChangeTurns(Ownership(metadata.current.tenant_of))
        accounting.decode_memory = DecodeMemoryLimiter(tenant_of=metadata.current.tenant_of)
        self.storage.converter_permits = DecodeMemoryLimiter(bytes_max=0)
        self.storage.durable_start_offsets = DurableLogStartOffsets(self.storage.table, self.spawn)
        self.storage.high_watermark_pushes = HighWatermarkPushes(self.storage.followers)
        # A separate queue: an instance in debt for request time must not keep rights that were revoked.
        self.access.waiting_calls = WaitingCalls(
            TurnQueue(loop, ownership=ownership),
            self.spawn,
            self._charge_request_time,
        )

    def _charge_request_time(self, instance_id: str, spent_s: float) -> None:
        now_s = perf_counter()
        self.accounting.charge_loop(instance_id, now_s - spent_s, now_s)
        accounting = self.accounting.accountings.get_or_create(instance_id)
        accounting.request_time.charge(round(spent_s * 1e6), self.clock.monotonic_ms())

    def _request_time_debt_ms(self, instance_id: str) -> int:
        return self.accounting.accountings.get_or_create(instance_id).request_time.debt_ms(self.clock.monotonic_ms())

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Starts a task, and keeps it in `tasks` until it ends."""
        task = self.loop.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task
