"""Requests of agents that joined by a token: their paths, and the form of their signature (decision 163).

An agent signs each request with the key of its certificate. `sequence` is the time in microseconds, and grows with each
request of a host, so that a request is accepted only once.
"""

from __future__ import annotations

import hashlib
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from typing import Final

JOIN_PATH: Final = "/api/v1/agent/join"
AUTHORITY_PATH: Final = "/api/v1/agent/authority"
WANTED_PATH: Final = "/api/v1/agent/wanted"
REPORT_PATH: Final = "/api/v1/agent/report"
CERTIFICATES_PATH: Final = "/api/v1/agent/certificates"

# File of a host that has joined, in the directory of its agent.
MEMBERSHIP_FILE: Final = "joined.json"

SCHEME: Final = "Penstock-Agent"
# Time of the control plane in milliseconds, in each of its answers to an agent.
TIME_HEADER: Final = "Penstock-Time-Ms"
# Version of the document with the wanted state of a host.
DOCUMENT_VERSION: Final = 1
# Length of the id of a report. A report that is sent again has the same id, and is stored once.
REPORT_ID_CHARS_MAX: Final = 32
# Prefix of the identity in an agent's certificate. It is not below `urn:penstock:`, so that brokers do not accept an
# agent as a process of the installation.
AGENT_URI: Final = "urn:penstock-agent:"
# Extended key usage of an agent's certificate, an OID made from a random UUID. It is the only one, so that the
# certificate is not valid for a TLS server or client.
SIGNS_REQUESTS_OID: Final = "2.25.204127713419038161527390446159017313441"

_SIGNED_AS: Final = "penstock-agent-1"
_FIELDS: Final = re.compile(
    r"serial=([0-9a-f]{1,40}),sequence=([0-9]{1,18}),signature=([A-Za-z0-9_-]{1,200}={0,2})", re.ASCII
)


class Purpose:
    """Purposes for which an agent may ask for a certificate."""

    AGENT: Final = "agent"
    INTERNAL: Final = "internal"
    ROUTES: Final = "routes"
    ALL: Final = (AGENT, INTERNAL, ROUTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCredentials:
    """Proof of a request's sender: the serial number of its certificate, a sequence number, and a signature."""

    serial: str
    sequence: int
    signature: bytes

    def header(self) -> str:
        """Returns the value of the header Authorization."""
        encoded = urlsafe_b64encode(self.signature).decode()
        return f"{SCHEME} serial={self.serial},sequence={self.sequence},signature={encoded}"

    @classmethod
    def parse(cls, header: str) -> AgentCredentials | None:
        """Returns the credentials in a header; None if it has another form."""
        scheme, _, parameters = header.partition(" ")
        match = _FIELDS.fullmatch(parameters) if scheme == SCHEME else None
        if match is None:
            return None
        try:
            signature = urlsafe_b64decode(match[3])
        except ValueError:
            return None
        return cls(serial=match[1], sequence=int(match[2]), signature=signature)


def signed_text(*, method: str, target: str, sequence: int, body: bytes) -> bytes:
    """Returns the text that is signed: `target` is path and query."""
    digest = hashlib.sha256(body).hexdigest()
    return "\n".join((_SIGNED_AS, method, target, str(sequence), digest)).encode()


def agent_uri(host_id: str) -> str:
    return f"{AGENT_URI}{host_id}"


def serial_text(number: int) -> str:
    return f"{number:x}"
