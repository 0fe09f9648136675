"""Identities of a run's clients: a user with a password or a certificate; and the ways to revoke them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from brokers.contract.certificates import CertificatesDocument
from instances.routes.certificate_entries import Revoked, revocation_entry
from instances.routes.x509 import Certificate, read_certificate
from tests.testkit.client_certificates import Authority
from tests.testkit.engine import EngineCluster, TestInstance
from tests.testkit.users import alter_users, user_addition

# User of the workloads.
USER: Final = "load"
ITERATIONS: Final = 4_096

# A change, which is repeated until none of the returned futures fails.
Change = Callable[[], Mapping[Any, Any]]


class Identities(ABC):
    """Identities of one kind. `revocations` are the ways to revoke an identity, by name; each takes the user's name.
    `ca_file` is the authority that clients trust.
    """

    revocations: Mapping[str, Callable[[str], Mapping[Any, Any]]]

    @abstractmethod
    def create(self, name: str) -> Mapping[Any, Any]:
        """Creates an identity; `settings` work from then on."""

    @abstractmethod
    def settings(self, name: str) -> dict[str, Any]:
        """Returns settings for confluent-kafka."""

    @abstractmethod
    def principal(self, name: str) -> str:
        """Returns the principal in access rules."""

    @abstractmethod
    def remove(self, name: str) -> Mapping[Any, Any]:
        """Removes all traces of an identity, which may be gone already."""


@dataclass
class Passwords(Identities):
    """Users of SCRAM-SHA-256 behind TLS."""

    cluster: EngineCluster
    instance: TestInstance
    owner: AdminClient
    ca_file: str

    def __post_init__(self) -> None:
        self.revocations = {"user removed": self.remove, "another password": lambda name: self._upsert(name, "another")}
        alter_users(self.cluster, self.instance, user_addition(USER, _password(USER), instance_id=self.instance.id))

    def create(self, name: str) -> Mapping[Any, Any]:
        return self._upsert(name, _password(name))

    def settings(self, name: str) -> dict[str, Any]:
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": self.ca_file,
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": name,
            "sasl.password": _password(name),
        }

    def principal(self, name: str) -> str:
        return f"User:{name}"

    def remove(self, name: str) -> Mapping[Any, Any]:
        deletion = UserScramCredentialDeletion(name, ScramMechanism.SCRAM_SHA_256)
        return self.owner.alter_user_scram_credentials([deletion])

    def _upsert(self, name: str, password: str) -> Mapping[Any, Any]:
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, ITERATIONS)
        return self.owner.alter_user_scram_credentials([UserScramCredentialUpsertion(name, info, password.encode())])


@dataclass
class Certificates(Identities):
    """Clients of an mTLS route, signed by an authority of the tenant's, which revokes them."""

    cluster: EngineCluster
    instance: TestInstance
    ca_file: str
    directory: Path
    authority: Authority = field(default_factory=lambda: Authority.make("Chaos clients CA"))
    revoked: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.revocations = {"certificate revoked": self._revoke}
        self.directory.mkdir(parents=True, exist_ok=True)
        self.create(USER)
        self._publish()

    def create(self, name: str) -> Mapping[Any, Any]:
        self.authority.client(self.directory, name)
        return {}

    def settings(self, name: str) -> dict[str, Any]:
        own_file = str(self.directory / f"{name}.pem")
        return {
            "security.protocol": "SSL",
            "ssl.ca.location": self.ca_file,
            "ssl.certificate.location": own_file,
            "ssl.key.location": own_file,
        }

    def principal(self, name: str) -> str:
        return f"User:CN={name}"

    def remove(self, name: str) -> Mapping[Any, Any]:
        """Does nothing: a certificate without rights needs no removal."""
        return {}

    def _revoke(self, name: str) -> Mapping[Any, Any]:
        if name not in self.revoked:
            self.revoked.append(name)
        self._publish()
        return {}

    def _publish(self) -> None:
        issuer = _parts(self.authority.certificate).public_key
        entries = [
            revocation_entry(issuer, _parts(self.authority.certificates_by_name[name]).serial) for name in self.revoked
        ]
        document = CertificatesDocument(client_ca_pem=self.authority.pem, revoked=Revoked.of(entries).as_bytes)
        self.cluster.put_certificates(self.instance, document)


def _parts(certificate: x509.Certificate) -> Certificate:
    return read_certificate(certificate.public_bytes(Encoding.DER))


def _password(name: str) -> str:
    return f"{name}-secret"
