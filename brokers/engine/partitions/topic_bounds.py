"""How far a topic's own settings go where they cost others: what is beyond the operator's bound counts as the bound.

The bounds are broker settings. They hold for what a topic says itself, whoever wrote it, not for the broker's defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from brokers.engine.records.validation import LONG_MAX


class Bound(NamedTuple):
    """A broker setting that bounds a topic's: from below if `is_least`, otherwise from above."""

    broker_key: str
    default: int
    is_least: bool
    documentation: str


BOUNDS: Final = {
    "file.delete.delay.ms": Bound(
        "log.segment.delete.delay.ms.max",
        60_000,
        False,
        "The most that a topic's `file.delete.delay.ms` counts: deleted files take room that is no tenant's.",
    ),
    "flush.messages": Bound(
        "log.flush.interval.messages.min",
        LONG_MAX,
        True,
        "The least that a topic's `flush.messages` counts. As it stands no number of records forces a flush: how often "
        "that would be depends on how fast a tenant produces, and all tenants share the disks.",
    ),
    "flush.ms": Bound(
        "log.flush.interval.ms.min",
        30_000,
        True,
        "The least that a topic's `flush.ms` counts: each flush makes all tenants of the disk wait.",
    ),
}

# In force for `segment.bytes`, but not described instead of it: clients that read what they set find it.
SEGMENT_BYTES: Final = Bound(
    "log.segment.bytes.min",
    1 << 20,
    True,
    "The least that a topic's `segment.bytes` counts: each segment costs files, descriptors and memory.",
)
BROKER_BOUNDS: Final = (*BOUNDS.values(), SEGMENT_BYTES)


def segment_bytes(topic: Mapping[str, str], defaults: Mapping[str, str], configured_bytes: int) -> int:
    """Size at which a log rolls. The broker's own default is the operator's, and counts as it is."""
    if not topic.get("segment.bytes"):
        return configured_bytes
    return max(configured_bytes, int(defaults.get(SEGMENT_BYTES.broker_key, SEGMENT_BYTES.default)))


def beyond(name: str, topic: Mapping[str, str], defaults: Mapping[str, str]) -> str | None:
    """Returns the bound that is in force instead of what `topic` says of `name`, None if what it says is."""
    bound = BOUNDS.get(name)
    if bound is None or not topic.get(name):
        return None
    limit = int(defaults.get(bound.broker_key, bound.default))
    own = int(topic[name])
    return str(limit) if (own < limit if bound.is_least else own > limit) else None
