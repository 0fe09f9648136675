"""Checks of certificates that a tenant uploads for a route, and summaries of them for pages and REST. Pure; the clock
is an argument. Every fault raises `Invalid` at its field, with a text of `certificate_faults`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, Final, NoReturn

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, ExtensionOID

from instances.routes import certificate_faults as faults
from instances.routes.certificate_entries import (
    CLIENT_CA_BYTES_MAX,
    CLIENT_CA_CERTIFICATES_MAX,
    PRIVATE_KEY_BYTES_MAX,
    REVOCATION_LIST_BYTES_MAX,
    REVOKED_MAX,
    RSA_BITS_MAX,
    RSA_BITS_MIN,
    SERVER_CHAIN_BYTES_MAX,
    SERVER_CHAIN_MAX,
    Revoked,
    authority_key,
    revocation_entry,
)
from instances.routes.x509 import Certificate, distinguished_name, read_certificate
from tenants.errors import Conflict, Invalid

CA_FIELD: Final = "/ca_pem"
LIST_FIELD: Final = "/crl_pem"
CERTIFICATE_FIELD: Final = "/certificate_pem"
KEY_FIELD: Final = "/private_key_pem"
# Tolerated difference of clocks.
CLOCK_SKEW: Final = timedelta(hours=1)
_CURVES: Final = (ec.SECP256R1, ec.SECP384R1, ec.SECP521R1)
_PRIVATE_KEY_LABEL: Final = "PRIVATE KEY-----"
# Errors that the library raises for malformed uploads.
_PARSE_ERRORS: Final = (ValueError, UnsupportedAlgorithm, x509.DuplicateExtension, x509.UnsupportedGeneralNameType)
_NAMES_SHOWN_MAX: Final = 100
_NAME_CHARS_SHOWN_MAX: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCa:
    """Certificate authorities of a route's clients. `authorities` has the `authority_key` of each one, in hex."""

    pem: str
    authorities: frozenset[str]
    summary: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RevocationList:
    """Revocation lists of a route. `parts` has the summary of each list by its issuer's `authority_key`, in hex."""

    revoked: bytes
    parts: dict[str, dict[str, Any]]

    @property
    def numbers(self) -> dict[str, int]:
        """CRL number of each list by the key of its issuer."""
        return {key: part["crl_number"] for key, part in self.parts.items()}

    @property
    def summary(self) -> dict[str, Any]:
        return summary_of(self.parts.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerCertificate:
    """Certificate chain of a route's brokers with its private key, which is encrypted."""

    pem: str
    encrypted_key_pem: str = dataclass_field(repr=False)
    summary: dict[str, Any]


def client_ca(pem: str, now: datetime) -> ClientCa:
    """Returns the checked authorities that may sign certificates of clients."""
    certificates = _certificates(pem, CA_FIELD, CLIENT_CA_BYTES_MAX, CLIENT_CA_CERTIFICATES_MAX)
    for number, certificate in enumerate(certificates, start=1):
        label = faults.certificate(number) if len(certificates) > 1 else faults.THE_CERTIFICATE
        if not _is_authority(certificate):
            _refuse(CA_FIELD, faults.not_a_ca(label), "not_a_ca")
        _require_valid_now(certificate, label, CA_FIELD, now)
        _require_strong(certificate, label, CA_FIELD, is_authority=True)
    parsed = [_parse_certificate(certificate, CA_FIELD) for certificate in certificates]
    return ClientCa(
        pem=_as_pem(certificates),
        authorities=frozenset(_authority_key(certificate) for certificate in parsed),
        summary={
            "subjects": [_name_text(certificate.subject) for certificate in parsed],
            "not_after": _iso_format(min(certificate.not_valid_after_utc for certificate in certificates)),
            "fingerprints_sha256": [certificate.fingerprint(SHA256()).hex() for certificate in certificates],
        },
    )


def revocation_list(pem: str, ca_pem: str, numbers_in_force: dict[str, int], now: datetime) -> RevocationList:
    """Returns the checked revocation lists of a PEM text, at most one of each authority.

    `ca_pem` has the route's authorities, `numbers_in_force` the number of each authority's list in force. An expired
    list is accepted, because its revocations still hold.
    """
    _require_size(pem, LIST_FIELD, REVOCATION_LIST_BYTES_MAX)
    end = "-----END X509 CRL-----"
    blocks = [block + end for block in pem.split(end)[:-1]]
    if not 1 <= len(blocks) <= CLIENT_CA_CERTIFICATES_MAX:
        _refuse(LIST_FIELD, faults.wrong_list_count(CLIENT_CA_CERTIFICATES_MAX), "pem")
    authorities = x509.load_pem_x509_certificates(ca_pem.encode())
    entries: list[bytes] = []
    parts: dict[str, dict[str, Any]] = {}
    for block in blocks:
        try:
            crl = x509.load_pem_x509_crl(block.encode())
            issuer = _parse_certificate(_signer(crl, authorities), LIST_FIELD)
            number = _crl_number(crl)
        except _PARSE_ERRORS:
            _refuse(LIST_FIELD, faults.UNREADABLE_LIST, "pem")
        key = _authority_key(issuer)
        if key in parts:
            _refuse(LIST_FIELD, faults.two_lists(_name_text(issuer.subject)), "twice")
        if number < numbers_in_force.get(key, 0):
            detail = faults.older_list(numbers_in_force[key], number)
            raise Conflict(detail, code="older_list", errors=Invalid.at(LIST_FIELD, detail, code="older_list").errors)
        if crl.last_update_utc > now + CLOCK_SKEW:
            _refuse(LIST_FIELD, faults.list_begins_later(_iso_format(crl.last_update_utc)), "not_yet")
        if len(entries) + len(crl) > REVOKED_MAX:
            _refuse(LIST_FIELD, faults.too_many_revoked(REVOKED_MAX), "count")
        entries += [revocation_entry(issuer.public_key, _serial(revoked.serial_number)) for revoked in crl]
        parts[key] = {
            "crl_number": number,
            "this_update": _iso_format(crl.last_update_utc),
            "next_update": None if crl.next_update_utc is None else _iso_format(crl.next_update_utc),
            "count": len(crl),
        }
    return RevocationList(revoked=Revoked.of(entries).as_bytes, parts=parts)


def summary_of(parts: Collection[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the summary of several revocation lists; `crl_number` is None for more than one."""
    updates = [part["next_update"] for part in parts if part["next_update"] is not None]
    return {
        "crl_number": next(iter(parts))["crl_number"] if len(parts) == 1 else None,
        "this_update": min(part["this_update"] for part in parts),
        "next_update": min(updates, default=None),
        "count": sum(part["count"] for part in parts),
    }


def server_certificate(pem: str, key_pem: str, password: bytes, now: datetime) -> ServerCertificate:
    """Returns a route's checked certificate with its intermediate certificates in order, and its private key encrypted
    with `password`.
    """
    _require_size(key_pem, KEY_FIELD, PRIVATE_KEY_BYTES_MAX)
    chain = _certificates(pem, CERTIFICATE_FIELD, SERVER_CHAIN_BYTES_MAX, SERVER_CHAIN_MAX)
    leaf = chain[0]
    _require_strong(leaf, faults.THE_CERTIFICATE, CERTIFICATE_FIELD, is_authority=False)
    key = _private_key(key_pem, leaf)
    for number, (certificate, issuer) in enumerate(pairwise(chain), start=1):
        if not _is_issued_by(certificate, issuer):
            _refuse(CERTIFICATE_FIELD, faults.chain_order(faults.certificate(number)), "chain_order")
    for number, certificate in enumerate(chain, start=1):
        _require_valid_now(certificate, faults.certificate(number), CERTIFICATE_FIELD, now)
    names = _host_names(leaf)
    if not names:
        _refuse(CERTIFICATE_FIELD, faults.NO_NAMES, "names")
    usage = _extension(leaf, ExtensionOID.EXTENDED_KEY_USAGE)
    if usage is not None and not {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE} & set(
        usage
    ):
        _refuse(CERTIFICATE_FIELD, faults.NOT_FOR_SERVERS, "usage")
    try:
        issued_by = _truncated(leaf.issuer.rfc4514_string())
    except _PARSE_ERRORS:
        _refuse(CERTIFICATE_FIELD, faults.UNREADABLE_CERTIFICATE, "pem")
    encrypted = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password))
    return ServerCertificate(
        pem=_as_pem(chain),
        encrypted_key_pem=encrypted.decode(),
        summary={
            "subject": _name_text(_parse_certificate(leaf, CERTIFICATE_FIELD).subject),
            "issuer": issued_by,
            "not_before": _iso_format(leaf.not_valid_before_utc),
            "not_after": _iso_format(min(certificate.not_valid_after_utc for certificate in chain)),
            "fingerprint_sha256": leaf.fingerprint(SHA256()).hex(),
            "names": names[:_NAMES_SHOWN_MAX],
        },
    )


def _private_key(pem: str, leaf: x509.Certificate) -> PrivateKeyTypes:
    """Returns the private key of a certificate. The lengths of its parts are checked before OpenSSL validates them:
    that takes minutes for very long primes.
    """
    try:
        key = load_pem_private_key(pem.encode(), password=None, unsafe_skip_rsa_key_validation=True)
    except TypeError:
        _refuse(KEY_FIELD, faults.ENCRYPTED_KEY, "encrypted")
    except _PARSE_ERRORS:
        _refuse(KEY_FIELD, faults.UNREADABLE_KEY, "pem")
    if _public_key_bytes(key.public_key()) != _public_key_bytes(leaf.public_key()):
        _refuse(KEY_FIELD, faults.KEY_MISMATCH, "key_mismatch")
    if not isinstance(key, rsa.RSAPrivateKey):
        return key
    try:
        if not _has_short_parts(key.private_numbers()):
            raise ValueError
        return load_pem_private_key(pem.encode(), password=None)
    except _PARSE_ERRORS:
        _refuse(KEY_FIELD, faults.UNREADABLE_KEY, "pem")


def _has_short_parts(numbers: rsa.RSAPrivateNumbers) -> bool:
    """True if the key has two primes of at most half the key's length, and no longer part."""
    primes, other_parts = (numbers.p, numbers.q), (numbers.d, numbers.dmp1, numbers.dmq1, numbers.iqmp)
    are_primes_short = all(prime.bit_length() <= RSA_BITS_MAX // 2 for prime in primes)
    return are_primes_short and all(part.bit_length() <= RSA_BITS_MAX for part in other_parts)


def _certificates(pem: str, field: str, bytes_max: int, count_max: int) -> list[x509.Certificate]:
    _require_size(pem, field, bytes_max)
    if _PRIVATE_KEY_LABEL in pem:
        _refuse(field, faults.CONTAINS_PRIVATE_KEY, "private_key")
    try:
        certificates = x509.load_pem_x509_certificates(pem.encode())
    except _PARSE_ERRORS:
        _refuse(field, faults.NO_CERTIFICATE, "pem")
    if len(certificates) > count_max:
        _refuse(field, faults.too_many_certificates(len(certificates), count_max), "count")
    return certificates


def _require_size(text: str, field: str, bytes_max: int) -> None:
    if len(text.encode(errors="replace")) > bytes_max:
        _refuse(field, faults.too_long(bytes_max), "too_long")


def _parse_certificate(certificate: x509.Certificate, field: str) -> Certificate:
    try:
        return read_certificate(certificate.public_bytes(Encoding.DER))
    except ValueError:
        _refuse(field, faults.UNREADABLE_CERTIFICATE, "pem")


def _is_authority(certificate: x509.Certificate) -> bool:
    basic = _extension(certificate, ExtensionOID.BASIC_CONSTRAINTS)
    usage = _extension(certificate, ExtensionOID.KEY_USAGE)
    return basic is not None and basic.ca and (usage is None or usage.key_cert_sign)


def _require_valid_now(certificate: x509.Certificate, label: str, field: str, now: datetime) -> None:
    if certificate.not_valid_after_utc <= now:
        _refuse(field, faults.expired(label, _iso_format(certificate.not_valid_after_utc)), "expired")
    if certificate.not_valid_before_utc > now + CLOCK_SKEW:
        _refuse(field, faults.not_yet(label, _iso_format(certificate.not_valid_before_utc)), "not_yet")


def _require_strong(certificate: x509.Certificate, label: str, field: str, *, is_authority: bool) -> None:
    """Refuses a key that OpenSSL would refuse in every handshake, or that takes too long to use."""
    try:
        key: Any = certificate.public_key()
    except _PARSE_ERRORS:
        key = None
    if isinstance(key, rsa.RSAPublicKey):
        bits_max = RSA_BITS_MAX * 2 if is_authority else RSA_BITS_MAX
        if not RSA_BITS_MIN <= key.key_size <= bits_max:
            _refuse(field, faults.key_size(label, key.key_size, RSA_BITS_MIN, bits_max), "key_size")
    elif not (isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, _CURVES)):
        _refuse(field, faults.key_kind(label), "key_kind")


def _signer(crl: x509.CertificateRevocationList, authorities: Sequence[x509.Certificate]) -> x509.Certificate:
    for extension in crl.extensions:
        if isinstance(extension.value, x509.DeltaCRLIndicator):
            _refuse(LIST_FIELD, faults.DELTA_LIST, "delta")
        if isinstance(extension.value, x509.IssuingDistributionPoint) and (
            extension.value.indirect_crl or extension.value.only_some_reasons
        ):
            _refuse(LIST_FIELD, faults.PARTIAL_LIST, "partial")
    for authority in authorities:
        usage = _extension(authority, ExtensionOID.KEY_USAGE)
        if authority.subject != crl.issuer or (usage is not None and not usage.crl_sign):
            continue
        key = authority.public_key()
        assert isinstance(key, rsa.RSAPublicKey | ec.EllipticCurvePublicKey), "authorities are checked at upload"
        if crl.is_signature_valid(key):
            return authority
    raise Invalid.at(LIST_FIELD, faults.signer(_truncated(crl.issuer.rfc4514_string())), code="signer")


def _crl_number(crl: x509.CertificateRevocationList) -> int:
    try:
        return crl.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
    except x509.ExtensionNotFound:
        return 0


def _serial(number: int) -> bytes:
    """Returns a serial number in DER."""
    return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)


def _is_issued_by(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


def _host_names(certificate: x509.Certificate) -> list[str]:
    names = _extension(certificate, ExtensionOID.SUBJECT_ALTERNATIVE_NAME)
    if names is None:
        return []
    return [
        *map(_truncated, names.get_values_for_type(x509.DNSName)),
        *map(str, names.get_values_for_type(x509.IPAddress)),
    ]


def _extension(certificate: x509.Certificate, oid: x509.ObjectIdentifier) -> Any:
    """Returns the value of an extension, or None if it is missing or malformed."""
    try:
        return certificate.extensions.get_extension_for_oid(oid).value
    except (x509.ExtensionNotFound, *_PARSE_ERRORS):
        return None


def _authority_key(certificate: Certificate) -> str:
    return authority_key(certificate.subject, certificate.public_key).hex()


def _name_text(subject: bytes) -> str:
    return _truncated(distinguished_name(subject))


def _truncated(text: str) -> str:
    return text if len(text) <= _NAME_CHARS_SHOWN_MAX else f"{text[:_NAME_CHARS_SHOWN_MAX]}…"


def _iso_format(instant: datetime) -> str:
    return instant.isoformat().replace("+00:00", "Z")


def _public_key_bytes(key: Any) -> bytes:
    return bytes(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))


def _as_pem(certificates: Sequence[x509.Certificate]) -> str:
    """Returns the certificates as PEM, without any text between them."""
    return "".join(certificate.public_bytes(Encoding.PEM).decode() for certificate in certificates)


def _refuse(field: str, detail: str, code: str) -> NoReturn:
    raise Invalid.at(field, detail, code=code)
