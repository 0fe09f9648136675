"""The offset map: for each key the offset of its last record, in 24 bytes (CMP-16, CMP-17).

Open addressing over one flat buffer: 16 bytes of MD5, 8 bytes of offset. Two keys with the same hash count as one; at
128 bits that is accepted. Keys themselves are not stored, but for those met last: they wait in a dictionary of bounded
size, which takes a tenth of the time. A log of fewer keys never touches the buffer.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final

from brokers.engine.storage.compaction.settings import ENTRY_BYTES

try:  # the interpreter's own takes a third of the time that OpenSSL's takes for a short key
    from _md5 import md5
except ImportError:
    from hashlib import md5

HASH_BYTES: Final = 16
# Some 30 MB at most, beside the buffer.
YOUNG_KEYS_MAX: Final = 131_072
YOUNG_KEY_BYTES_MAX: Final = 64
# An offset is stored plus one, so that fresh memory says of every place that it is free.
_ENTRY = Struct("=16sq")
_STORED = Struct("=q")
_WORD = Struct(">i")
# The last place in a hash from which four bytes can be taken.
_LAST_WORD_AT: Final = HASH_BYTES - 4
_INT_MIN: Final = -(2**31)
# How many places are looked at between two ends of a slice of them.
_SWEEP_SLOTS: Final = 65_536


def slots_of(buffer_bytes: int) -> int:
    return buffer_bytes // ENTRY_BYTES


class OffsetMap:
    """`latest_offset` is the end of what was mapped completely; -1 before anything was."""

    __slots__ = ("_entries", "_table", "_young", "_young_max", "entries_max", "latest_offset", "slots")

    def __init__(
        self,
        buffer_bytes: int,
        load_factor: float,
        *,
        keys_max: int | None = None,
        young_max: int = YOUNG_KEYS_MAX,
    ) -> None:
        """`keys_max` bounds the keys that can come, so that a small job touches little memory."""
        slots = slots_of(buffer_bytes)
        if keys_max is not None:
            slots = max(min(slots, int(keys_max / load_factor) + 2), 1)
        self.slots = slots
        self.entries_max = int(slots * load_factor)
        self.latest_offset = -1
        self._entries = 0
        self._table = bytearray(slots * ENTRY_BYTES)
        # What is in here is later than what the table says of the same key.
        self._young: dict[bytes, int] = {}
        self._young_max = young_max

    @property
    def entries(self) -> int:
        """How many keys there are."""
        if not self._entries:
            return len(self._young)
        self._complete()
        return self._entries

    def put(self, key: bytes, offset: int) -> bool:
        """Remembers `offset` for `key`; False, and nothing changed, if a further key finds no room."""
        young = self._young
        if key in young:
            young[key] = offset
            return True
        waiting = len(young)
        # Each of those that wait may turn out to need a place of its own.
        if self._entries + waiting >= self.entries_max or waiting >= self._young_max:
            self._complete()
            if self._entries >= self.entries_max:
                return self._store(key, offset)
        if len(key) > YOUNG_KEY_BYTES_MAX:
            return self._store(key, offset)
        young[key] = offset
        return True

    def get(self, key: bytes) -> int:
        """The offset last put for `key`, -1 if there is none."""
        result = self._young.get(key)
        if result is not None:
            return result
        if not self._entries:
            return -1
        at = self._place(md5(key, usedforsecurity=False).digest())
        return int(_STORED.unpack_from(self._table, at + HASH_BYTES)[0]) - 1

    def offsets(self) -> Iterator[int]:
        """Of every key the last offset, in no order."""
        if self._entries:
            self._complete()
        yield from self._young.values()
        if not self._entries:
            return
        stored = memoryview(self._table).cast("q")[HASH_BYTES // 8 :: ENTRY_BYTES // 8]
        for start in range(0, self.slots, _SWEEP_SLOTS):
            for result in stored[start : start + _SWEEP_SLOTS].tolist():
                if result:
                    yield result - 1

    def _complete(self) -> None:
        """What waits goes to its place. There is room: `put` has seen to it."""
        for key, offset in self._young.items():
            self._store(key, offset)
        self._young.clear()

    def _store(self, key: bytes, offset: int) -> bool:
        digest: bytes = md5(key, usedforsecurity=False).digest()
        at = self._place(digest)
        if not _STORED.unpack_from(self._table, at + HASH_BYTES)[0]:
            if self._entries >= self.entries_max:
                return False
            self._entries += 1
        _ENTRY.pack_into(self._table, at, digest, offset + 1)
        return True

    def _place(self, digest: bytes) -> int:
        """Where the hash stands, or the free place where it would stand. The load factor keeps places free."""
        table, slots = self._table, self.slots
        at = probe(digest, 0) % slots * ENTRY_BYTES
        attempt = 0
        while table[at : at + HASH_BYTES] != digest and _STORED.unpack_from(table, at + HASH_BYTES)[0]:
            attempt += 1
            at = probe(digest, attempt) % slots * ENTRY_BYTES
        return at


def probe(digest: bytes, attempt: int) -> int:
    """Where attempt number `attempt` looks, before the modulus: each four bytes of the hash in turn, then onwards."""
    word: int = _WORD.unpack_from(digest, min(attempt, _LAST_WORD_AT))[0]
    word += max(0, attempt - _LAST_WORD_AT)
    if word > -_INT_MIN - 1:
        word += 2 * _INT_MIN
    return 0 if word == _INT_MIN else abs(word)
