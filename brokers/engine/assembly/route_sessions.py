"""Listener rules and session factories of the routes of instances on this broker."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from brokers.contract.certificates import CertificatesDocument
from brokers.contract.routes import RouteDocument
from brokers.engine.access.authorizer import AddressList, compile_list, peer_address
from brokers.engine.access.external import InternalIdentity
from brokers.engine.access.principals import tenant_port_principal
from brokers.engine.assembly.tls_contexts import TlsContexts
from brokers.engine.assembly.tls_routes import RouteRefused, TlsRoute
from brokers.engine.handlers.api_table import DISPATCH_TABLE
from brokers.engine.handlers.auth.certificate_sessions import CertificateRoute
from brokers.engine.handlers.auth.internal_sessions import AuthenticatedChannel
from brokers.engine.handlers.auth.tenant_sasl import ReportFailure, SaslRoute, SignedInSession, TenantSaslSession
from brokers.engine.handlers.services import BrokerServices
from brokers.engine.handlers.session import Session
from brokers.engine.network.connection import Connection
from brokers.engine.network.listener_rules import OPEN_TO_ALL, ListenerRules, MakeSession
from brokers.engine.protocol.apis import ADVERTISED_INTERNAL, ADVERTISED_TENANT
from instances.routes.kinds import DEFAULT_ROUTE, SECURITIES

SEPARATOR: Final = "/"


def listener_name(instance_id: str, route_name: str) -> str:
    """Returns the name of a route's listener: the instance id for the default route, else `<instance id>/<route>`."""
    return instance_id if route_name == DEFAULT_ROUTE else f"{instance_id}{SEPARATOR}{route_name}"


def instance_of(listener: str) -> str:
    """Returns the instance id in the name of a listener."""
    return listener.partition(SEPARATOR)[0]


class AddressFilter:
    """Implements `network.listener_rules.Admits` for a document's list of addresses and networks. The list is compiled
    when the first client connects: compiling all lists of an instance would take too long for one turn of the event
    loop.
    """

    __slots__ = ("_entries", "_list")

    def __init__(self, entries: tuple[str, ...]) -> None:
        self._entries = entries
        self._list: AddressList | None = None

    def __call__(self, address: str) -> bool:
        if self._list is None:
            self._list = compile_list(self._entries)
        return self._list.admits(peer_address(address))


def rules_of(route: RouteDocument, tls: TlsRoute | None, certificates: CertificatesDocument) -> ListenerRules:
    """Returns the rules of a route's listener. Raises RouteRefused if this broker cannot provide its security."""
    if route.security not in SECURITIES:
        raise RouteRefused(f"this broker does not know the security {route.security!r}")
    if tls is not None:
        tls.apply(route, certificates)
    handshake = OPEN_TO_ALL
    if tls is not None:
        handshake = ListenerRules(tls=tls.context, identify=tls.identify, on_handshake_failure=tls.on_handshake_failure)
    return with_limits_of(route, handshake)


def with_limits_of(route: RouteDocument, rules: ListenerRules) -> ListenerRules:
    """Returns the rules with the lists and limits of the route, which depend on no certificate or key."""
    return replace(
        rules,
        admits=AddressFilter(route.allow_list) if route.allow_list else None,
        proxies=AddressFilter(route.proxies) if route.proxies else None,
        connections_max=route.connections_max,
    )


class SessionFactory:
    """Makes the sessions of clients of routes, and of peers that act for an instance on the internal listener. A
    subclass may make other ones.
    """

    def __init__(self, services: BrokerServices) -> None:
        self._services = services

    def route_maker(self, instance_id: str, route: RouteDocument, report_failure: ReportFailure) -> MakeSession:
        """Returns the session factory of a route. The port determines the instance, which no credential can change; the
        credential determines the user (CKA-9).
        """
        if route.has_client_certificates:
            return _no_session
        if route.has_sasl:
            return _MakeSaslSession(self.sasl_route(instance_id, route, report_failure))
        return self.anonymous_maker(instance_id, route)

    def sasl_route(self, instance_id: str, route: RouteDocument, report_failure: ReportFailure) -> SaslRoute:
        return SaslRoute(self._services, instance_id, route.name, DISPATCH_TABLE, report_failure)

    def anonymous_maker(self, instance_id: str, route: RouteDocument) -> MakeSession:
        return _MakeAnonymousSession(self._services, instance_id, route.name)

    def certificate_route(self, instance_id: str, route: RouteDocument) -> CertificateRoute:
        return CertificateRoute(self._services, instance_id, route.name, DISPATCH_TABLE)

    def tls_of(self, instance_id: str, route: RouteDocument, contexts: TlsContexts) -> TlsRoute | None:
        """Returns the TLS state of a route, None without TLS."""
        if not route.has_tls:
            return None
        clients = self.certificate_route(instance_id, route) if route.has_client_certificates else None
        return TlsRoute(contexts, clients)

    def internal_session(self, channel: AuthenticatedChannel, identity: InternalIdentity) -> SignedInSession:
        """Returns the session of a peer that has authenticated on the internal listener."""
        return Session(
            self._services, channel, identity.principal, ADVERTISED_INTERNAL, DISPATCH_TABLE, identity.address
        )


def _no_session(_connection: Connection) -> Session:
    raise AssertionError("clients with certificates are identified before their session is created")


class _MakeAnonymousSession:
    """Creates sessions on a route without authentication."""

    def __init__(self, services: BrokerServices, instance_id: str, route_name: str) -> None:
        self._services = services
        self._principal = tenant_port_principal(instance_id)
        self._route_name = route_name

    def __call__(self, connection: Connection) -> Session:
        services, principal = self._services, self._principal
        return Session(services, connection, principal, ADVERTISED_TENANT, DISPATCH_TABLE, route_name=self._route_name)


class _MakeSaslSession:
    """Creates sessions on a route with SASL authentication."""

    def __init__(self, route: SaslRoute) -> None:
        self._route = route

    def __call__(self, connection: Connection) -> TenantSaslSession:
        return TenantSaslSession(self._route, connection)
