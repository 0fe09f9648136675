"""Files of a host that joined: the control plane's address, and the agent's key and certificate.

The key is generated here and never leaves the host. All files are readable by their owner only.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from brokers.agent.joined.client import ApiClient, ApiRefused, ControlPlaneAddress, Signer
from brokers.contract.agent_requests import AUTHORITY_PATH, JOIN_PATH, MEMBERSHIP_FILE, agent_uri, serial_text
from brokers.infra.certificates import write_private
from brokers.infra.request_signatures import (
    fingerprint,
    key_pem,
    load_key,
    new_key,
    request_pem,
    require_certificate,
    serial_of,
)

CERTIFICATE_FILE: Final = "agent.pem"
AUTHORITY_FILE: Final = "authority.pem"
DOCUMENT_FILE: Final = "wanted.json"


class NotJoined(Exception):
    """The host cannot join, or has not joined; the text says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedHost:
    """Membership of this host, as stored in a directory of the agent's state."""

    url: str
    host_id: str
    host_name: str
    # Fingerprint of the authority that the operator required; "" if none.
    ca_sha256: str
    # Digest of the token that was used, so that the same command line may be run again.
    token_sha256: str

    @classmethod
    def read(cls, directory: Path) -> JoinedHost | None:
        """Returns the membership; None if the host has not joined. Raises `NotJoined` if the files are damaged."""
        file = directory / MEMBERSHIP_FILE
        if not file.exists():
            return None
        try:
            return cls(**json.loads(file.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise NotJoined(f"{file} cannot be read ({error}). Join again with a new token.") from error

    @property
    def address(self) -> ControlPlaneAddress:
        return ControlPlaneAddress.parse(self.url)


def read_signer(directory: Path) -> Signer:
    """Returns the agent's key and the serial number of its certificate. Raises `NotJoined`."""
    file = directory / CERTIFICATE_FILE
    try:
        pem = file.read_bytes()
        return Signer(load_key(pem), serial_text(serial_of(pem)))
    except (OSError, ValueError) as error:
        raise NotJoined(f"{file} cannot be read ({error}). Join again with a new token.") from error


def join(directory: Path, *, url: str, token: str, ca_sha256: str = "", host_name: str = "") -> JoinedHost:
    """Joins this host with a token, which is thereby used up. Does nothing if it has joined with the same token.

    Raises `NotJoined`.
    """
    digest = hashlib.sha256(token.encode()).hexdigest()
    existing = JoinedHost.read(directory)
    if existing is not None and existing.token_sha256 == digest:
        return existing
    wanted_sha256 = ca_sha256.replace(":", "").lower()
    key = new_key()
    try:
        client = ApiClient(ControlPlaneAddress.parse(url))
        try:
            if wanted_sha256:
                _require_authority(client.call("GET", AUTHORITY_PATH).body, wanted_sha256)
            body = {"token": token, "csr_pem": request_pem(key, host_name or "agent")}
            # A request whose answer is lost uses the token up; with this key it can be repeated.
            idempotency_key = uuid.uuid4().hex
            membership = client.call(
                "POST", JOIN_PATH, body | ({"host": host_name} if host_name else {}), idempotency_key=idempotency_key
            ).body
        finally:
            client.close()
        if wanted_sha256:
            _require_authority(membership, wanted_sha256)
        certificate, authority = str(membership["certificate_pem"]), str(membership["authority_pem"])
        host_id = str(membership["host_id"])
        require_certificate(certificate, authority_pem=authority, key=key, uri=agent_uri(host_id))
    except ApiRefused as refusal:
        raise NotJoined(f"{url} refuses: {refusal}") from refusal
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise NotJoined(f"{url}: {error or type(error).__name__}") from error
    joined = JoinedHost(
        url=url, host_id=host_id, host_name=str(membership["host_name"]), ca_sha256=wanted_sha256, token_sha256=digest
    )
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    (directory / DOCUMENT_FILE).unlink(missing_ok=True)
    write_private(directory / AUTHORITY_FILE, authority.encode())
    write_private(directory / CERTIFICATE_FILE, key_pem(key) + certificate.encode())
    write_private(directory / MEMBERSHIP_FILE, json.dumps(asdict(joined)).encode())
    return joined


def _require_authority(body: Any, required_sha256: str) -> None:
    sha256 = fingerprint(str(body["authority_pem"]).encode())
    if sha256 != required_sha256:
        raise ValueError(f"its authority is {sha256}, not the one of --ca-sha256.")
