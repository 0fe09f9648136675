"""Creates the certificate authority of an installation, and issues the certificates of its brokers (`secrets/tls/`).

Clients get `ca.pem`. A broker reads its key and its certificate from one file, which is replaced atomically, so that
both always match. Without the authority's key, files provided by the operator are used.
"""

from __future__ import annotations

import ipaddress
import os
import secrets
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from brokers.contract.agent_requests import SIGNS_REQUESTS_OID, agent_uri
from brokers.contract.certificates import ROUTE_KEYS_FILE
from brokers.contract.process_identity import CA_NAME, ProcessIdentity, ProcessRole
from brokers.contract.revoked_certificates import ISSUED_BEFORE_S

CA_DAYS: Final = 3_650
CERTIFICATE_DAYS: Final = 90
# A certificate is renewed when its remaining lifetime is shorter than this.
RENEWAL_DAYS: Final = 30
# Tolerated error of client clocks.
CLOCK_SKEW: Final = timedelta(seconds=ISSUED_BEFORE_S)
CA_FILE: Final = "ca.pem"
CA_KEY_FILE: Final = "ca_key.pem"
ROUTE_KEYS_BYTES: Final = 32
LOCAL_HOSTS: Final = ("localhost", "127.0.0.1")


def ensure_ca(directory: Path, now: datetime | None = None, common_name: str = "Penstock CA") -> Path:
    """Creates the authority's certificate and key if they do not exist; returns the certificate file. The key can
    impersonate any broker.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    file, key_file = directory / CA_FILE, directory / CA_KEY_FILE
    if file.exists() and file.stat().st_size:
        return file
    issued_at = now or datetime.now(UTC)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    certificate = (
        _certificate_builder(name, name, key.public_key(), issued_at, CA_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    write_private(key_file, _pem(key))
    write_private(file, certificate.public_bytes(Encoding.PEM))
    return file


def ensure_route_keys(directory: Path) -> Path:
    """Creates the encryption key for the private keys of uploaded certificates if it does not exist; returns its file.
    Web processes and brokers read it; with this file and the database those private keys can be read.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = directory / ROUTE_KEYS_FILE
    if not (file.exists() and file.stat().st_size):
        write_private(file, secrets.token_urlsafe(ROUTE_KEYS_BYTES).encode())
    return file


def ensure_certificate(
    directory: Path,
    name: str,
    hosts: Iterable[str],
    now: datetime | None = None,
    days: int = CERTIFICATE_DAYS,
    process: ProcessIdentity | None = None,
) -> Path | None:
    """Returns the file with key and certificate of the broker `name`, for clients that connect to one of `hosts`.

    Renews it if it expires soon or lacks a host. Returns None if it does not exist and there is no key of the authority
    to issue it. For a `process` the certificate has the process identity; only that of a broker is valid for servers.
    """
    file, key_file = directory / f"{name}.pem", directory / CA_KEY_FILE
    all_hosts = tuple(dict.fromkeys((*hosts, *LOCAL_HOSTS)))
    current_time = now or datetime.now(UTC)
    if not key_file.exists():
        return file if file.exists() else None
    if file.exists() and is_valid_for(file.read_bytes(), all_hosts, current_time):
        return file
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = issue_certificate(
        directory, name, key.public_key(), all_hosts, current_time, days=days, process=process
    )
    write_private(file, _pem(key) + certificate.public_bytes(Encoding.PEM))
    return file


def issue_certificate(
    directory: Path,
    name: str,
    public_key: ec.EllipticCurvePublicKey,
    hosts: Iterable[str],
    now: datetime,
    *,
    days: int = CERTIFICATE_DAYS,
    process: ProcessIdentity | None = None,
) -> x509.Certificate:
    """Returns a certificate of the authority in `directory` for a public key; see `ensure_certificate`. Raises
    `OSError` without the authority's key.
    """
    names = [*_uris(process), *map(_general_name, hosts)]
    return _sign_certificate(directory, name, public_key, now, days, _purposes(process), names)


def issue_agent_certificate(
    directory: Path, host_id: str, public_key: ec.EllipticCurvePublicKey, now: datetime
) -> x509.Certificate:
    """Returns a certificate with which an agent signs its requests, and that opens no TLS connection. Raises
    `OSError` without the authority's key.
    """
    uri = x509.UniformResourceIdentifier(agent_uri(host_id))
    purposes = [x509.ObjectIdentifier(SIGNS_REQUESTS_OID)]
    return _sign_certificate(directory, host_id, public_key, now, CERTIFICATE_DAYS, purposes, [uri])


def _sign_certificate(
    directory: Path,
    name: str,
    public_key: ec.EllipticCurvePublicKey,
    now: datetime,
    days: int,
    purposes: list[x509.ObjectIdentifier],
    names: Iterable[x509.GeneralName],
) -> x509.Certificate:
    ca = x509.load_pem_x509_certificate((directory / CA_FILE).read_bytes())
    ca_key = load_pem_private_key((directory / CA_KEY_FILE).read_bytes(), password=None)
    assert isinstance(ca_key, ec.EllipticCurvePrivateKey), "it was made here"
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    return (
        _certificate_builder(subject, ca.subject, public_key, now, days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )


def ensure_internal_ca(directory: Path, now: datetime | None = None) -> Path:
    """Creates the authority of the internal processes if it does not exist; returns its certificate file. It is not the
    authority of tenants' routes, so that no certificate of a client opens an internal port.
    """
    return ensure_ca(directory, now, CA_NAME)


def ensure_process_certificate(
    directory: Path, process: ProcessIdentity, hosts: Iterable[str] = (), now: datetime | None = None
) -> Path | None:
    """Works like `ensure_certificate`, with the internal authority."""
    return ensure_certificate(directory, process.file_name.removesuffix(".pem"), hosts, now, process=process)


def is_valid_for(pem: bytes, hosts: Iterable[str], now: datetime, *, issued_from_s: int = 0) -> bool:
    """True if a certificate is valid for `RENEWAL_DAYS` at least, names all these hosts, and was not issued before
    `issued_from_s` (seconds since 1970). False for a corrupt file.
    """
    try:
        certificate = x509.load_pem_x509_certificate(pem)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound):
        return False
    certified_hosts = {*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))}
    remaining = certificate.not_valid_after_utc - now
    if (certificate.not_valid_before_utc + CLOCK_SKEW).timestamp() < issued_from_s:
        return False
    return remaining > timedelta(days=RENEWAL_DAYS) and certified_hosts.issuperset(map(_without_brackets, hosts))


def _certificate_builder(
    subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey, now: datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _purposes(process: ProcessIdentity | None) -> list[x509.ObjectIdentifier]:
    if process is None:
        return [ExtendedKeyUsageOID.SERVER_AUTH]
    is_server = process.role is ProcessRole.BROKER
    return [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if is_server else [])]


def _uris(process: ProcessIdentity | None) -> list[x509.UniformResourceIdentifier]:
    return [] if process is None else [x509.UniformResourceIdentifier(process.uri)]


def _without_brackets(host: str) -> str:
    return host.strip("[]")


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(_without_brackets(host)))
    except ValueError:
        return x509.DNSName(host)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def write_private(file: Path, content: bytes) -> None:
    """Writes the file atomically, readable by its owner only."""
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    draft.rename(file)
