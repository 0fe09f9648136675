"""The offset map: for each key the offset of its last record, in 24 bytes (CMP-16, CMP-17).

Open addressing over one flat buffer: 16 bytes of MD5, 8 bytes of offset. Two keys with the same hash count as one; at
128 bits that is accepted. Keys themselves are never stored.
"""

from __future__ import annotations

import hashlib
from struct import Struct
from typing import Final

from brokers.engine.storage.compaction.settings import ENTRY_BYTES

HASH_BYTES: Final = 16
_OFFSET = Struct(">q")
_ENTRY = Struct(">16sq")
_WORD = Struct(">i")
_NOTHING: Final = bytes(HASH_BYTES)
# The last place in a hash from which four bytes can be taken.
_LAST_WORD_AT: Final = HASH_BYTES - 4
_INT_MIN: Final = -(2**31)


def slots_of(buffer_bytes: int) -> int:
    return buffer_bytes // ENTRY_BYTES


class OffsetMap:
    """`latest_offset` is the end of what was mapped completely; -1 before anything was."""

    __slots__ = ("_table", "entries", "entries_max", "latest_offset", "slots")

    def __init__(self, buffer_bytes: int, load_factor: float, *, keys_max: int | None = None) -> None:
        """`keys_max` bounds the keys that can come, so that a small job touches little memory."""
        slots = slots_of(buffer_bytes)
        if keys_max is not None:
            slots = max(min(slots, int(keys_max / load_factor) + 2), 1)
        self.slots = slots
        self.entries_max = int(slots * load_factor)
        self.entries = 0
        self.latest_offset = -1
        self._table = bytearray(slots * ENTRY_BYTES)

    @property
    def full(self) -> bool:
        return self.entries >= self.entries_max

    def put(self, key: bytes, offset: int) -> bool:
        """Remembers `offset` for `key`; False, and nothing changed, if a further key finds no room."""
        digest = hashlib.md5(key, usedforsecurity=False).digest()
        table = self._table
        at = self._slot(digest)
        if table[at : at + HASH_BYTES] != digest:
            if self.entries >= self.entries_max:
                return False
            self.entries += 1
        _ENTRY.pack_into(table, at, digest, offset)
        return True

    def get(self, key: bytes) -> int:
        """The offset last put for `key`, -1 if there is none."""
        digest = hashlib.md5(key, usedforsecurity=False).digest()
        at = self._slot(digest)
        if self._table[at : at + HASH_BYTES] != digest:
            return -1
        return int(_OFFSET.unpack_from(self._table, at + HASH_BYTES)[0])

    def _slot(self, digest: bytes) -> int:
        """Where the hash stands, or the free place where it would stand. The load factor keeps places free."""
        table, slots = self._table, self.slots
        at = probe(digest, 0) % slots * ENTRY_BYTES
        found = table[at : at + HASH_BYTES]
        attempt = 0
        while found != digest and found != _NOTHING:
            attempt += 1
            at = probe(digest, attempt) % slots * ENTRY_BYTES
            found = table[at : at + HASH_BYTES]
        return at


def probe(digest: bytes, attempt: int) -> int:
    """Where attempt number `attempt` looks, before the modulus: each four bytes of the hash in turn, then onwards."""
    word: int = _WORD.unpack_from(digest, min(attempt, _LAST_WORD_AT))[0]
    word += max(0, attempt - _LAST_WORD_AT)
    if word > -_INT_MIN - 1:
        word += 2 * _INT_MIN
    return 0 if word == _INT_MIN else abs(word)
