"""Sessions of clients that authenticate by certificate, and their end when the certificate is no longer trusted.

As in Apache Kafka, a certificate's user needs no user document. If there is a document of the same name it applies: a
disabled or expired user may not be connected, however it authenticated.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from brokers.contract import paths
from brokers.contract.audit import NOBODY
from brokers.contract.users import UserDocument
from brokers.engine.access.authorizer import peer_address
from brokers.engine.access.client_certificates import UNTRUSTED, CertificateIdentity, ClientAuthorities, refusal_reason
from brokers.engine.access.principals import Principal
from brokers.engine.handlers.audit_trail import Source
from brokers.engine.handlers.auth.internal_sessions import AuthenticatedChannel
from brokers.engine.handlers.auth.tenant_sasl import SignedInSession
from brokers.engine.handlers.context import Channel
from brokers.engine.handlers.logins import REVOKED, Login
from brokers.engine.handlers.services import BrokerServices
from brokers.engine.handlers.session import DispatchTable, Session
from brokers.engine.protocol.apis import ADVERTISED_TENANT

# Number and name of this way of authentication, beside those of SASL mechanisms.
BY_CERTIFICATE: Final = -1
TLS: Final = "TLS"
# Reason for rejecting a valid certificate: the user of that name is disabled or expired.
USER_SHUT_OUT: Final = "user_shut_out"
# Number of open connections that are checked in one turn of the event loop, which takes two milliseconds.
CHECKED_PER_TURN_MAX: Final = 50


class CertificateLogin(Login):
    """Login of a connection that authenticated by certificate."""

    __slots__ = ("_route", "identity")

    def __init__(self, route: CertificateRoute, channel: Channel, identity: CertificateIdentity) -> None:
        logins = route.services.access.authentication.logins
        super().__init__(logins, channel, route.instance_id, identity.user, BY_CERTIFICATE, None)
        self._route = route
        self.identity = identity

    def is_valid(self, user: UserDocument | None, now_ms: int) -> bool:
        return user is None or user.is_usable(now_ms)

    def end(self) -> None:
        super().end()
        self._route.open.pop(self, None)


class CertificateRoute:
    """State shared by a listener's connections with client certificates; none is accepted without `authorities`."""

    def __init__(self, services: BrokerServices, instance_id: str, name: str, dispatch_table: DispatchTable) -> None:
        self.services = services
        self.instance_id = instance_id
        self.name = name
        self.open: dict[CertificateLogin, None] = {}
        self.authorities: ClientAuthorities | None = None
        self._dispatch_table = dispatch_table

    def new_session(self, channel: AuthenticatedChannel, principal: Principal) -> SignedInSession:
        """Returns the session of an identified client. A subclass may serve other calls than a broker does."""
        return Session(self.services, channel, principal, ADVERTISED_TENANT, self._dispatch_table, route_name=self.name)

    def set_authorities(self, authorities: ClientAuthorities | None) -> None:
        """Sets the trusted authorities. Untrusted connections are closed, some in each turn of the event loop."""
        self.authorities = authorities
        self._recheck(authorities, iter(tuple(self.open)))

    def _recheck(self, authorities: ClientAuthorities | None, remaining_logins: Iterator[CertificateLogin]) -> None:
        if authorities is not self.authorities:
            return  # a newer check covers all of them
        logins = list(islice(remaining_logins, CHECKED_PER_TURN_MAX))
        if logins:
            untrusted = [login for login in logins if login in self.open and self._fault_of(login.identity)]
            self.services.access.authentication.logins.close(untrusted)
            self.services.loop.call_soon(self._recheck, authorities, remaining_logins)

    def session(
        self, channel: AuthenticatedChannel, identity: CertificateIdentity, authorities: ClientAuthorities
    ) -> SignedInSession:
        """Returns the session of a client identified under `authorities`; it is closed if it may not be connected."""
        services = self.services
        session = self.new_session(channel, Principal(identity.user, self.instance_id))
        login = session.login = CertificateLogin(self, channel, identity)
        users = services.metadata.current.image.users.of_instance(self.instance_id)
        user = users.get(paths.sanitise(identity.user))
        self.open[login] = None
        services.access.authentication.logins.add(login, user)
        fault = None if authorities is self.authorities else self._fault_of(identity)
        if fault is None and not login.is_valid(user, services.clock.now_ms()):
            fault = USER_SHUT_OUT
        if fault is None:
            services.access.authentication.record_sign_in(self.instance_id, identity.user, None)
        else:
            self._record_refusal(NOBODY if user is None else identity.user, channel.peer_host, fault)
            services.loop.call_soon(channel.close, REVOKED)  # before any request is read
        return session

    def handshake_failed(self, peer_host: str, error: Exception) -> None:
        """Records a failed handshake (`network.listener_rules.OnHandshakeFailure`), unless the peer did not speak TLS
        or disconnected, which is no attempt to sign in.
        """
        reason = refusal_reason(error)
        if reason is not None:
            self._record_refusal(NOBODY, peer_host, reason)

    def _record_refusal(self, user: str, peer_host: str, reason: str) -> None:
        services, instance_id = self.services, self.instance_id
        services.access.authentication.record_failure(instance_id)
        source = Source(user, str(peer_address(peer_host)), route=self.name)
        services.access.audit.report_failed_sign_in(instance_id, source, TLS, is_refused=False, reason=reason)

    def _fault_of(self, identity: CertificateIdentity) -> str | None:
        return UNTRUSTED if self.authorities is None else self.authorities.find_fault(identity)
