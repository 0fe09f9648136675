"""Operator bounds for topic settings that cost other tenants: a value beyond the bound counts as the bound.

The bounds are broker settings. They apply to a topic's own settings, set by tenants or operators, and not to the
broker's defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from brokers.engine.records.validation import LONG_MAX


class Bound(NamedTuple):
    """A broker setting that bounds a topic setting: from below if `is_minimum`, otherwise from above."""

    broker_key: str
    default: int
    is_minimum: bool
    documentation: str


BOUNDS: Final = {
    "file.delete.delay.ms": Bound(
        "log.segment.delete.delay.ms.max",
        60_000,
        False,
        "Maximum effective `file.delete.delay.ms` of a topic: deleted files take disk space that no tenant pays for.",
    ),
    "flush.messages": Bound(
        "log.flush.interval.messages.min",
        LONG_MAX,
        True,
        "Minimum effective `flush.messages` of a topic. By default no number of records triggers a flush: how often "
        "it did would depend on how fast a tenant produces, and all tenants share the disks.",
    ),
    "flush.ms": Bound(
        "log.flush.interval.ms.min",
        30_000,
        True,
        "Minimum effective `flush.ms` of a topic: each flush makes all tenants of the disk wait.",
    ),
}

# Applied to `segment.bytes` without changing its described value: clients read back what they set.
SEGMENT_BYTES: Final = Bound(
    "log.segment.bytes.min",
    1 << 20,
    True,
    "Minimum effective `segment.bytes` of a topic: each segment costs files, descriptors and memory.",
)
BROKER_BOUNDS: Final = (*BOUNDS.values(), SEGMENT_BYTES)


def segment_bytes(topic: Mapping[str, str], defaults: Mapping[str, str], configured_bytes: int) -> int:
    """Returns the size in bytes at which a log rolls; the broker's own default is not bounded."""
    if not topic.get("segment.bytes"):
        return configured_bytes
    return max(configured_bytes, int(defaults.get(SEGMENT_BYTES.broker_key, SEGMENT_BYTES.default)))


def bound_in_force(name: str, topic: Mapping[str, str], defaults: Mapping[str, str]) -> str | None:
    """Returns the bound that applies instead of the topic's value of `name`, None if none does."""
    bound = BOUNDS.get(name)
    if bound is None or not topic.get(name):
        return None
    limit = int(defaults.get(bound.broker_key, bound.default))
    value = int(topic[name])
    return str(limit) if (value < limit if bound.is_minimum else value > limit) else None
