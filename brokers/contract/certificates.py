"""Certificates of a route as stored in ZooKeeper for the brokers, beside the instance's document."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from dataclasses import dataclass

from instances.routes.certificate_entries import ENTRY_BYTES, ROUTE_KEYS_FILE

__all__ = ["ROUTE_KEYS_FILE", "CertificatesDocument"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificatesDocument:
    """Document at `/ckafka/instances/<id>/certificates/<route>`.

    Without `client_ca_pem` no client certificate is accepted. `revoked` has the encoding of
    `certificate_entries.Revoked`. `private_key_pem` is an encrypted PEM key, whose password is in ROUTE_KEYS_FILE.
    Without `certificate_pem` a broker presents its own certificate.
    """

    client_ca_pem: str = ""
    revoked: bytes = b""
    certificate_pem: str = ""
    private_key_pem: str = ""

    def __repr__(self) -> str:
        return f"CertificatesDocument(revoked={len(self.revoked) // ENTRY_BYTES})"

    @property
    def is_empty(self) -> bool:
        return not (self.client_ca_pem or self.revoked or self.certificate_pem)

    def to_json(self) -> bytes:
        body = {
            "version": 1,
            "client_ca_pem": self.client_ca_pem,
            "revoked": b64encode(self.revoked).decode(),
            "certificate_pem": self.certificate_pem,
            "private_key_pem": self.private_key_pem,
        }
        return json.dumps(body, separators=(",", ":"), sort_keys=True).encode()

    @classmethod
    def from_json(cls, raw: bytes) -> CertificatesDocument:
        """Decodes a document. `revoked` has no default: without it no certificate may be accepted."""
        body = json.loads(raw)
        revoked = b64decode(body["revoked"], validate=True)
        if len(revoked) % ENTRY_BYTES:
            raise ValueError("the list of revoked certificates is truncated")
        return cls(
            client_ca_pem=body.get("client_ca_pem", ""),
            revoked=revoked,
            certificate_pem=body.get("certificate_pem", ""),
            private_key_pem=body.get("private_key_pem", ""),
        )
