"""Agents without a database, as a test plays them: a key, a certificate, and signed requests to the API."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from django.test import Client

from brokers.contract.agent_requests import (
    JOIN_PATH,
    REPORT_PATH,
    WANTED_PATH,
    AgentCredentials,
    serial_text,
    signed_text,
)
from brokers.infra.request_signatures import new_key, request_pem, serial_of, sign
from brokers.models import Host
from brokers.operations import joining
from tenants.actors import system_actor


def token_for(host: Host) -> str:
    """Returns a new join token of a host."""
    return joining.new_join_token(acting=system_actor("tests"), host=host).secret


def join_with(token: str, *, key: ec.EllipticCurvePrivateKey | None = None, **fields: str) -> Any:
    """Returns the answer to a join."""
    body = {"token": token, "csr_pem": request_pem(key or new_key(), "agent"), **fields}
    return Client().post(JOIN_PATH, json.dumps(body), content_type="application/json")


@dataclass
class SigningAgent:
    """Sender of signed requests; `sequence` is that of the last one."""

    key: ec.EllipticCurvePrivateKey
    serial: str
    sequence: int = field(default=0)

    @classmethod
    def of(cls, host: Host) -> SigningAgent:
        """Joins with a new token."""
        key = new_key()
        answer = join_with(token_for(host), key=key)
        assert answer.status_code == 201, answer.content
        return cls(key, serial_text(serial_of(answer.json()["certificate_pem"].encode())))

    def header(self, method: str, path: str, content: bytes) -> str:
        """Returns the signature of a request, with the next sequence number."""
        self.sequence = max(self.sequence + 1, time.time_ns() // 1_000)
        return self.header_with(self.sequence, method, path, content)

    def header_with(self, sequence: int, method: str, path: str, content: bytes) -> str:
        text = signed_text(method=method, target=path, sequence=sequence, body=content)
        return AgentCredentials(serial=self.serial, sequence=sequence, signature=sign(self.key, text)).header()

    def get(self, path: str = WANTED_PATH, *, tag: str = "") -> Any:
        return Client().get(path, headers={"Authorization": self.header("GET", path, b""), "If-None-Match": tag})

    def post(self, path: str, body: Any) -> Any:
        content = json.dumps(body).encode()
        return send(path, content, self.header("POST", path, content))

    def report(self, *brokers: dict[str, Any], **more: Any) -> Any:
        return self.post(REPORT_PATH, {"agent_version": "0.1.0", "brokers": list(brokers), **more})


def send(path: str, content: bytes, signature: str) -> Any:
    """Posts a body with a signature that is given."""
    return Client().post(path, content, content_type="application/json", headers={"Authorization": signature})
