"""Gateway process of a cluster in ZooKeeper. It is a broker of its cluster in all but what its clients produce, consume
and coordinate, which it forwards to the upstream broker with its own number (decision 172).

The gateways of a cluster have its internal topics, elect its controller and its flow master, and follow the documents
of instances, users, rights and quotas, as brokers do.
"""

from __future__ import annotations

from collections import Counter
from typing import Final
from weakref import WeakValueDictionary

import structlog

from brokers.contract.routes import RouteDocument
from brokers.contract.upstream import UPSTREAM_LOST, Address, UpstreamSettings, parse_servers, tls_context
from brokers.engine import lifecycle
from brokers.engine.access.external import InternalIdentity
from brokers.engine.access.principals import Principal, tenant_port_principal
from brokers.engine.assembly import broker
from brokers.engine.assembly.bandwidth import Bandwidth
from brokers.engine.assembly.broker import Broker
from brokers.engine.assembly.route_sessions import SessionFactory
from brokers.engine.cluster.image import InstanceImage, LayoutTotals
from brokers.engine.cluster.tree import Tree
from brokers.engine.config import EngineConfig
from brokers.engine.errors import SettingsWrong, StartFailed
from brokers.engine.handlers.api_table import DISPATCH_TABLE
from brokers.engine.handlers.auth.certificate_sessions import CertificateRoute
from brokers.engine.handlers.auth.internal_sessions import AuthenticatedChannel
from brokers.engine.handlers.auth.tenant_sasl import ReportFailure, SaslRoute, SignedInSession
from brokers.engine.handlers.services import BrokerServices
from brokers.engine.network.connection import Connection
from brokers.engine.network.listener_rules import MakeSession
from brokers.engine.protocol.mapping import UndeclaredField
from brokers.engine.upstream.connection import UpstreamLogin, UpstreamLost
from brokers.engine.upstream.discovery import addresses_of, find_brokers
from brokers.engine.upstream.node import CreationLocks, GatewayRoute, UpstreamNode
from brokers.engine.upstream.session import GatewaySession
from brokers.engine.upstream.storage import MEASURE_INTERVAL_S, UpstreamStorage
from brokers.engine.upstream.versions import ADMINISTERED, ADMINISTERED_INTERNALLY, Versions, check_declared

log = structlog.get_logger(__name__)

# Interval of the check that the upstream broker answers, and at which address.
UPSTREAM_CHECK_INTERVAL_S: Final = 15.0


