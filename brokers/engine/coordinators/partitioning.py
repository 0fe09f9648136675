"""Which partition of a state topic knows about an id (GRP-1, TXN-1)."""

from __future__ import annotations

from functools import lru_cache
from struct import unpack
from typing import Final

REMEMBERED_MAX: Final = 16_384
# Longer ids are hashed each time: whoever asks for many of them must not fill the memory with their names.
REMEMBERED_LENGTH_MAX: Final = 128
# No coordinator keeps a longer id (`groups.limits`, `transactions.limits`), so any of them may refuse it. Hashing takes
# 0.1 us a character.
HASHED_LENGTH_MAX: Final = 1_024
# Larger numbers than these make take longer than to cut them to 32 bits.
UNITS_PER_CUT: Final = 64


def java_hash(text: str) -> int:
    """A string's hash as Java computes it: 31-polynomial over UTF-16 units, int32."""
    value = 0
    raw = text.encode("utf-16-be", "surrogatepass")
    units = unpack(f">{len(raw) // 2}H", raw)
    for begin in range(0, len(units), UNITS_PER_CUT):
        for unit in units[begin : begin + UNITS_PER_CUT]:
            value = 31 * value + unit
        value &= 0xFFFF_FFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def partition_of(id: str, partitions: int) -> int:
    """The smallest int32 counts as 0."""
    return remembered(id, partitions) if len(id) <= REMEMBERED_LENGTH_MAX else _computed(id, partitions)


def _computed(id: str, partitions: int) -> int:
    value = java_hash(id[:HASHED_LENGTH_MAX])
    return 0 if value == -(1 << 31) else abs(value) % partitions


# Members say it again with every heartbeat.
remembered = lru_cache(maxsize=REMEMBERED_MAX)(_computed)
