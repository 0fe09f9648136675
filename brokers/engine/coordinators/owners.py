"""Attribution of records of `__consumer_offsets` and `__transaction_state` to instances.

A record's key begins with a version and the id of a group or a transaction, which begins with the id of its instance
(CKA-16).
"""

from __future__ import annotations

from collections.abc import Sequence

from brokers.engine.coordinators.result import StateRecord
from instances.naming import split_internal

# Position of the instance id and its trailing dot in a key: 13 bytes after the version and the length, two bytes each.
_ID_AT = slice(4, 17)
# Size of a record without its key and its value, approximately.
RECORD_BYTES = 12


def owner_of(key: bytes) -> str | None:
    """Returns the id of the instance that a record's key belongs to, None for the cluster's own records."""
    prefix = bytes(key[_ID_AT]).decode("latin-1")
    # split_internal requires a name after the dot.
    return split_internal(prefix + "x")[0] if prefix.startswith("ins-") else None


def bytes_by_owner(records: Sequence[StateRecord], batch_bytes: int) -> dict[str | None, int]:
    """Returns the number of bytes that each instance has in a batch of these records.

    A batch of one owner counts in full (`batch_bytes`); in a batch of several owners each is charged the sizes of its
    own records.
    """
    result: dict[str | None, int] = {}
    prefix, owner = b"", None
    for key, value in records:
        if key[_ID_AT] != prefix:
            prefix, owner = bytes(key[_ID_AT]), owner_of(key)
        size_bytes = RECORD_BYTES + len(key) + (0 if value is None else len(value))
        result[owner] = result.get(owner, 0) + size_bytes
    if len(result) == 1:
        return {owner: batch_bytes}
    return result
