"""Maps group ids and transactional ids to partitions of a state topic (GRP-1, TXN-1), and its records to instances.

The key of a record begins with a version and the id of a group or a transaction, which begins with the id of its
instance (CKA-16).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from struct import unpack
from typing import Final

from brokers.engine.coordinators.result import StateRecord
from instances.naming import split_internal

CACHED_IDS_MAX: Final = 16_384
# Longer ids are hashed on every call, so that requests with many long ids cannot fill the cache with their names.
CACHED_LENGTH_MAX: Final = 128
# Only this prefix is hashed: no coordinator accepts a longer id (`coordinators.limits`), so any of them may refuse
# it. Hashing costs 0.1 us a character.
HASHED_LENGTH_MAX: Final = 1_024
# Number of UTF-16 units hashed before the value is truncated to 32 bits; larger intermediate integers cost more than
# the truncation.
UNITS_PER_TRUNCATION: Final = 64
# Position of the instance id and its trailing dot in a key: 13 bytes after the version and the length, two bytes each.
_INSTANCE_ID_SLICE = slice(4, 17)
# Size of a record without its key and its value, approximately.
RECORD_OVERHEAD_BYTES = 12


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
    return cached_partition_of(id, partitions) if len(id) <= CACHED_LENGTH_MAX else _compute_partition(id, partitions)


def _compute_partition(id: str, partitions: int) -> int:
    value = java_hash(id[:HASHED_LENGTH_MAX])
    return 0 if value == -(1 << 31) else abs(value) % partitions


# Cached, because every heartbeat looks up its group id.
cached_partition_of = lru_cache(maxsize=CACHED_IDS_MAX)(_compute_partition)


def instance_id_of(key: bytes) -> str | None:
    """Returns the id of the instance that a record's key belongs to, None for the cluster's own records."""
    prefix = bytes(key[_INSTANCE_ID_SLICE]).decode("latin-1")
    # split_internal requires a name after the dot.
    return split_internal(prefix + "x")[0] if prefix.startswith("ins-") else None


def bytes_by_instance(records: Sequence[StateRecord], batch_bytes: int) -> dict[str | None, int]:
    """Returns the number of bytes that each instance has in a batch of these records.

    With records of one instance the result is `batch_bytes`, which includes the header of the batch; otherwise each
    instance has the sizes of its own records.
    """
    result: dict[str | None, int] = {}
    prefix, instance_id = b"", None
    for key, value in records:
        if key[_INSTANCE_ID_SLICE] != prefix:
            prefix, instance_id = bytes(key[_INSTANCE_ID_SLICE]), instance_id_of(key)
        size_bytes = RECORD_OVERHEAD_BYTES + len(key) + (0 if value is None else len(value))
        result[instance_id] = result.get(instance_id, 0) + size_bytes
    if len(result) == 1:
        return {instance_id: batch_bytes}
    return result
