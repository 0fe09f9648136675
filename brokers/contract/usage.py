"""The usage event: one record of `__usage` is one cumulative counter of one broker incarnation.

Cumulative since that incarnation began, so a lost or repeated record changes nothing: the last one tells the whole
story. What counts (PRODUCT.md 6): produce = record-batch bytes the leader accepted; consume = record-batch bytes
written to the socket.

Levels are counters as well: byte-hours stored by all replicas of the partitions a broker leads, seconds of those
partitions, and the most connections of each hour. They have no topic, user or client id.
"""

from __future__ import annotations

import builtins
import json
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

USAGE_TOPIC = "__usage"
USAGE_INTERVAL_MS = 10_000
VERSION = 1
LEVEL_INTERVAL_MS = 60_000
Direction = Literal["produce", "consume"]
Level = Literal["stored", "partitions", "connections"]
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)
COUNTED_THINGS: tuple[Direction | Level, ...] = (*DIRECTIONS, *get_args(Level))

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
    wall time. `direction` says what is counted. `bytes` is how much: bytes, or a level's unit.
    """

    broker_id: int
    broker_epoch: int
    sequence: int
    at_ms: int
    instance_id: str
    topic: str
    user: str
    client_id: str
    direction: Direction | Level
    bytes: int
    requests: int

    def values(self) -> list[Any]:
        """What it says, in the order of `FIELD_NAMES`."""
        return [getattr(self, name) for name in FIELD_NAMES]

    def to_json(self) -> builtins.bytes:
        return json.dumps([VERSION, *self.values()], separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, raw: builtins.bytes) -> UsageEvent:
        version, *values = json.loads(raw)
        if version != VERSION:
            raise ValueError(f"usage event of unknown version {version!r}")
        return cls(**dict(zip(FIELD_NAMES, values, strict=False)))


# The order of the fields is the order of the values in a record. Tables and Spark's schema are made of these names
# (`billing.pipeline.schema`).
FIELD_NAMES = tuple(field.name for field in fields(UsageEvent))
# What a counter has counted, and which report says so; the other fields name the counter.
COUNTED = ("bytes", "requests")
OF_REPORT = ("sequence", "at_ms")
COUNTER_KEY = tuple(name for name in FIELD_NAMES if name not in (*COUNTED, *OF_REPORT))
OF_INCARNATION = ("broker_id", "broker_epoch")
