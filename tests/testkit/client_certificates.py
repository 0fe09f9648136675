"""Authorities of clients: certificates, lists of revoked ones, and what a client needs of them.

ca = Authority.make("Acme CA")
file = ca.client(tmp_path, "alice")                     # key and certificate, as PEM in one file
ca.revoke([file]) -> the list as PEM
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

NOW = datetime.now(UTC)
DAY = timedelta(days=1)
Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


def name_of(common_name: str, **others: str) -> x509.Name:
    """Returns a name with the common name last; `others` are attributes by their names in `NameOID`."""
    attributes = [x509.NameAttribute(getattr(NameOID, key.upper()), value) for key, value in others.items()]
    return x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def key_pem(key: Any) -> str:
    return str(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode())


def pem_of(certificate: x509.Certificate | x509.CertificateRevocationList) -> str:
    return certificate.public_bytes(Encoding.PEM).decode()


def sign(
    subject: x509.Name,
    public_key: Any,
    issuer: x509.Name,
    issuer_key: Key,
    *,
    is_ca: bool = False,
    not_before: datetime = NOW - DAY,
    not_after: datetime = NOW + 365 * DAY,
    names: Iterable[str] = (),
    serial: int = 0,
) -> x509.Certificate:
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(serial or x509.random_serial_number())
        .not_valid_before(not_before)
        .not_valid_after(not_after)
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
    )
    if names:
        alternatives = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
        builder = builder.add_extension(alternatives, critical=False)
    return builder.sign(issuer_key, hashes.SHA256())


@dataclass
class Authority:
    """A certificate authority. `above` has the certificates between it and its root, its own first."""

    name: x509.Name
    key: Key
    certificate: x509.Certificate
    intermediates: Sequence[x509.Certificate] = ()
    certificates_by_name: dict[str, x509.Certificate] = field(default_factory=dict)

    @classmethod
    def make(cls, common_name: str, key: Key | None = None, **times: datetime) -> Authority:
        key = key or ec.generate_private_key(ec.SECP256R1())
        name = name_of(common_name)
        return cls(name, key, sign(name, key.public_key(), name, key, is_ca=True, **times))

    @property
    def pem(self) -> str:
        return pem_of(self.certificate)

    def below(self, common_name: str) -> Authority:
        """Creates an authority that this one signs."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = name_of(common_name)
        certificate = sign(name, key.public_key(), self.name, self.key, is_ca=True)
        return Authority(name, key, certificate, (certificate, *self.intermediates))

    def client(self, directory: Path, common_name: str, subject: x509.Name | None = None, **times: datetime) -> Path:
        """Writes a file with key and certificate of a client, and the intermediate certificates."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = sign(subject or name_of(common_name), key.public_key(), self.name, self.key, **times)
        self.certificates_by_name[common_name] = certificate
        file = directory / f"{common_name}.pem"
        file.write_text(key_pem(key) + pem_of(certificate) + "".join(map(pem_of, self.intermediates)))
        return file

    def server(self, *names: str, **times: datetime) -> tuple[str, str]:
        """Returns a certificate for these hosts, and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = sign(name_of(names[0]), key.public_key(), self.name, self.key, names=names, **times)
        return pem_of(certificate), key_pem(key)

    def revoked(
        self,
        *common_names: str,
        number: int | None = 1,
        next_update: datetime = NOW + DAY,
        serials: Iterable[int] = (),
        extensions: Iterable[x509.ExtensionType] = (),
    ) -> str:
        """Returns a revocation list of these clients, and of further serial numbers."""
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self.name)
            .last_update(NOW - 2 * DAY)
            .next_update(next_update)
        )
        if number is not None:
            builder = builder.add_extension(x509.CRLNumber(number), critical=False)
        for extension in extensions:
            builder = builder.add_extension(extension, critical=True)
        for serial in (*(self.certificates_by_name[name].serial_number for name in common_names), *serials):
            entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(NOW - DAY).build()
            builder = builder.add_revoked_certificate(entry)
        return pem_of(builder.sign(self.key, hashes.SHA256()))


def client_tls(authority: Path, file: Path | None, version: ssl.TLSVersion | None = None) -> ssl.SSLContext:
    """Returns a context that trusts `ca.pem` of a directory, and shows the certificate in `file`."""
    context = ssl.create_default_context(cafile=authority / "ca.pem")
    if version is not None:
        context.minimum_version = context.maximum_version = version
    if file is not None:
        context.load_cert_chain(file)
    return context
