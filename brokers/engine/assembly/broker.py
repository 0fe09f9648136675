"""Builds, starts and stops one broker process."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import structlog

from brokers.contract.documents import BrokerDocument
from brokers.contract.process_identity import PLAINTEXT
from brokers.contract.usage import USAGE_INTERVAL_MS
from brokers.contract.version import VERSION
from brokers.contract.zookeeper_access import TreeAccess
from brokers.engine import compatibility, garbage, lifecycle
from brokers.engine.assembly import dynamic_configs, internal_security
from brokers.engine.assembly.admin import AdminPort
from brokers.engine.assembly.admin_server import AdminServer
from brokers.engine.assembly.audit_log import AuditLog
from brokers.engine.assembly.bandwidth import Bandwidth
from brokers.engine.assembly.cleaning import LogCleaning
from brokers.engine.assembly.coordination import Coordination
from brokers.engine.assembly.coordinator_forwarding import SWEEP_INTERVAL_S as FORWARDER_SWEEP_INTERVAL_S
from brokers.engine.assembly.coordinator_forwarding import CoordinatorForwarding
from brokers.engine.assembly.flow_control import FlowControl
from brokers.engine.assembly.free_space_monitor import FreeSpaceMonitor, free_bytes_min_from
from brokers.engine.assembly.handover import hand_over
from brokers.engine.assembly.instance_counts import take_levels
from brokers.engine.assembly.internal_security import InternalSecurity, Revocations
from brokers.engine.assembly.log_maintenance import LogMaintenance
from brokers.engine.assembly.long_turns import LongTurnLog
from brokers.engine.assembly.metering import Metering, record_version
from brokers.engine.assembly.mmap_counters import MmapCounters
from brokers.engine.assembly.pool_charges import PoolCharges
from brokers.engine.assembly.replication import Replication
from brokers.engine.assembly.route_sessions import SessionFactory
from brokers.engine.assembly.storage_capacity import StorageCapacity
from brokers.engine.assembly.storage_shortening import StorageShortening
from brokers.engine.assembly.storage_use import InstanceStorage, StorageUse
from brokers.engine.assembly.tenant_listeners import PORT_RETRY_INTERVAL_S, TenantListeners
from brokers.engine.assembly.tls_contexts import RELOAD_INTERVAL_S, TlsContexts
from brokers.engine.clock import SystemClock
from brokers.engine.cluster.current import CurrentImage
from brokers.engine.cluster.errors import ClusterError
from brokers.engine.cluster.image import ClusterImage
from brokers.engine.cluster.session import ClusterSession
from brokers.engine.cluster.store import ClusterStore
from brokers.engine.cluster.tree import Tree
from brokers.engine.cluster.watcher import ClusterWatcher
from brokers.engine.cluster.zookeeper import Identity, ZooKeeperTree
from brokers.engine.config import EngineConfig
from brokers.engine.controller import policy
from brokers.engine.controller.loop import ControllerLoop
from brokers.engine.controller.placement import Placer, strategy_from
from brokers.engine.coordinators import settings as coordinator_settings
from brokers.engine.errors import StartFailed
from brokers.engine.flowmaster.election import FlowMasterElection
from brokers.engine.garbage import GarbageCollection
from brokers.engine.handlers.audit_trail import TICK_S as AUDIT_TICK_S
from brokers.engine.handlers.logins import EXPIRY_INTERVAL_S
from brokers.engine.handlers.services import (
    AccessServices,
    AccountingServices,
    BrokerServices,
    CoordinatorServices,
    MetadataServices,
    StorageServices,
)
from brokers.engine.handlers.transactions.transactions import BlockProducerIds
from brokers.engine.loop_turns import LoopTurns
from brokers.engine.network.admission import Limits
from brokers.engine.network.listener import Listeners
from brokers.engine.network.reports import NetworkReports
from brokers.engine.partitions.table import NoUsableDirectory, PartitionTable, StorageSettings
from brokers.engine.partitions.topic_config import topic_defaults
from brokers.engine.protocol.apis import OWN_CALL_VERSIONS
from brokers.engine.storage.compaction import settings as cleaner_settings
from brokers.engine.storage.compaction.settings import THREADS_MAX
from brokers.engine.storage.directories import DirectoryRefused
from brokers.engine.storage.files import StorageFailed
from brokers.engine.throttling import quota_callback
from brokers.engine.throttling.accounting import AccountingRegistry
from brokers.native import finder as native

log = structlog.get_logger(__name__)

SWEEP_INTERVAL_MS = 10_000
COUNTERS_INTERVAL_S = 600.0
# Threads that wait for the disk when clients read uncached records; more of them would not speed up a disk.
UNCACHED_READERS = 4
# Threads that convert records for old clients. They compete with the event loop for the interpreter, so they are few.
CONVERTERS = 2

STARTING = "the broker is starting"


def _storage_settings(config: EngineConfig, defaults: Mapping[str, str]) -> StorageSettings:
    return StorageSettings(
        roots=config.data_dirs,
        broker_id=config.broker_id,
        cluster_id=config.cluster_id,
        defaults=defaults,
        retention_interval_ms=config.retention_interval_ms,
    )


def _listener_limits(config: EngineConfig) -> Limits:
    return Limits(
        connections_max=config.connections_max,
        connections_per_listener_max=config.connections_per_instance_max,
        connections_per_address_max=config.connections_per_address_max,
        creations_per_s_max=config.creations_per_s_max,
        creations_per_listener_per_s_max=config.creations_per_instance_per_s_max,
        idle_ms_max=config.connections_idle_ms_max,
        sweep_ms=SWEEP_INTERVAL_MS,
        delays_responses=config.delays_responses,
    )


def _broker_document(config: EngineConfig, started_at_ms: int) -> BrokerDocument:
    return BrokerDocument(
        host=config.internal_host,
        port=config.internal_port,
        admin_port=config.admin_port,
        timestamp_ms=started_at_ms,
        rack=config.rack,
        has_tls=config.internal_security != PLAINTEXT,
        software_version=VERSION,
        call_versions=OWN_CALL_VERSIONS,
    )


class Broker:
    """All parts of one broker process except its ZooKeeper session `tree`, which the caller starts before `start` and
    stops after `stop`.
    """

    def __init__(self, config: EngineConfig, stop: lifecycle.Stop, tree: Tree) -> None:
        self.config = config
        self.clock = SystemClock()
        self.started_at_ms = self.clock.now_ms()
        self._stop = stop
        self._periodic = lifecycle.Periodic(stop)
        self._controller_task: asyncio.Task[None] | None = None
        defaults = topic_defaults(config.overrides)
        self.table = PartitionTable(_storage_settings(config, defaults))
        self.log_maintenance = LogMaintenance(self.table, self.clock.now_ms, stop.fail)
        self.free_space_monitor = FreeSpaceMonitor(self.table, free_bytes_min_from(config.overrides))
        self.tree = tree
        placer = Placer(secrets.randbelow, strategy_from(config.overrides))
        self.store = ClusterStore(self.tree, assign_replicas=placer, now_ms=self.clock.now_ms)
        self.current = CurrentImage(ClusterImage(config.cluster_id))
        self.store.follow(self.current)
        self.watcher = ClusterWatcher(self.tree, self.current)
        mmap_counters = MmapCounters(config.data_dirs[0])
        self.accountings = self._accountings(mmap_counters)
        self.readers = ThreadPoolExecutor(UNCACHED_READERS, "cold-read")
        self.services = self._services(defaults)
        self.listeners = self._listeners()
        self.security = InternalSecurity(config, self.services.loop)
        self.revocations = Revocations(tree, self.security.use_revoked)
        # Subscriptions are in the order of dependence: settings, leadership, rights, then new connections.
        self.dynamic = dynamic_configs.DynamicSettings(config, self.services)
        # Subscribed before the parts that connect to a broker that joined, and accept its connections.
        self.current.subscribe(self.security.on_image)
        self.storage = StorageCapacity(self.services, self.security.link, self._storage_use())
        self.shortening = StorageShortening(self.services, self.storage)
        self.replication = Replication(
            config,
            self.services,
            self.watcher,
            lambda: self.session.broker_epoch,
            self.security.link,
            self.log_maintenance.drop_deleted_from_checkpoints,
        )
        self.coordination = Coordination(self.services, self.security.link)
        self.replication.on_logs_created = self.coordination.follow
        self.coordinator_forwarding = CoordinatorForwarding(self.services, self.security.link_for)
        self.tls_contexts = TlsContexts(config.tls_certificate_file)
        self.services.accounting.charge_loop = self.listeners.charge
        self.sessions = self._sessions()
        self.tenant_listeners = TenantListeners(
            self.services, self.listeners, config.bind_host, self.tls_contexts, self.sessions
        )
        self.metering = self._metering(mmap_counters)
        self.controller = self._controller()
        self._configure_access()
        self.bandwidth = self._bandwidth()
        self.current.subscribe(self.bandwidth.on_image)
        self.flow, self.pool_charges = self._flow()
        self.current.subscribe(self.tenant_listeners.on_image)
        self.current.subscribe(self.services.access.waiting_calls.on_image)
        self.session = self._session()
        for part in (self.metering, self.storage, self.flow, self.pool_charges, self.tenant_listeners):
            self.session.on_registered(part.on_registered)
        self.ready_reasons = {STARTING: self.started_at_ms}
        self.admin = self._admin_server()

    # -- construction --------------------------------------------------------------------------------------------------

    def _configure_access(self) -> None:
        authentication = self.services.access.authentication
        authentication.max_reauth_ms = self.config.max_reauth_ms
        authentication.tokens.request_keys = self.store.request_keys
        self.services.access.audit.append = AuditLog(self.table, self.accountings, self.clock)
        self.current.subscribe(authentication.on_image)

    def _storage_use(self) -> InstanceStorage:
        return StorageUse(self.services)

    def _sessions(self) -> SessionFactory:
        return SessionFactory(self.services)

    def _bandwidth(self) -> Bandwidth:
        return Bandwidth(self.services, selects_by_rack=self.config.selects_by_rack)

    def _flow(self) -> tuple[FlowControl, PoolCharges]:
        """Creates both sides of sharing limits with other brokers; this broker may become the flow master."""
        election, connect = self._flow_master_election(), self.security.link
        flow = FlowControl(self.services, connect, election, self.bandwidth)
        return flow, PoolCharges(self.services, connect, election, self.bandwidth.layout)

    def _services(self, defaults: Mapping[str, str]) -> BrokerServices:
        config = self.config
        return BrokerServices(
            broker_id=config.broker_id,
            loop=asyncio.get_running_loop(),
            clock=self.clock,
            frame_bytes_max=config.frame_bytes_max,
            storage=StorageServices(
                self.table,
                config.fetch_bytes_max,
                readers=self.readers,
                converters=ThreadPoolExecutor(CONVERTERS, "convert"),
            ),
            metadata=MetadataServices(self.current, self.store, defaults, self.watcher.catch_up),
            coordination=CoordinatorServices(
                BlockProducerIds(self.store, config.broker_id), coordinator_settings.from_overrides(config.overrides)
            ),
            access=AccessServices(config.control_secret),
            accounting=AccountingServices(self.accountings, LoopTurns(LongTurnLog(self.clock.monotonic_ms))),
        )

    def _accountings(self, counters: MmapCounters) -> AccountingRegistry:
        config, callback = self.config, None
        if config.quota_callback is not None:
            callback = quota_callback.load(config.quota_callback, config.overrides, self.clock.monotonic_ms)
        return AccountingRegistry(
            config.quota_burst_ms,
            counters.allocate_numbers,
            config.quota_window,
            config.controller_quota_window,
            callback,
            config.client_id_defaults,
        )

    def _listeners(self) -> Listeners:
        reports = NetworkReports(self.clock.monotonic_ms)
        return Listeners(self.services.loop, _listener_limits(self.config), reports, self.readers)

    def _metering(self, counters: MmapCounters) -> Metering:
        return Metering(
            accountings=self.accountings,
            counter_files=counters,
            table=self.table,
            levels=lambda: take_levels(self.current.image.instances, self.storage.use, self.listeners.groups()),
            charge=self.listeners.charge,
            turns=self.services.own_turns,
            clock=self.clock,
            broker_id=self.config.broker_id,
            record_version=record_version(self.config.overrides),
        )

    def _controller(self) -> ControllerLoop:
        return ControllerLoop(
            store=self.store,
            watcher=self.watcher,
            current=self.current,
            broker_id=self.config.broker_id,
            session_id=lambda: self.tree.session_id,
            policy=policy.from_overrides(self.config.overrides),
        )

    def _flow_master_election(self) -> FlowMasterElection:
        return FlowMasterElection(
            store=self.store,
            watcher=self.watcher,
            current=self.current,
            broker_id=self.config.broker_id,
            session=lambda: (self.tree.session_id, self.session.state),
        )

    def _session(self) -> ClusterSession:
        config = self.config
        return ClusterSession(
            tree=self.tree,
            store=self.store,
            watcher=self.watcher,
            broker_id=config.broker_id,
            cluster_id=config.cluster_id,
            document=_broker_document(config, self.started_at_ms),
            on_fatal=self._stop.fail,
        )

    def _admin_server(self) -> AdminServer:
        rules, report = self.security.admin_rules(), self.listeners.reports.log_handshake_failure
        return AdminServer(self._admin_port().handle, rules, report, self.security.identify)

    def _admin_port(self) -> AdminPort:
        return AdminPort(
            services=self.services,
            listeners=self.listeners,
            tenant_listeners=self.tenant_listeners,
            roles=self.replication.roles,
            session=self.session,
            controller=self.controller,
            security=self.security,
            started_at_ms=self.started_at_ms,
            ready_reasons=self.ready_reasons,
            counts=self.coordination.counts,
            storage=self.storage,
            flow=self.flow,
            shortening=self.shortening,
        )

    # -- start and stop -----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Starts the broker. Raises StartFailed with a one-line reason."""
        config = self.config
        for key, reason in compatibility.ignored(config.overrides).items():
            log.warning("broker_setting_ignored", key=key, of="start", reason=reason)
        try:
            await self.admin.start(config.internal_host, config.admin_port)
        except OSError as error:
            raise StartFailed(f"admin port {config.admin_port}: {error.strerror}") from error
        try:
            internal = self.security.bind(self.services, self.listeners, self.sessions)
        except OSError as error:
            raise StartFailed(f"internal port {config.internal_port}: {error.strerror}") from error
        try:
            report = self.table.recover(self.clock.now_ms())
        except (DirectoryRefused, NoUsableDirectory, StorageFailed) as error:
            raise StartFailed(str(error)) from error
        log.info(
            "logs_recovered",
            partitions=report.partitions,
            clean=report.clean,
            truncated_bytes=report.truncated_bytes,
            scanned_bytes=report.scanned_bytes,
            rewritten_segments=report.rewritten_segments,
            split_segments=report.split_segments,
        )
        for topic, partition, reason in report.refused:
            log.error("log_not_opened", topic=topic, partition=partition, reason=reason)
        for topic, partition, damage in report.damages:
            log.warning("log_damage_found", topic=topic, partition=partition, **damage._asdict())
        for path in report.foreign:
            log.warning("foreign_directory_left_alone", directory=path)
        for path, reason in report.unreadable.items():
            log.error("checkpoint_unreadable", file=path, reason=reason)
        self.metering.open_counter_files()
        dynamic_configs.register_parts(self.dynamic, self.services, self.replication, self.controller)
        dynamic_configs.register_free_space_monitor(self.dynamic, self.free_space_monitor)
        dynamic_configs.register_metering(self.dynamic, self.metering)
        try:
            await self.session.start()
        except ClusterError as error:
            raise StartFailed(f"cannot join the cluster at {config.zookeeper}: {error}") from error
        await self.revocations.refresh()
        internal.start_accepting()
        await self.tenant_listeners.start_serving(self.current.image)
        self._start_periodic()
        self.ready_reasons.clear()
        log.info("broker_started", took_ms=self.clock.now_ms() - self.started_at_ms, compiled=native.is_installed())

    def _start_periodic(self) -> None:
        periodic = self._periodic
        self._controller_task = periodic.spawn(self.controller.run())
        periodic.spawn(self.tenant_listeners.run())
        periodic.spawn(self.tenant_listeners.apply_in_turns())
        self.replication.start_periodic(periodic)
        self.coordination.start_periodic(periodic)
        self.storage.start_periodic(periodic)
        self.flow.start_periodic(periodic)
        self.pool_charges.start_periodic(periodic)
        self.shortening.start_periodic(periodic)
        cleaning = cleaner_settings.from_overrides(self.config.overrides)
        if cleaning.enabled:
            cleaner = LogCleaning(self.table, cleaning, self.clock.now_ms)
            dynamic_configs.register_cleaning(self.dynamic, cleaner)
            for number in range(THREADS_MAX):
                periodic.spawn(cleaner.run(number))
        periodic.aligned(USAGE_INTERVAL_MS, self.clock.now_ms, self.metering.report)
        self.log_maintenance.start_periodic(periodic, self.services.own_turns)
        self.free_space_monitor.start_periodic(periodic)
        periodic.every(SWEEP_INTERVAL_MS / 1000, self.listeners.sweep_in_turns)
        periodic.every(PORT_RETRY_INTERVAL_S, self.tenant_listeners.retry)
        periodic.every(EXPIRY_INTERVAL_S, self.services.access.authentication.expire)
        periodic.every(AUDIT_TICK_S, self.services.access.audit.tick)
        periodic.every(RELOAD_INTERVAL_S, self.tls_contexts.reload)
        periodic.every(RELOAD_INTERVAL_S, self.security.reload)
        periodic.every(internal_security.REVOCATIONS_INTERVAL_S, self.revocations.refresh)
        periodic.every(FORWARDER_SWEEP_INTERVAL_S, self.coordinator_forwarding.sweep)
        periodic.every(COUNTERS_INTERVAL_S, self._drop_counters)
        if self.accountings.callback is not None:
            periodic.every(quota_callback.REFRESH_S, self.services.metadata.bump_version)

    def collect_garbage(self) -> None:
        """Replaces Python's garbage collection by one that runs between requests."""
        collection = GarbageCollection(self.clock.monotonic_ms())
        self._periodic.every(garbage.INTERVAL_S, lambda: collection.collect_some(self.clock.monotonic_ms()))

    async def _drop_counters(self) -> None:
        if await self.services.own_turns.run(self.accountings.drop_unused(self.clock.monotonic_ms())):
            self.services.metadata.bump_version()

    async def stop(self) -> None:
        """Stops the broker: hands over its leaderships, closes its ports, and flushes all accepted records."""
        log.info("broker_stopping")
        self.ready_reasons["the broker is stopping"] = self.clock.now_ms()
        timeout_s = self.config.controlled_shutdown_timeout_ms / 1000
        await hand_over(self.session, self.current, self.config.broker_id, timeout_s)
        # This broker is in no ISR any more: no leader waits for its fetches.
        self.replication.fetchers.close()
        await self.log_maintenance.close_followed_logs()
        self.coordination.close()
        self.coordinator_forwarding.close()
        self.storage.close()
        self.flow.close()
        self.pool_charges.close()
        self.listeners.close_all("the broker stops")
        self.security.close()
        if self._controller_task is not None:
            self._controller_task.cancel()
            await asyncio.gather(self._controller_task, return_exceptions=True)
            await self.controller.stop()
        await self._periodic.stop()
        for task in tuple(self.services.tasks):
            task.cancel()
        await asyncio.gather(*self.services.tasks, return_exceptions=True)
        for threads in (self.readers, self.services.storage.converters):
            if threads is not None:
                threads.shutdown(wait=False, cancel_futures=True)
        self.services.access.authentication.close()
        self.metering.finish()
        self.services.access.audit.finish()
        await self.tenant_listeners.withdraw()
        await self.session.stop()
        self.table.close(broker_epoch=self.session.broker_epoch)
        await self.admin.stop()
        log.info("broker_stopped")


