"""Signatures as Standard Webhooks has them (standardwebhooks.com): HMAC-SHA256 over `id.timestamp.body`."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Sequence

PREFIX = "whsec_"
SECRET_BYTES = 32


def new_secret() -> str:
    return PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def signature(secret: str, message_id: str, timestamp_s: int, body: bytes) -> str:
    """One entry of the header `webhook-signature`."""
    key = base64.b64decode(secret.removeprefix(PREFIX))
    signed = f"{message_id}.{timestamp_s}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


def headers(secrets_alive: Sequence[str], message_id: str, timestamp_s: int, body: bytes) -> dict[str, str]:
    """Signed with each secret that is alive: a receiver that knows one of them is served during a rotation."""
    return {
        "Content-Type": "application/json",
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp_s),
        "webhook-signature": " ".join(signature(each, message_id, timestamp_s, body) for each in secrets_alive),
    }
