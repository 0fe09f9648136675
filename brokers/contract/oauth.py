"""OAuth configuration of an instance: the issuer whose tokens brokers accept, and the keys that verify them.

The control plane writes the document, fetches the keys, and writes it again when these change.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from instances.oauth.key_sets import PublicKey
from instances.oauth.limits import DEFAULT_CLOCK_SKEW_S, DEFAULT_PRINCIPAL_CLAIM

# The only node below `paths.instance_oauth`.
CONFIGURATION: Final = "configuration"
# Interval between a broker's requests to the control plane to fetch the keys of one instance again.
KEY_REQUEST_INTERVAL_MS: Final = 15_000


class OAuthTerms(NamedTuple):
    """The settings against which a token was verified. A connection is closed when they change."""

    issuer: str
    audience: str
    principal_claim: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthDocument:
    """Document at `/ckafka/instances/<id>/oauth/configuration`.

    `is_fetched` is True if the keys come from a URL, so that an unknown key may have been added there.
    """

    issuer: str
    audience: str
    principal_claim: str = DEFAULT_PRINCIPAL_CLAIM
    clock_skew_s: int = DEFAULT_CLOCK_SKEW_S
    keys: tuple[PublicKey, ...] = ()
    is_fetched: bool = False
    # Hash of the document as it was read.
    fingerprint: bytes = field(default=b"", compare=False, repr=False)

    @property
    def terms(self) -> OAuthTerms:
        return OAuthTerms(self.issuer, self.audience, self.principal_claim)

    def to_json(self) -> bytes:
        body = {
            "version": 1,
            "issuer": self.issuer,
            "audience": self.audience,
            "principal_claim": self.principal_claim,
            "clock_skew_s": self.clock_skew_s,
            "keys": [key.to_body() for key in self.keys],
            "is_fetched": self.is_fetched,
        }
        return json.dumps(body, separators=(",", ":"), sort_keys=True).encode()

    @classmethod
    def from_json(cls, raw: bytes) -> OAuthDocument:
        body = json.loads(raw)
        return cls(
            # Without a default: if these are unknown, no token may be accepted.
            issuer=body["issuer"],
            audience=body["audience"],
            principal_claim=body["principal_claim"],
            clock_skew_s=body.get("clock_skew_s", DEFAULT_CLOCK_SKEW_S),
            keys=tuple(map(PublicKey.from_body, body.get("keys", ()))),
            is_fetched=bool(body.get("is_fetched", False)),
            fingerprint=hashlib.sha256(raw).digest(),
        )
