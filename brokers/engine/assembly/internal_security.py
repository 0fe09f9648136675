"""Mutual authentication of this broker and the other processes of its installation: by certificates of the
installation's authority, and by the shared secret as long as a broker of the cluster has no certificate (decision 106).
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import structlog

from brokers.contract import paths, process_identity
from brokers.contract.process import CLUSTER_USER
from brokers.contract.process_identity import MUTUAL_TLS, PLAINTEXT, ProcessIdentity, identity_in
from brokers.contract.revoked_certificates import RevokedCertificates
from brokers.engine.access import external
from brokers.engine.access.principals import Principal
from brokers.engine.assembly.route_sessions import SessionFactory
from brokers.engine.cluster.errors import ClusterError
from brokers.engine.cluster.image import BrokerInfo, ClusterImage
from brokers.engine.cluster.tree import Tree
from brokers.engine.config import EngineConfig
from brokers.engine.errors import StartFailed
from brokers.engine.handlers.auth.internal_sessions import CertificateSession, RejectedPeerSession, SaslSession
from brokers.engine.handlers.services import BrokerServices
from brokers.engine.network import closing
from brokers.engine.network.connection import Connection
from brokers.engine.network.interfaces import Session as AnySession
from brokers.engine.network.listener import Listeners
from brokers.engine.network.listener_group import GroupSpec
from brokers.engine.network.listener_rules import OPEN_TO_ALL, ListenerRules, MakeSession
from brokers.engine.network.port import Listener
from brokers.engine.network.tls_stream import PLAINTEXT_ALPN
from brokers.engine.replication.coordinator_forwarders import ForwardedIdentity
from brokers.engine.replication.interfaces import LinkOwner
from brokers.engine.replication.link import SocketLink
from brokers.engine.replication.peer_tls import PeerTls

log = structlog.get_logger(__name__)

INTERNAL_LISTENER: Final = "internal"
REVOCATIONS_INTERVAL_S: Final = 10.0


class InternalSecurity:
    """Internal security of one broker process: the rules of its internal listener, and its links to other brokers."""

    def __init__(self, config: EngineConfig, loop: asyncio.AbstractEventLoop) -> None:
        self._config = config
        self._loop = loop
        self._has_brokers_without_tls = False
        self._files = (config.internal_certificate_file, config.internal_ca_file)
        self._read: tuple[tuple[int, int], ...] = ()
        self._server: ssl.SSLContext | None = None
        # Contexts as a client, for other machines and for this machine.
        self._clients: tuple[ssl.SSLContext, ssl.SSLContext] | None = None
        self._listener: Listener | None = None
        self._revoked = RevokedCertificates()
        self._peer_tls = (
            PeerTls(loop, config.cluster_id, self._client_context, self._is_revoked) if self.has_tls else None
        )
        self.reload()
        if self.has_tls and self._server is None:
            raise StartFailed("the certificate for the internal listener cannot be used: see the line before")

    @property
    def has_tls(self) -> bool:
        return self._config.internal_security != PLAINTEXT

    @property
    def cluster_id(self) -> str:
        return self._config.cluster_id

    @property
    def accepts_secret(self) -> bool:
        """True if the cluster's secret is accepted from peers without a certificate; an empty secret never is."""
        return self._config.internal_security != MUTUAL_TLS or self._has_brokers_without_tls

    # -- incoming ------------------------------------------------------------------------------------------------------

    def bind(self, services: BrokerServices, listeners: Listeners, sessions: SessionFactory) -> Listener:
        """Binds the internal port. Raises OSError."""
        config, make_session = self._config, sessions.internal_session

        def sasl_session(connection: Connection) -> SaslSession:
            return SaslSession(services, connection, make_session, listeners.reports.log_authentication_failure)

        def session_of(process: ProcessIdentity | None, is_revoked: bool, connection: Connection) -> AnySession:
            on_failed = listeners.reports.log_authentication_failure
            if process is None or is_revoked or not external.is_admitted_process(process, config.cluster_id):
                return RejectedPeerSession(services, connection, on_failed, process, is_revoked=is_revoked)
            return CertificateSession(services, connection, make_session, on_failed, process)

        def identify_certificate(tls: ssl.SSLSocket) -> MakeSession:
            certificate = tls.getpeercert() or {}
            return partial(session_of, identity_in(certificate), self._is_revoked(certificate))

        rules = OPEN_TO_ALL
        if self.has_tls:
            rules = ListenerRules(
                tls=self.server_context, identify=identify_certificate, admits_plaintext=lambda: self.accepts_secret
            )
        self._listener = listeners.bind(
            INTERNAL_LISTENER,
            config.internal_host,
            config.internal_port,
            sasl_session,
            group=GroupSpec(INTERNAL_LISTENER, connections_max=config.connections_max, is_protected=True),
            rules=rules,
        )
        return self._listener

    def admin_rules(self) -> ListenerRules:
        """Returns the rules of the admin port, where peers without TLS may ask for health (`admin_server`)."""
        return ListenerRules(tls=self.server_context, admits_plaintext=_always) if self.has_tls else OPEN_TO_ALL

    def identify(self, certificate: Mapping[str, Any]) -> ProcessIdentity | None:
        """Returns the identity in a verified certificate, None for one that is revoked."""
        return None if self._is_revoked(certificate) else identity_in(certificate)

    def use_revoked(self, revoked: RevokedCertificates) -> None:
        """Refuses these certificates from now on, and closes all connections of the brokers that they name.

        That includes connections with a later, valid certificate; such a broker connects again.
        """
        before, self._revoked = self._revoked.valid_from_s, revoked
        changed = [id for id, date_s in revoked.valid_from_s.items() if before.get(id) != date_s]
        if self._listener is None or not changed:
            return
        revoked_identities = [process_identity.broker(self.cluster_id, id) for id in changed]
        for connection in tuple(self._listener.connections):
            if isinstance(connection, Connection) and _process_of(connection.session) in revoked_identities:
                self._listener.close_connection(connection, closing.NOT_ALLOWED)

    def _is_revoked(self, certificate: Mapping[str, Any]) -> bool:
        return self._revoked.include(self.cluster_id, identity_in(certificate), certificate)

    def on_image(self, _before: ClusterImage, image: ClusterImage) -> None:
        """Closes connections that used the secret when no broker of the cluster needs it any more."""
        accepted_secret = self.accepts_secret
        self._has_brokers_without_tls = any(not broker.has_tls for broker in image.brokers.values())
        if not self.has_tls or accepted_secret == self.accepts_secret:
            return
        if self.accepts_secret:
            log.info("cluster_secret_accepted")
        else:
            log.info("cluster_secret_refused")
            self._end_secret_sessions()

    def _end_secret_sessions(self) -> None:
        if self._listener is None:
            return
        for connection in tuple(self._listener.connections):
            if isinstance(connection, Connection) and _uses_secret(connection.session):
                self._listener.close_connection(connection, closing.NOT_ALLOWED)

    # -- outgoing ------------------------------------------------------------------------------------------------------

    def link(self, broker: BrokerInfo, owner: LinkOwner) -> SocketLink:
        """Returns a link in the name of the cluster itself."""
        return self._link(broker, owner, CLUSTER_USER, "")

    def link_for(self, broker: BrokerInfo, owner: LinkOwner, forwarded_identity: ForwardedIdentity) -> SocketLink:
        """Returns a link in the name of a client of an instance."""
        return self._link(broker, owner, *forwarded_identity)

    def _link(self, broker: BrokerInfo, owner: LinkOwner, user: str, forwarded_client: str) -> SocketLink:
        """Returns a link that uses the secret towards brokers whose registration has no TLS."""
        tls = self._peer_tls if broker.has_tls else None
        return SocketLink(broker, owner, self._config.control_secret, self._loop, user, forwarded_client, tls)

    # -- certificates --------------------------------------------------------------------------------------------------

    def server_context(self) -> ssl.SSLContext:
        assert self._server is not None, "it was read at the start"
        return self._server

    def _client_context(self, is_on_this_machine: bool) -> ssl.SSLContext:
        assert self._clients is not None, "they were read at the start"
        return self._clients[is_on_this_machine]

    def reload(self) -> None:
        """Reloads a replaced certificate; if the new one is unusable, the former one stays in use. Called at the start
        and periodically.
        """
        certificate, authority = self._files
        if certificate is None or authority is None:
            return
        try:
            status_key = tuple((file.stat().st_mtime_ns, file.stat().st_ino) for file in (certificate, authority))
            if status_key == self._read:
                return
            self._read = status_key
            server, client = _server_context(certificate, authority), _client_context(certificate, authority)
            same_machine_client = _client_context(certificate, authority)
            same_machine_client.set_alpn_protocols([PLAINTEXT_ALPN])
        except (OSError, ValueError) as error:  # ssl's errors are OSErrors
            log.error("internal_certificate_not_usable", file=certificate.name, reason=str(error))
        else:
            self._server, self._clients = server, (client, same_machine_client)
            log.info("internal_certificate_read", file=certificate.name)

    def close(self) -> None:
        if self._peer_tls is not None:
            self._peer_tls.close()