def _zookeeper_identity(config: EngineConfig) -> Identity | None:
    credentials = config.zookeeper_credentials
    return credentials and Identity(
        credentials, TreeAccess(broker=credentials.digest, control=config.zookeeper_control_digest)
    )


MakeBroker = Callable[[EngineConfig, lifecycle.Stop, Tree], Broker]


async def run(config: EngineConfig, make_broker: MakeBroker = Broker) -> int:
    """Runs one broker until it is asked to stop or fails. Returns the exit code of the process.

    Raises:
        StartFailed: see `Broker.start`.
    """
    descriptors = lifecycle.raise_descriptor_limit()
    config = replace(config, connections_max=lifecycle.limit_connections(descriptors, config.connections_max))
    stop = lifecycle.Stop()
    stop.listen(asyncio.get_running_loop())
    lifecycle.make_directories_private(config.data_dirs)
    tree = ZooKeeperTree(
        config.zookeeper,
        session_timeout_ms=config.session_timeout_ms,
        identity=_zookeeper_identity(config),
        tls=config.zookeeper_tls,
    )
    broker = make_broker(config, stop, tree)
    try:
        await tree.start()
    except ClusterError as error:
        raise StartFailed(f"cannot reach ZooKeeper at {config.zookeeper}: {error}") from error
    try:
        await broker.start()
        broker.collect_garbage()
        await stop.wait()
        await asyncio.wait_for(broker.stop(), lifecycle.STOP_TIMEOUT_S + config.controlled_shutdown_timeout_ms / 1000)
    except TimeoutError:
        log.error("stop_took_too_long")
        return 1
    finally:
        await tree.stop()
    return lifecycle.exit_code(stop)
