"""For whom records of the state topics are written: their keys begin with a version and the id of a group or a
transaction, and that with the id of its instance (CKA-16).
"""

from __future__ import annotations

from collections.abc import Sequence

from brokers.engine.coordinators.result import StateRecord
from instances.naming import split_internal

# A version and the length of the id come before it; an instance's id and the dot behind it have so many bytes.
_ID_AT = slice(4, 17)
# Of a record beside its key and its value.
RECORD_BYTES = 12


def owner_of(key: bytes) -> str | None:
    """The instance; None: the cluster's own."""
    id = bytes(key[_ID_AT]).decode("latin-1")
    return split_internal(id + "x")[0] if id.startswith("ins-") else None


def bytes_by_owner(records: Sequence[StateRecord], batch_bytes: int) -> dict[str | None, int]:
    """Whose bytes a batch of these records has. What many share is divided by the sizes of their records."""
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