def read_upstream(config: EngineConfig) -> UpstreamSettings:
    """Returns the upstream cluster of a gateway. Raises SettingsWrong."""
    assert config.upstream_file is not None, "the settings of a gateway name the file"
    try:
        return UpstreamSettings.from_json(config.upstream_file.read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not readable by this version"
        raise SettingsWrong(f"the file with the upstream cluster, {config.upstream_file}: {reason}") from error


def login_of(settings: UpstreamSettings) -> UpstreamLogin:
    """Returns the login for the upstream. Raises SettingsWrong for unusable certificates."""
    try:
        tls = tls_context(settings)
    except (OSError, ValueError) as error:
        raise SettingsWrong(f"the certificates for the upstream cannot be used: {error}") from error
    if not settings.has_sasl:
        return UpstreamLogin(tls)
    return UpstreamLogin(tls, settings.username, settings.password, settings.sasl_mechanism)


class ClusterGateway(Broker):
    """All parts of a gateway process except its ZooKeeper session."""

    def __init__(self, config: EngineConfig, stop: lifecycle.Stop, tree: Tree) -> None:
        upstream = read_upstream(config)
        self._bootstrap = parse_servers(upstream.bootstrap_servers)
        self._login = login_of(upstream)
        self._creation_locks: CreationLocks = WeakValueDictionary()
        super().__init__(config, stop, tree)
        self._upstream_storage.room_of = self.storage.room_of_instance
        self.current.subscribe(lambda _, image: self._upstream_storage.create_rooms(image))

    def _storage_use(self) -> UpstreamStorage:
        self._upstream_storage = UpstreamStorage(lambda: self.tenant_node.connect())
        return self._upstream_storage

    def _sessions(self) -> SessionFactory:
        unknown: Address = "", 0
        self.tenant_node = self._node(unknown, ADMINISTERED)
        self.internal_node = self._node(unknown, ADMINISTERED_INTERNALLY)
        return GatewaySessions(self.services, self.tenant_node, self.internal_node)

    def _node(self, address: Address, administered: Versions) -> UpstreamNode:
        storage = self._upstream_storage
        return UpstreamNode(self.services, address, self._login, self._creation_locks, administered, storage)

    def _bandwidth(self) -> Bandwidth:
        return GatewayBandwidth(self.services, selects_by_rack=False)

    async def start(self) -> None:
        """Starts the gateway. Raises StartFailed if the upstream broker cannot be used."""
        try:
            check_declared()
        except UndeclaredField as error:
            raise StartFailed(f"names would not be mapped: {error}") from error
        try:
            await self._locate_upstream()
        except UpstreamLost as error:
            raise StartFailed(str(error)) from error
        # Before the listeners open: reports of an empty storage would grant the instances more than they bought.
        await self._upstream_storage.measure_upstream()
        await super().start()
        self._periodic.every(UPSTREAM_CHECK_INTERVAL_S, self._check_upstream)
        self._periodic.every(MEASURE_INTERVAL_S, self._measure_storage)
        log.info("gateway_started", upstream=self.tenant_node.address[0])

    async def _locate_upstream(self) -> None:
        """Looks up the address of the upstream broker, and the calls that it serves. Raises UpstreamLost."""
        number = self.config.broker_id
        addresses = addresses_of(await find_brokers(self._bootstrap, self._login))
        address = addresses.get(number)
        if address is None:
            raise UpstreamLost(f"the upstream has no broker {number}, but {sorted(addresses)}")
        for node in (self.tenant_node, self.internal_node):
            node.address = address
            (await node.connect()).close()

    async def _measure_storage(self) -> None:
        await self._upstream_storage.measure_upstream()
        self._upstream_storage.create_rooms(self.current.image)

    async def _check_upstream(self) -> None:
        """Follows the upstream broker to another address, and reports the gateway as not ready without it."""
        try:
            await self._locate_upstream()
        except UpstreamLost as error:
            log.warning("upstream_lost", reason=str(error))
            self.ready_reasons.setdefault(UPSTREAM_LOST, self.clock.now_ms())
        else:
            self.ready_reasons.pop(UPSTREAM_LOST, None)


class GatewaySessions(SessionFactory):
    """Makes sessions that forward calls to the upstream broker. Peers that act for the cluster itself, such as other
    gateways, get a broker's sessions.
    """

    def __init__(self, services: BrokerServices, tenant_node: UpstreamNode, internal_node: UpstreamNode) -> None:
        super().__init__(services)
        self._tenant_node = tenant_node
        self._internal_node = internal_node

    def sasl_route(self, instance_id: str, route: RouteDocument, report_failure: ReportFailure) -> SaslRoute:
        return GatewayRoute(self._tenant_node, instance_id, route.name, report_failure)

    def anonymous_maker(self, instance_id: str, route: RouteDocument) -> MakeSession:
        node, principal = self._tenant_node, tenant_port_principal(instance_id)

        def make(connection: Connection) -> GatewaySession:
            return GatewaySession(node, connection, principal, {}, route.name)

        return make

    def certificate_route(self, instance_id: str, route: RouteDocument) -> CertificateRoute:
        return GatewayCertificateRoute(self._tenant_node, instance_id, route.name)

    def internal_session(self, channel: AuthenticatedChannel, identity: InternalIdentity) -> SignedInSession:
        if identity.principal.instance_id is None:
            return super().internal_session(channel, identity)
        return GatewaySession(self._internal_node, channel, identity.principal, {})


class GatewayCertificateRoute(CertificateRoute):
    """A listener whose clients authenticate by certificate; their calls are forwarded."""

    def __init__(self, node: UpstreamNode, instance_id: str, name: str) -> None:
        super().__init__(node.services, instance_id, name, DISPATCH_TABLE)
        self._node = node

    def new_session(self, channel: AuthenticatedChannel, principal: Principal) -> SignedInSession:
        return GatewaySession(self._node, channel, principal, {}, self.name)


class GatewayBandwidth(Bandwidth):
    """Divides the bandwidth of an instance equally among its gateways, since the leaders of its partitions are not in
    the metadata; the flow master then follows the demand.
    """

    def totals_of(self, instance: InstanceImage) -> LayoutTotals:
        return LayoutTotals(leaders=Counter(instance.document.endpoints.keys()), replicas=Counter(), moves=0)


async def run(config: EngineConfig) -> int:
    """Runs one gateway until it is asked to stop or fails. Returns the exit code of the process. Raises StartFailed."""
    return await broker.run(config, ClusterGateway)
