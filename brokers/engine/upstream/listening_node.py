"""The listeners of a gateway with a settings file: those of all instances in front of one upstream broker."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Final
from weakref import WeakValueDictionary

from brokers.contract.routes import RouteDocument
from brokers.contract.upstream import Address
from brokers.engine import config, lifecycle
from brokers.engine.access.principals import Principal, tenant_port_principal
from brokers.engine.assembly.long_turns import LongTurnLog
from brokers.engine.assembly.route_sessions import rules_of
from brokers.engine.assembly.tls_contexts import TlsContexts
from brokers.engine.assembly.tls_routes import NO_CERTIFICATES, RouteRefused, TlsRoute
from brokers.engine.clock import Clock
from brokers.engine.cluster.current import CurrentImage
from brokers.engine.cluster.image import ClusterImage
from brokers.engine.cluster.store import ClusterStore
from brokers.engine.errors import StartFailed
from brokers.engine.handlers.auth.tenant_sasl import TenantSaslSession
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
from brokers.engine.network.connection import Connection
from brokers.engine.network.listener import Listeners
from brokers.engine.network.listener_group import GroupSpec
from brokers.engine.network.listener_rules import MakeSession
from brokers.engine.network.reports import NetworkReports
from brokers.engine.partitions.table import PartitionTable, StorageSettings
from brokers.engine.scheduling.weights import weight_of
from brokers.engine.throttling.accounting import AccountingRegistry
from brokers.engine.upstream.connection import UpstreamLogin
from brokers.engine.upstream.no_tree import NoTree
from brokers.engine.upstream.node import CreationLocks, GatewayRoute, UpstreamNode
from brokers.engine.upstream.session import GatewaySession
from brokers.engine.upstream.settings import GatewayInstance
from brokers.engine.upstream.storage import UpstreamStorage

SWEEP_INTERVAL_S: Final = 10.0


@dataclass(slots=True)
class SharedState:
    """State that all nodes of a process share, so that limits apply to all of them together."""

    instances: Mapping[str, GatewayInstance]
    accountings: AccountingRegistry = field(default_factory=AccountingRegistry)
    creation_locks: CreationLocks = field(default_factory=WeakValueDictionary)


class ListeningNode(UpstreamNode):
    """One upstream broker, with the listeners in front of it."""

    def __init__(
        self,
        node_id: int,
        address: Address,
        login: UpstreamLogin,
        image: ClusterImage,
        shared: SharedState,
        clock: Clock,
        connections_max: int,
    ) -> None:
        self._readers = ThreadPoolExecutor(1, "unused")
        services = _services(node_id, image, shared.accountings, clock, self._readers)
        super().__init__(services, address, login, shared.creation_locks, {}, UpstreamStorage(self.connect))
        self.node_id = node_id
        self._shared = shared
        self.listeners = Listeners(
            self.services.loop, _limits(connections_max), NetworkReports(clock.monotonic_ms), self._readers
        )
        self.services.accounting.charge_loop = self.listeners.charge

    def listen(self, bind_host: str, tls_contexts: TlsContexts) -> None:
        """Opens the ports of all instances. Raises StartFailed."""
        for instance in self._shared.instances.values():
            route = instance.document.routes[0]
            port = route.ports.get(self.node_id)
            if port is None:
                continue
            tenant = instance.document.tenant_of(instance.id)
            tls = TlsRoute(tls_contexts, None) if route.has_tls else None
            try:
                bound = self.listeners.bind(
                    instance.id,
                    bind_host,
                    port,
                    self._session_maker(instance.id, route),
                    group=GroupSpec(instance.id, tenant),
                    rules=rules_of(route, tls, NO_CERTIFICATES),
                )
            except OSError as error:
                raise StartFailed(f"{instance.id}: port {port}: {error.strerror}") from error
            except RouteRefused as error:
                raise StartFailed(f"{instance.id}: {error}") from error
            weight = weight_of(instance.document.produce_bps, instance.document.consume_bps)
            self.services.accounting.loop_weights.set(instance.id, tenant, weight)
            tenant_weight = self.services.accounting.loop_weights.tenant_weight(tenant)
            self.listeners.set_weights(instance.id, weight, tenant, tenant_weight)
            bound.start_accepting()

    def start_periodic(self, periodic: lifecycle.Periodic) -> None:
        """Starts the periodic work: the check of idle connections, and the end of expired logins."""
        periodic.every(SWEEP_INTERVAL_S, self.listeners.sweep_in_turns)
        periodic.every(EXPIRY_INTERVAL_S, self.services.access.authentication.expire)

    async def stop(self) -> None:
        self.listeners.close_all("the gateway stops")
        for task in tuple(self.services.tasks):
            task.cancel()
        await asyncio.gather(*self.services.tasks, return_exceptions=True)
        self.services.access.authentication.close()
        self._readers.shutdown(wait=False, cancel_futures=True)

    def _session_maker(self, instance_id: str, route: RouteDocument) -> MakeSession:
        if not route.has_sasl:
            return partial(self._anonymous_session, tenant_port_principal(instance_id), route.name)
        sasl_route = GatewayRoute(
            self, instance_id, route.name, self.listeners.reports.log_tenant_authentication_failure
        )
        return partial(TenantSaslSession, sasl_route)

    def _anonymous_session(self, principal: Principal, route_name: str, channel: Connection) -> GatewaySession:
        return GatewaySession(self, channel, principal, {}, route_name)


def _limits(connections_max: int) -> Limits:
    return Limits(
        connections_max=connections_max,
        connections_per_listener_max=config.CONNECTIONS_PER_INSTANCE_MAX,
        connections_per_address_max=config.CONNECTIONS_PER_ADDRESS_MAX,
        creations_per_s_max=config.CREATIONS_PER_S_MAX,
        creations_per_listener_per_s_max=config.CREATIONS_PER_INSTANCE_PER_S_MAX,
        idle_ms_max=config.CONNECTIONS_IDLE_MS_MAX,
        sweep_ms=round(SWEEP_INTERVAL_S * 1_000),
    )


def _services(
    node_id: int, image: ClusterImage, accountings: AccountingRegistry, clock: Clock, readers: ThreadPoolExecutor
) -> BrokerServices:
    """Returns the services of sessions. There are no partitions and no coordinators, and ZooKeeper is not used."""
    current = CurrentImage(image)
    store = ClusterStore(NoTree(), assign_replicas=_no_placement, now_ms=clock.now_ms)
    table = PartitionTable(StorageSettings(roots=(), broker_id=node_id, cluster_id=image.cluster_id))
    services = BrokerServices(
        broker_id=node_id,
        loop=asyncio.get_running_loop(),
        clock=clock,
        frame_bytes_max=config.FRAME_BYTES_MAX,
        storage=StorageServices(table, config.FETCH_BYTES_MAX, readers),
        metadata=MetadataServices(current, store, {}),
        coordination=CoordinatorServices(BlockProducerIds(store, node_id)),
        access=AccessServices(control_secret=""),
        accounting=AccountingServices(accountings, LoopTurns(LongTurnLog(clock.monotonic_ms))),
    )
    services.access.audit.append = _not_audited
    return services


def _no_placement(
    brokers: Mapping[int, str | None],
    *,
    partitions: int,
    replication_factor: int,
    first_id: int = 0,
    first_broker: int | None = None,
) -> dict[int, tuple[int, ...]]:
    raise AssertionError("a gateway creates no partitions itself")


def _not_audited(_instance_id: str, _event: object) -> bool:
    return True
