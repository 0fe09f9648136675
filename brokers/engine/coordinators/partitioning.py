"""Mapping of group ids and transactional ids to partitions of a state topic (GRP-1, TXN-1)."""

from __future__ import annotations

from functools import lru_cache
from struct import unpack
from typing import Final

CACHED_IDS_MAX: Final = 16_384
# Longer ids are hashed on every call, so that requests with many long ids cannot fill the cache with their names.
CACHED_LENGTH_MAX: Final = 128
# Only this prefix is hashed: no coordinator accepts a longer id (`groups.limits`, `transactions.limits`), so any of
# them may refuse it. Hashing costs 0.1 us a character.
HASHED_LENGTH_MAX: Final = 1_024
# Number of UTF-16 units hashed before the value is truncated to 32 bits; larger intermediate integers cost more than
# the truncation.
UNITS_PER_TRUNCATION: Final = 64


def java_hash(text: str) -> int:
    """Returns the hash that Java's `String.hashCode` computes: a polynomial in 31 over UTF-16 units, as an int32."""
    value = 0
    raw = text.encode("utf-16-be", "surrogatepass")
    units = unpack(f">{len(raw) // 2}H", raw)
    for begin in range(0, len(units), UNITS_PER_TRUNCATION):
        for unit in units[begin : begin + UNITS_PER_TRUNCATION]:
            value = 31 * value + unit
        value &= 0xFFFF_FFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def partition_of(id: str, partitions: int) -> int:
    """Returns the index of the partition that coordinates `id`, as Kafka computes it: a hash of -2^31 maps to 0."""
    return cached_partition_of(id, partitions) if len(id) <= CACHED_LENGTH_MAX else _computed(id, partitions)


def _computed(id: str, partitions: int) -> int:
    value = java_hash(id[:HASHED_LENGTH_MAX])
    return 0 if value == -(1 << 31) else abs(value) % partitions


# Cached, because every heartbeat looks up its group id.
cached_partition_of = lru_cache(maxsize=CACHED_IDS_MAX)(_computed)
