"""Sessions of clients that came by certificate, and their end when what let them in is in force no more.

A user by certificate needs no document, as in Apache Kafka. Where there is one of the same name it counts: whoever is
disabled or expired may not be here, by whatever proof.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from brokers.contract import paths
from brokers.contract.audit import NOBODY
from brokers.contract.users import UserDocument
from brokers.engine.access.authorizer import peer_address
from brokers.engine.access.client_certificates import UNTRUSTED, ClientAuthorities, Identity, refusal_reason
from brokers.engine.access.principals import Principal
from brokers.engine.handlers.audit_trail import Source
from brokers.engine.handlers.context import Channel
from brokers.engine.handlers.logins import REVOKED, Login
from brokers.engine.handlers.services import BrokerServices
from brokers.engine.handlers.session import DispatchTable, Session
from brokers.engine.protocol.apis import ADVERTISED_TENANT

# In the place of a mechanism's number, and of its name.
BY_CERTIFICATE: Final = -1
TLS: Final = "TLS"
# Why somebody whose certificate is good is not let in: the user of that name is disabled or has expired.
USER_SHUT_OUT: Final = "user_shut_out"
# Open connections that are looked at before the loop serves others: two milliseconds.
JUDGED_PER_TURN_MAX: Final = 50


class CertificateLogin(Login):
    """`logins.Login` of a connection that has no secret."""

    __slots__ = ("_route", "identity")

    def __init__(self, route: CertificateRoute, channel: Channel, identity: Identity) -> None:
        logins = route.services.access.authentication.logins
        super().__init__(logins, channel, route.instance_id, identity.user, BY_CERTIFICATE, None)
        self._route = route
        self.identity = identity

    def holds(self, user: UserDocument | None, now_ms: int) -> bool:
        return user is None or user.is_usable(now_ms)

    def end(self) -> None:
        super().end()
        self._route.open.pop(self, None)


class CertificateRoute:
    """What the connections of one listener with client certificates share. `authorities` None: nobody comes in."""

    def __init__(self, services: BrokerServices, instance_id: str, name: str, dispatch_table: DispatchTable) -> None:
        self.services = services
        self.instance_id = instance_id
        self.name = name
        self.open: dict[CertificateLogin, None] = {}
        self.authorities: ClientAuthorities | None = None
        self._dispatch_table = dispatch_table

    def set_authorities(self, authorities: ClientAuthorities | None) -> None:
        """From here on; who came by what is trusted no more loses its connection, some in each turn of the loop."""
        self.authorities = authorities
        self._judge(authorities, iter(tuple(self.open)))

    def _judge(self, authorities: ClientAuthorities | None, rest: Iterator[CertificateLogin]) -> None:
        if authorities is not self.authorities:
            return  # all of them are looked at under another one
        some = list(islice(rest, JUDGED_PER_TURN_MAX))
        if some:
            lost = [login for login in some if login in self.open and self._fault_of(login.identity)]
            self.services.access.authentication.logins.close(lost)
            self.services.loop.call_soon(self._judge, authorities, rest)

    def session(self, channel: Channel, identity: Identity, authorities: ClientAuthorities) -> Session:
        """For who was identified under `authorities`. Another one may be in force by now."""
        services = self.services
        principal = Principal(identity.user, self.instance_id)
        session = Session(services, channel, principal, ADVERTISED_TENANT, self._dispatch_table, route_name=self.name)
        login = session.login = CertificateLogin(self, channel, identity)
        users = services.metadata.current.image.users.of_instance(self.instance_id)
        user = users.get(paths.sanitise(identity.user))
        self.open[login] = None
        services.access.authentication.logins.add(login, user)
        fault = None if authorities is self.authorities else self._fault_of(identity)
        if fault is None and not login.holds(user, services.clock.now_ms()):
            fault = USER_SHUT_OUT
        if fault is None:
            services.access.authentication.came_by_certificate(self.instance_id)
        else:
            self._note_refusal(NOBODY if user is None else identity.user, channel.peer_host, fault)
            services.loop.call_soon(channel.close, REVOKED)  # before anything is read
        return session

    def handshake_failed(self, peer_host: str, error: Exception) -> None:
        """As `network.listener_rules.NoteFailure`. Whoever speaks no TLS, or hangs up, has not tried to sign in."""
        reason = refusal_reason(error)
        if reason is not None:
            self._note_refusal(NOBODY, peer_host, reason)

    def _note_refusal(self, user: str, peer_host: str, reason: str) -> None:
        services, instance_id = self.services, self.instance_id
        services.access.authentication.failed(instance_id)
        source = Source(user, str(peer_address(peer_host)), route=self.name)
        services.access.audit.sign_in_failed(instance_id, source, TLS, is_refused=False, reason=reason)

    def _fault_of(self, identity: Identity) -> str | None:
        return UNTRUSTED if self.authorities is None else self.authorities.fault_of(identity)
