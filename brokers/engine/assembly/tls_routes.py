"""TLS of one route: its context, which is created again when certificates of the route or of this broker change, and
the identification of clients by certificate.

A context lives as long as the authorities that its clients were verified with: tickets of another context are invalid,
so that no resumed session outlives an authority or misses a revocation.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple

import structlog

from brokers.contract.certificates import ROUTE_KEYS_FILE, CertificatesDocument
from brokers.contract.routes import RouteDocument
from brokers.engine.access.client_certificates import UNTRUSTED, CertificateRefused, ClientAuthorities
from brokers.engine.assembly.tls_contexts import TlsContexts
from brokers.engine.handlers.auth.certificate_sessions import CertificateRoute
from brokers.engine.network.listener_rules import Identify, MakeSession, OnHandshakeFailure

log = structlog.get_logger(__name__)

NO_CERTIFICATES = CertificatesDocument()


class RouteRefused(Exception):
    """This broker cannot open a route with its required security."""


class _RouteContext(NamedTuple):
    """A context of a route, with the document and the broker's own context from which it was made."""

    context: ssl.SSLContext
    document: CertificatesDocument
    own_context: ssl.SSLContext | None


class TlsRoute:
    """TLS of one route. `clients` is None if it requires no client certificates."""

    def __init__(self, contexts: TlsContexts, clients: CertificateRoute | None) -> None:
        self._contexts = contexts
        self._clients = clients
        self._document = NO_CERTIFICATES
        self._mapping_rules: str | None = None
        # Created in a thread for the first client; an instance has one handshake step in a thread at a time.
        self._cached: _RouteContext | None = None
        self._authorities: ClientAuthorities | None = None

    def apply(self, route: RouteDocument, document: CertificatesDocument) -> None:
        """Applies the route's current settings. Raises RouteRefused if handshakes will fail."""
        contexts = self._contexts
        if (document, route.principal_mapping_rules) != (self._document, self._mapping_rules):
            self._document, self._mapping_rules = document, route.principal_mapping_rules
            if self._clients is not None:
                self._authorities = _authorities_of(route, document)
                self._clients.set_authorities(self._authorities)
        if not document.certificate_pem and contexts.own_context is None:
            raise RouteRefused("this broker has no certificate")
        if document.certificate_pem and contexts.key_password() is None:
            raise RouteRefused(f"this broker has no key for uploaded certificates ({ROUTE_KEYS_FILE})")

    @property
    def context(self) -> Callable[[], ssl.SSLContext]:
        """Returns the function for `ListenerRules.tls`."""
        if self._clients is None and not self._document.certificate_pem:
            return self._contexts.required_own_context
        return self._current

    @property
    def identify(self) -> Identify | None:
        """Returns the function for `ListenerRules.identify`."""
        return None if self._clients is None else self._identify

    @property
    def on_handshake_failure(self) -> OnHandshakeFailure | None:
        """Returns the function for `ListenerRules.on_handshake_failure`."""
        return None if self._clients is None else self._clients.handshake_failed

    def _current(self) -> ssl.SSLContext:
        cached, document, own_context = self._cached, self._document, self._contexts.own_context
        if (
            cached is None
            or cached.document is not document
            or (cached.own_context is not own_context and not document.certificate_pem)
        ):
            context = self._contexts.make_context(document, asks_clients=self._clients is not None)
            cached = self._cached = _RouteContext(context, document, own_context)
        return cached.context

    def _identify(self, tls: ssl.SSLSocket) -> MakeSession:
        """Identifies a client; runs in a thread. Raises CertificateRefused, and ValueError for an outdated session."""
        clients, authorities, cached = self._clients, self._authorities, self._cached
        assert clients is not None, "clients are asked for certificates"
        if authorities is None:
            raise CertificateRefused("the route has no authority for clients", UNTRUSTED)
        now = datetime.now(UTC)
        if not tls.session_reused:
            identity = authorities.identify(_verified_chain(tls), now)
        elif cached is not None and cached.document is self._document and tls.context is cached.context:
            identity = authorities.identify_resumed(tls.getpeercert(binary_form=True) or b"", now)
        else:
            # The client reconnects and shows its certificate: this is no failed sign-in.
            raise ValueError("its session is of before a change of the route")
        return partial(clients.session, identity=identity, authorities=authorities)


def _authorities_of(route: RouteDocument, document: CertificatesDocument) -> ClientAuthorities | None:
    """Returns the trusted authorities, None without any. Unusable ones, which this version never writes, are logged."""
    if not document.client_ca_pem:
        return None
    try:
        return ClientAuthorities(_ders(document.client_ca_pem), document.revoked, route.principal_mapping_rules)
    except ValueError as error:
        log.error("client_authority_not_usable", route=route.name, reason=str(error))
        return None


def _ders(pem: str) -> list[bytes]:
    end = ssl.PEM_FOOTER
    blocks = [block + end for block in pem.split(end)[:-1]]
    return [ssl.PEM_cert_to_DER_cert(block[block.index(ssl.PEM_HEADER) :]) for block in blocks]


def _verified_chain(tls: ssl.SSLSocket) -> list[bytes]:
    """Returns the chain from the client's certificate to one of the route's authorities."""
    if hasattr(tls, "get_verified_chain"):
        return list(tls.get_verified_chain())
    # Available in Python since 3.10, and under this name since 3.13.
    chain = tls._sslobj.get_verified_chain() or ()  # type: ignore[attr-defined]
    return [ssl.PEM_cert_to_DER_cert(certificate.public_bytes()) for certificate in chain]
