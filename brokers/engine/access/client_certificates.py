"""Authentication by client certificates: trusted authorities of a route, revocation, and the name of the user.

Pure. OpenSSL has verified a chain before it is checked here.
"""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Final, NamedTuple

from brokers.contract.paths import sanitise
from brokers.contract.users import RESERVED_NAMES, USER_NAME_BYTES_MAX
from instances.routes.certificate_entries import CLIENT_CHAIN_MAX, Revoked, authority_key, revocation_entry
from instances.routes.principal_mapping import NoName, PrincipalMapping, RulesRefused
from instances.routes.x509 import Certificate, distinguished_name, read_certificate

# Remembered identities of recent clients: a resumed TLS session does not send the chain again.
REMEMBERED_IDENTITIES_MAX: Final = 256
_QUOTED_CHARS_MAX: Final = 120

# Reasons of a refusal, as they are in the audit log.
NO_CERTIFICATE: Final = "no_certificate"
UNTRUSTED: Final = "untrusted"
UNREADABLE: Final = "unreadable"
EXPIRED: Final = "expired"
REVOKED: Final = "revoked"
NO_USER: Final = "names_nobody"
# OpenSSL's X509_V_ERR_CERT_HAS_EXPIRED, and its error for a client that sent no certificate.
_EXPIRED_CODE: Final = 10
_NO_CERTIFICATE_ERROR: Final = "PEER_DID_NOT_RETURN_A_CERTIFICATE"
_TEXT_BY_REASON: Final[Mapping[str, str]] = {
    UNTRUSTED: "its certificate is not from an authority of this route",
    REVOKED: "its certificate is revoked",
    EXPIRED: "the certificate has expired",
}


class CertificateRefused(ValueError):
    """A client certificate is refused. The message describes why; `reason` is its code for the audit log."""

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(text)
        self.reason = reason


def refusal_reason(error: Exception) -> str | None:
    """Returns the code of a certificate's refusal, None if a handshake failed for another reason."""
    if isinstance(error, CertificateRefused):
        return error.reason
    if isinstance(error, ssl.SSLCertVerificationError):
        return EXPIRED if error.verify_code == _EXPIRED_CODE else UNTRUSTED
    has_no_certificate = isinstance(error, ssl.SSLError) and error.reason == _NO_CERTIFICATE_ERROR
    return NO_CERTIFICATE if has_no_certificate else None


class CertificateIdentity(NamedTuple):
    """Identity that a certificate proves.

    `authorities` are the keys of all certificates in its chain, `entries` the revocation entries that would revoke it.
    Both are empty if the chain is not known.
    """

    user: str
    not_after: datetime
    authorities: frozenset[bytes]
    entries: tuple[bytes, ...]