def _uses_secret(session: object) -> bool:
    principal = _principal_of(session)
    return isinstance(session, SaslSession) if principal is None else principal.process is None


def _process_of(session: object) -> ProcessIdentity | None:
    principal = _principal_of(session)
    if principal is not None:
        return principal.process
    return session.process if isinstance(session, CertificateSession) else None


def _principal_of(session: object) -> Principal | None:
    """Returns the principal of an authenticated session, None for any other session."""
    principal = getattr(session, "principal", None)
    return principal if isinstance(principal, Principal) else None


def _always() -> bool:
    return True


def _server_context(certificate: Path, authority: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _set_up(context, certificate, authority)
    # Tickets are useless for peers that stay connected, and would arrive unexpectedly after the handshake.
    context.num_tickets = 0
    context.set_alpn_protocols([PLAINTEXT_ALPN])
    return context


def _client_context(certificate: Path, authority: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # The certificate identifies a process by its role and number, not by a host name.
    context.check_hostname = False
    _set_up(context, certificate, authority)
    return context


def _set_up(context: ssl.SSLContext, certificate: Path, authority: Path) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(authority)
    context.load_cert_chain(certificate)


class Revocations:
    """Follows the document of revoked certificates. While it is unreadable or missing, the last version read stays in
    force: the control plane overwrites the document and never deletes it.
    """

    def __init__(self, tree: Tree, use: Callable[[RevokedCertificates], object]) -> None:
        self._tree = tree
        self._use = use
        self._raw = b""

    async def refresh(self) -> None:
        """Reads the document, and calls `use` with its content if it changed."""
        try:
            node = await self._tree.get(paths.REVOKED_CERTIFICATES)
        except ClusterError as error:
            log.warning("revoked_certificates_not_read", reason=repr(error))
            return
        if node is None:
            if self._raw:
                log.warning("revoked_certificates_not_read", reason="the document is missing")
            return
        if node.data == self._raw:
            return
        self._raw = node.data
        try:
            revoked = RevokedCertificates.from_json(self._raw)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            log.warning("document_ignored", path=paths.REVOKED_CERTIFICATES, reason=repr(error))
            return
        log.info("revoked_certificates_read", brokers=sorted(revoked.valid_from_s))
        self._use(revoked)
