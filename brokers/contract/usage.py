"""Usage events: values of cumulative counters of one broker incarnation, stored in records of `__usage`.

A record of version 1 has one event; one of version 2 has many, as columns (`usage_columns`).

Counters begin with the incarnation, so lost and repeated records do no harm: only the last one matters. Produce counts
the record-batch bytes that the leader accepted, consume those written to the socket.

Levels are counters as well: byte-hours stored by all replicas of the partitions that a broker leads, seconds of these
partitions, and the peak number of connections of each hour. They have no topic, user or client id.
"""

from __future__ import annotations

import builtins
import json
from dataclasses import dataclass, fields
from typing import Any, Final, Literal, NamedTuple, get_args

USAGE_TOPIC = "__usage"
USAGE_INTERVAL_MS = 10_000
VERSION = 1
# Name of the broker setting with the version that brokers write. Readers must know it before writers use it.
RECORD_VERSION_SETTING: Final = "usage.record.version"
LEVEL_INTERVAL_MS = 60_000
Direction = Literal["produce", "consume"]
Level = Literal["stored", "partitions", "connections"]
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)
COUNTED_THINGS: tuple[Direction | Level, ...] = (*DIRECTIONS, *get_args(Level))

# Keys (topic, user, client id) of one instance on one broker; further ones are counted under OTHER, so that invented
# client ids cannot use up memory.
USAGE_KEYS_PER_INSTANCE_MAX = 10_000
OTHER = "(other)"

# Length to which names are cut in keys, so that long client ids cannot use up memory and tables.
NAME_CHARACTERS_MAX = 249


def counted_name(name: str) -> str:
    """Returns the name in a usage key: without NUL and lone surrogates, and of bounded length.

    Names that become equal share one counter: of two counters with the same key, readers would take the larger value
    for the sum.
    """
    return name.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()[:NAME_CHARACTERS_MAX]


class ReportHead(NamedTuple):
    """Fields that all events of a report share. `at_ms` is wall time."""

    broker_id: int
    broker_epoch: int
    sequence: int
    at_ms: int


class CounterValue(NamedTuple):
    """Fields of one event of a report: the key of a counter within its process, and its value."""

    instance_id: str
    topic: str
    user: str
    client_id: str
    direction: Direction | Level
    bytes: int
    requests: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageEvent:
    """Value of one counter in one report.

    `sequence` grows by one with each report of the incarnation (`broker_id`, `broker_epoch`); `at_ms` is the report's
    wall time. `direction` is the kind of counter, and `bytes` its value in bytes or in the unit of the level.
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

    @property
    def counter(self) -> CounterValue:
        return CounterValue(
            self.instance_id, self.topic, self.user, self.client_id, self.direction, self.bytes, self.requests
        )

    def values(self) -> list[Any]:
        """Returns the values of the fields in the order of `FIELD_NAMES`."""
        return [getattr(self, name) for name in FIELD_NAMES]

    def to_json(self) -> builtins.bytes:
        return json.dumps([VERSION, *self.values()], separators=(",", ":")).encode()

    @classmethod
    def of(cls, head: ReportHead, counter: CounterValue) -> UsageEvent:
        return cls(**head._asdict(), **counter._asdict())

    @classmethod
    def from_json(cls, raw: builtins.bytes) -> UsageEvent:
        version, *values = json.loads(raw)
        if version != VERSION:
            raise ValueError(f"usage event of unknown version {version!r}")
        return cls(**dict(zip(FIELD_NAMES, values, strict=False)))


# The order of the values in a record. Tables and Spark's schema use these names (`billing.pipeline.schema`).
FIELD_NAMES = tuple(field.name for field in fields(UsageEvent))
assert ReportHead._fields + CounterValue._fields == FIELD_NAMES
# Fields with a counter's values, and fields of the report; the other fields are the counter's key.
COUNTED = ("bytes", "requests")
OF_REPORT = ("sequence", "at_ms")
COUNTER_KEY = tuple(name for name in FIELD_NAMES if name not in (*COUNTED, *OF_REPORT))
OF_INCARNATION = ("broker_id", "broker_epoch")
