"""Opens ports for the routes of instance documents, and acknowledges them (CKA-1, CKA-3)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import structlog

from brokers.contract.certificates import CertificatesDocument
from brokers.contract.documents import InstanceAck, InstanceDocument
from brokers.contract.routes import RouteDocument
from brokers.engine.assembly.port_retries import PortRetries
from brokers.engine.assembly.route_sessions import (
    SessionFactory,
    instance_of,
    listener_name,
    rules_of,
    with_limits_of,
)
from brokers.engine.assembly.tls_contexts import TlsContexts
from brokers.engine.assembly.tls_routes import NO_CERTIFICATES, RouteRefused, TlsRoute
from brokers.engine.cluster.errors import ClusterError
from brokers.engine.cluster.image import ClusterImage
from brokers.engine.handlers.services import BrokerServices
from brokers.engine.network.admission import ADDRESS_RATE, AddressLimit
from brokers.engine.network.listener import Listeners
from brokers.engine.network.listener_group import GroupSpec
from brokers.engine.scheduling.turn_queue import TURN_MS_MAX
from brokers.engine.scheduling.weights import weight_of
from brokers.engine.throttling.charging import Rule
from brokers.engine.throttling.refusals import ADDRESS_RATE_RULE, CONNECTION_LIMIT_RULE, CONNECTION_RATE_RULE
from quotas.addresses import CONNECTION_CREATION_RATE, IpEntity, canonical

log = structlog.get_logger(__name__)

RETRY_DELAY_S = 1.0
PORT_RETRY_INTERVAL_S = 0.5


class TenantListeners:
    """One listener for each route of an instance that this broker serves. One task writes the acknowledgements, only
    the latest of each instance.
    """

    def __init__(
        self,
        services: BrokerServices,
        listeners: Listeners,
        bind_host: str,
        tls_contexts: TlsContexts,
        sessions: SessionFactory,
    ) -> None:
        self._services = services
        self._sessions = sessions
        self._listeners = listeners
        self._bind_host = bind_host
        self._tls_contexts = tls_contexts
        self._applied: dict[str, InstanceDocument] = {}
        self._certificates: dict[str, Mapping[str, CertificatesDocument]] = {}
        # By the name of an open listener.
        self._tls: dict[str, TlsRoute] = {}
        # By instance: its routes on this broker, and the open ones among them, by the names of their listeners.
        self._routes: dict[str, dict[str, RouteDocument]] = {}
        self._open: dict[str, dict[str, RouteDocument]] = {}
        # Instances with a route whose security this broker cannot provide, with the reason.
        self._unsupported: dict[str, str] = {}
        self._retries = PortRetries()
        self._to_acknowledge: dict[str, InstanceAck | None] = {}
        self._acknowledged: dict[str, InstanceAck] = {}
        self._wake = asyncio.Event()
        # Instances whose documents have to be applied, in this order.
        self._pending: dict[str, None] = {}
        self._has_pending = asyncio.Event()
        self._serving = False
        listeners.policy.on_held_back = self._on_held_back
        listeners.policy.connections_per_s = self._connections_per_s

    def __len__(self) -> int:
        return len(self._applied)

    @property
    def unopened_count(self) -> int:
        """Returns the number of listeners whose port is not open because all attempts failed."""
        return len(self._retries)

    @property
    def failures(self) -> int:
        """Returns the number of failed attempts to open a port."""
        return self._retries.failures

    async def start_serving(self, image: ClusterImage) -> None:
        """Starts to open ports. Returns after one attempt to open each port in the current metadata."""
        self._serving = True
        self.on_image(image, image)
        while self._pending:
            await self._services.own_turns.enqueue()
            self._apply_pending()

    async def apply_in_turns(self) -> None:
        """Applies, in later turns of the event loop, the documents that did not fit into one turn. Runs until
        cancelled.
        """
        while True:
            await self._has_pending.wait()
            self._has_pending.clear()
            while self._pending:
                await self._services.own_turns.enqueue()
                self._apply_pending()

    def on_image(self, _before: ClusterImage, after: ClusterImage) -> None:
        if not self._serving:
            return
        for instance_id in [known for known in self._applied if known not in after.instances]:
            self._remove(instance_id)
        for instance_id, instance in after.instances.items():
            if not self._has_applied(instance_id, instance.document, after):
                self._pending[instance_id] = None
        self._apply_pending()
        if self._pending:
            self._has_pending.set()

    def _has_applied(self, instance_id: str, document: InstanceDocument, image: ClusterImage) -> bool:
        certificates = image.certificates.of_instance(instance_id)
        return self._applied.get(instance_id) is document and self._certificates.get(instance_id) == certificates

    def _apply_pending(self) -> None:
        """Applies the documents that fit into one turn; opening a port takes some tenths of a millisecond."""
        monotonic_ms, image = self._services.clock.monotonic_ms, self._services.metadata.current.image
        ends_ms = monotonic_ms() + TURN_MS_MAX
        while self._pending and self._serving and monotonic_ms() < ends_ms:
            instance_id = next(iter(self._pending))
            del self._pending[instance_id]
            instance = image.instances.get(instance_id)
            if instance is not None and not self._has_applied(instance_id, instance.document, image):
                self._certificates[instance_id] = image.certificates.of_instance(instance_id)
                self._apply(instance_id, instance.document)

    def _remove(self, instance_id: str) -> None:
        self._set_routes(instance_id, {}, "the instance is gone")
        tenant_id = self._applied[instance_id].tenant_of(instance_id)
        self._services.accounting.loop_weights.remove(instance_id)
        self._set_weights(instance_id, tenant_id)
        del self._applied[instance_id], self._routes[instance_id], self._open[instance_id]
        self._unsupported.pop(instance_id, None)
        self._certificates.pop(instance_id, None)
        self._acknowledge(instance_id, None)

    def _apply(self, instance_id: str, document: InstanceDocument) -> None:
        broker_id = self._services.broker_id
        routes = [route for route in document.effective_routes if broker_id in route.ports]
        routes_by_listener = {listener_name(instance_id, route.name): route for route in routes}
        self._set_routes(instance_id, routes_by_listener, "the route changed")
        self._listeners.set_tenant(instance_id, document.tenant_of(instance_id))
        self._applied[instance_id] = document
        weight = weight_of(document.produce_bps, document.consume_bps)
        self._services.accounting.loop_weights.set(instance_id, document.tenant_of(instance_id), weight)
        self._unsupported.pop(instance_id, None)
        errors = {route.name: error for name, route in routes_by_listener.items() if (error := self._open_route(name))}
        self._set_weights(instance_id, document.tenant_of(instance_id))
        if not routes:
            self._acknowledge(instance_id, None)
            return
        ack = InstanceAck(
            generation=document.generation,
            port=routes[0].ports[broker_id],
            listening=not errors,
            error=next(iter(errors.values()), None),
            not_open=tuple(errors),
            unable=self._unsupported.get(instance_id),
        )
        self._acknowledge(instance_id, ack)

    def _set_weights(self, instance_id: str, tenant_id: str) -> None:
        weights = self._services.accounting.loop_weights
        self._listeners.set_weights(
            instance_id, weights.instance_weight(instance_id), tenant_id, weights.tenant_weight(tenant_id)
        )

    def _set_routes(self, instance_id: str, routes_by_listener: dict[str, RouteDocument], reason: str) -> None:
        """Closes routes that changed or are no longer wanted. A change of a list or a limit closes no port."""
        broker_id, is_open = self._services.broker_id, self._open.setdefault(instance_id, {})
        for name, route in tuple(is_open.items()):
            now = routes_by_listener.get(name)
            if now is None or (now.security, now.ports[broker_id]) != (route.security, route.ports[broker_id]):
                self._listeners.close(name, reason)
                del is_open[name]
                self._tls.pop(name, None)
        for name in self._routes.get(instance_id, ()):
            if name not in routes_by_listener:
                self._retries.discard(name)
        self._routes[instance_id] = routes_by_listener

    def _open_route(self, name: str) -> str | None:
        """Opens the route. Returns the reason if it could not be opened: it is retried, and meanwhile the
        acknowledgement has the reason for the reconciler.
        """
        instance_id = instance_of(name)
        route, is_open = self._routes[instance_id][name], self._open[instance_id]
        port = route.ports[self._services.broker_id]
        try:
            self._open_or_change(name, route, port)
        except (OSError, RouteRefused) as failure:
            reason = failure.strerror if isinstance(failure, OSError) else str(failure)
            if isinstance(failure, RouteRefused):
                self._unsupported[instance_id] = f"{route.name}: {reason}"
            if self._retries.record_failure(name, port, self._services.clock.monotonic_ms()):
                log.error("listener_not_opened", instance_id=instance_id, route=route.name, port=port, reason=reason)
            return f"port {port}: {reason}"
        is_open[name] = route
        if self._retries.discard(name):
            log.info("listener_opened_after_retry", instance_id=instance_id, route=route.name, port=port)
        return None

    def _open_or_change(self, name: str, route: RouteDocument, port: int) -> None:
        instance_id = instance_of(name)
        certificates = self._certificates.get(instance_id, {}).get(route.name, NO_CERTIFICATES)
        before, tls = self._open[instance_id].get(name), self._tls.get(name)
        if before is None:
            report_failure = self._listeners.reports.log_tenant_authentication_failure
            make_session = self._sessions.route_maker(instance_id, route, report_failure)
            tls = self._sessions.tls_of(instance_id, route, self._tls_contexts)
            rules = rules_of(route, tls, certificates)
            tenant = self._applied[instance_id].tenant_of(instance_id)
            bound = self._listeners.bind(
                name, self._bind_host, port, make_session, group=GroupSpec(instance_id, tenant), rules=rules
            )
            bound.start_accepting()
            if tls is not None:
                self._tls[name] = tls
        elif tls is not None or _rules(before) != _rules(route):
            listener = self._listeners.get(name)
            assert listener is not None, "the route is in the table of open ones"
            try:
                rules = rules_of(route, tls, certificates)
            except RouteRefused:
                # Lists and limits apply at once; only handshakes need the missing key or certificate.
                self._listeners.set_rules(listener, with_limits_of(route, listener.rules))
                raise
            self._listeners.set_rules(listener, rules)

    def retry(self) -> None:
        """Retries the ports that could not be opened and whose delay is over; called every PORT_RETRY_INTERVAL_S."""
        if not self._serving:
            return
        for instance_id in {
            instance_of(name) for name in self._retries.due_listeners(self._services.clock.monotonic_ms())
        }:
            self._apply(instance_id, self._applied[instance_id])

    def _on_held_back(self, listener: str, cause: str | None, delay_ms: int) -> None:
        """Records the cause in the instance's throttle log, for "Why am I slow?"."""
        if listener in self._applied:
            accounting = self._services.accounting.accountings.get_or_create(listener)
            accounting.record_connection(_rule_of(cause), delay_ms, self._services.clock.now_ms())

    def _connections_per_s(self, instance_id: str, address: str) -> AddressLimit | None:
        """Returns the limit in the current metadata, so that a change applies from the next connection on."""
        quotas = self._services.metadata.current.image.quotas
        if not quotas.of_addresses(instance_id):
            return None
        # An IPv6 link-local address has the interface name appended.
        entity = IpEntity(canonical(address.partition("%")[0]))
        per_s = quotas.connections_per_s(instance_id, entity)
        if per_s is None:
            return None
        return AddressLimit(per_s, is_own=CONNECTION_CREATION_RATE in quotas.limits(instance_id, entity))

    # -- acknowledgements ---------------------------------------------------------------------------------------------

    def _acknowledge(self, instance_id: str, ack: InstanceAck | None) -> None:
        known = self._to_acknowledge.get(instance_id, self._acknowledged.get(instance_id))
        if ack is not None and known == ack:
            return
        self._to_acknowledge[instance_id] = ack
        self._wake.set()

    async def on_registered(self, _broker_epoch: int) -> None:
        """Writes all acknowledgements again, since those of the former session were deleted with it."""
        for instance_id, ack in self._acknowledged.items():
            self._to_acknowledge.setdefault(instance_id, ack)
        self._acknowledged.clear()
        self._wake.set()

    async def run(self) -> None:
        """Writes pending acknowledgements, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._to_acknowledge:
                instance_id, ack = next(iter(self._to_acknowledge.items()))
                try:
                    await self._services.metadata.store.acknowledge_instance(self._services.broker_id, instance_id, ack)
                except ClusterError as failure:
                    log.warning("instance_not_acknowledged", instance_id=instance_id, reason=str(failure))
                    self._services.loop.call_later(RETRY_DELAY_S, self._wake.set)
                    break
                if self._to_acknowledge.get(instance_id) is ack:
                    del self._to_acknowledge[instance_id]
                if ack is None:
                    self._acknowledged.pop(instance_id, None)
                else:
                    self._acknowledged[instance_id] = ack

    async def withdraw(self) -> None:
        """Closes the ports and deletes the acknowledgements for a clean stop."""
        self._serving = False
        self._pending.clear()
        for instance_id in tuple(self._applied):
            self._set_routes(instance_id, {}, "the broker stops")
        for instance_id in tuple(self._acknowledged):
            try:
                await self._services.metadata.store.acknowledge_instance(self._services.broker_id, instance_id, None)
            except ClusterError:
                log.warning("acknowledgements_left_to_expire")
                return


def _rules(route: RouteDocument) -> tuple[object, ...]:
    """Returns the rules of a route that can change while its port stays open."""
    return route.allow_list, route.proxies, route.connections_max


def _rule_of(cause: str | None) -> Rule:
    """Returns the rule that delayed or refused connections; `cause` as in `OnConnectionsHeldBack`."""
    if cause is None:
        return CONNECTION_RATE_RULE
    return ADDRESS_RATE_RULE if cause == ADDRESS_RATE else CONNECTION_LIMIT_RULE
