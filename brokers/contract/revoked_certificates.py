"""Document of brokers' certificates that are not accepted any more (decision 168), which the control plane writes.

It has dates of issue instead of serial numbers: one date for each broker, however many certificates its host had, and
it also applies to certificates that are recorded nowhere.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from brokers.contract.process_identity import ProcessIdentity, broker

VERSION: Final = 1
# Certificates are valid from this long before their issue, for clocks that are behind.
ISSUED_BEFORE_S: Final = 3_600


@dataclass(frozen=True, slots=True)
class RevokedCertificates:
    """Dates of issue (in seconds since 1970) by broker id: earlier certificates of the broker are not accepted."""

    valid_from_s: Mapping[int, int] = field(default_factory=dict)

    def to_json(self) -> bytes:
        """Encodes the document at `paths.REVOKED_CERTIFICATES`."""
        brokers = {str(id): date_s for id, date_s in sorted(self.valid_from_s.items())}
        return json.dumps({"version": VERSION, "valid_from_s": brokers}, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, raw: bytes) -> RevokedCertificates:
        """Decodes the document. Raises `ValueError`, `KeyError`, `TypeError` or `AttributeError`."""
        dates = json.loads(raw)["valid_from_s"]
        return cls({int(id): int(date_s) for id, date_s in dates.items()})

    def include(self, cluster_id: str, process: ProcessIdentity | None, certificate: Mapping[str, Any]) -> bool:
        """True if a verified certificate (`ssl.SSLSocket.getpeercert`) of a process is revoked."""
        if process is None or not self.valid_from_s:
            return False
        for id, date_s in self.valid_from_s.items():
            if process == broker(cluster_id, id):
                return issued_at_s(certificate) < date_s
        return False


def issued_at_s(certificate: Mapping[str, Any]) -> int:
    """Returns the date of issue of a verified certificate, in seconds since 1970."""
    return int(ssl.cert_time_to_seconds(certificate["notBefore"])) + ISSUED_BEFORE_S
