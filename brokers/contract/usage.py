"""The usage event: one record of `__usage` is one cumulative counter of one broker incarnation.

Cumulative since that incarnation began, so a lost or repeated record changes nothing: the last one tells the whole
story. What counts (PRODUCT.md 6): produce = record-batch bytes the leader accepted; consume = record-batch bytes
written to the socket.
"""

from __future__ import annotations

import builtins
import json
from dataclasses import dataclass
from typing import Literal

USAGE_TOPIC = "__usage"
USAGE_INTERVAL_MS = 10_000
Direction = Literal["produce", "consume"]

# More distinct (topic, user, client id) keys than this in one instance on one broker are counted under OTHER: a client
# that invents client ids cannot make the broker grow.
USAGE_KEYS_PER_INSTANCE_MAX = 10_000
OTHER = "(other)"

# Longest name that is counted by; a client chooses its client id freely, memory and tables do not grow with it.
NAME_CHARACTERS_MAX = 249


def counted_name(name: str) -> str:
    """What `name` is counted under: no NUL, no lone surrogates, bounded length. Two names that come to the same share a
    counter from the beginning, since of two counters under one name readers would take the larger for the whole.
    """
    return name.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()[:NAME_CHARACTERS_MAX]


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageEvent:
    """`sequence` grows by one per report of the broker incarnation (`broker_id`, `broker_epoch`); `at_ms` is its
    wall time.
    """

    broker_id: int
    broker_epoch: int
    sequence: int
    at_ms: int
    instance_id: str
    topic: str
    user: str
    client_id: str
    direction: Direction
    bytes: int
    requests: int

    def to_json(self) -> builtins.bytes:
        return json.dumps(
            [
                1,
                self.broker_id,
                self.broker_epoch,
                self.sequence,
                self.at_ms,
                self.instance_id,
                self.topic,
                self.user,
                self.client_id,
                self.direction,
                self.bytes,
                self.requests,
            ],
            separators=(",", ":"),
        ).encode()

    @classmethod
    def from_json(cls, raw: builtins.bytes) -> UsageEvent:
        version, *values = json.loads(raw)
        if version != 1:
            raise ValueError(f"usage event of unknown version {version!r}")
        names = (
            "broker_id", "broker_epoch", "sequence", "at_ms", "instance_id", "topic", "user", "client_id",
            "direction", "bytes", "requests",
        )  # fmt: skip
        return cls(**dict(zip(names, values, strict=False)))