class ClientAuthorities:
    """Trusted authorities, revoked certificates and name mapping of one route; immutable. `authorities` are DER."""

    def __init__(self, authorities: Sequence[bytes], revoked: bytes, mapping_rules: str) -> None:
        """Raises ValueError if an authority's certificate or the revocation list cannot be read."""
        self._anchors = frozenset(_key_of(read_certificate(der)) for der in authorities)
        self._revoked = Revoked(revoked)
        self._mapping_rules = mapping_rules
        # Compiled in the thread of the first handshake, because patterns take milliseconds to compile.
        self._mapping_or_none: PrincipalMapping | None = None
        # Identities by the digest of the client's own certificate, the oldest first.
        self._identity_by_digest: dict[bytes, CertificateIdentity] = {}

    def identify(self, chain: Sequence[bytes], now: datetime) -> CertificateIdentity:
        """Returns the identity of a verified chain: the client's own certificate first, the authority's last.

        Raises CertificateRefused.
        """
        if len(chain) > CLIENT_CHAIN_MAX:
            detail = f"the chain has {len(chain)} certificates, {CLIENT_CHAIN_MAX} at most"
            raise CertificateRefused(detail, UNTRUSTED)
        try:
            certificates = [read_certificate(der) for der in chain]
        except ValueError as error:
            raise CertificateRefused(str(error), UNREADABLE) from None
        identity = CertificateIdentity(
            self._map_to_user(certificates[0]),
            certificates[0].not_after,
            frozenset(map(_key_of, certificates)),
            tuple(
                revocation_entry(issuer.public_key, certificate.serial)
                for certificate, issuer in pairwise(certificates)
            ),
        )
        self._require_valid(identity, now)
        key = _digest(chain[0])
        self._identity_by_digest.pop(key, None)
        self._identity_by_digest[key] = identity
        if len(self._identity_by_digest) > REMEMBERED_IDENTITIES_MAX:
            del self._identity_by_digest[next(iter(self._identity_by_digest))]
        return identity

    def identify_resumed(self, certificate: bytes, now: datetime) -> CertificateIdentity:
        """Returns the identity of a client that resumes a TLS session, without its chain.

        If its identity is no longer remembered, the chain stays unknown, and the next change of the route's authorities
        ends the connection.

        Raises CertificateRefused.
        """
        identity = self._identity_by_digest.get(_digest(certificate))
        if identity is None:
            try:
                parsed = read_certificate(certificate)
            except ValueError as error:
                raise CertificateRefused(str(error), UNREADABLE) from None
            identity = CertificateIdentity(self._map_to_user(parsed), parsed.not_after, frozenset(), ())
        if identity.not_after < now:
            raise CertificateRefused("the certificate has expired", EXPIRED)
        return identity

    def find_fault(self, identity: CertificateIdentity) -> str | None:
        """Returns the reason why an identity that was proved under other authorities is not valid under these; None if
        it is valid.
        """
        if not self._anchors & identity.authorities:
            return UNTRUSTED
        if any(entry in self._revoked for entry in identity.entries):
            return REVOKED
        return None

    def _compiled_mapping(self) -> PrincipalMapping:
        compiled = self._mapping_or_none
        if compiled is None:
            compiled = self._mapping_or_none = PrincipalMapping(self._mapping_rules)
        return compiled

    def _require_valid(self, identity: CertificateIdentity, now: datetime) -> None:
        fault = self.find_fault(identity)
        if fault is None and identity.not_after < now:
            fault = EXPIRED
        if fault is not None:
            raise CertificateRefused(_TEXT_BY_REASON[fault], fault)

    def _map_to_user(self, certificate: Certificate) -> str:
        try:
            name = distinguished_name(certificate.subject)
        except ValueError as error:
            raise CertificateRefused(str(error), UNREADABLE) from None
        # Java's regular expressions treat line ends differently, so names with control characters are refused.
        if not name.isprintable():
            raise CertificateRefused("its subject has characters that cannot be printed", NO_USER)
        try:
            user = self._compiled_mapping().user_of(name)
        except NoName as error:
            detail = f"its subject {_quote_shortened(name)} names no user: {error}"
            raise CertificateRefused(detail, NO_USER) from None
        except RulesRefused as error:  # rules of a later version of Penstock
            raise CertificateRefused(f"principal_mapping_rules: {error}", NO_USER) from None
        if not user or user != user.strip() or user in RESERVED_NAMES:
            detail = (
                f"its subject {_quote_shortened(name)} names no user: {_quote_shortened(user)} is not a valid user name"
            )
            raise CertificateRefused(detail, NO_USER)
        name_bytes = len(sanitise(user))
        if name_bytes > USER_NAME_BYTES_MAX:
            raise CertificateRefused(
                f"its subject {_quote_shortened(name)} names no user: the name takes {name_bytes} bytes, "
                f"{USER_NAME_BYTES_MAX} at most; shorten it with principal_mapping_rules",
                NO_USER,
            )
        return user


def _key_of(certificate: Certificate) -> bytes:
    return authority_key(certificate.subject, certificate.public_key)


def _digest(der: bytes) -> bytes:
    return hashlib.sha256(der).digest()


def _quote_shortened(name: str) -> str:
    return repr(name if len(name) <= _QUOTED_CHARS_MAX else f"{name[:_QUOTED_CHARS_MAX]}…")
