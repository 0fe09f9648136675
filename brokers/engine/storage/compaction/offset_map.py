"""Map from each key of a log to the offset of its last record, in 24 bytes per key (CMP-16, CMP-17).

The map uses open addressing in one flat buffer: 16 bytes of MD5, 8 bytes of offset. Two keys with the same hash count
as one, which is acceptable at 128 bits. Keys are not stored, except the latest ones in a dictionary of bounded size,
which takes a tenth of the time. A log with fewer keys never touches the buffer.

A mapped record is live if the map has its offset. `LiveOffsetFilter` finds batches without live records, which are
removed without being decompressed.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final

from brokers.engine.storage.compaction.settings import ENTRY_BYTES

try:  # the built-in module takes a third of the time of OpenSSL for a short key
    from _md5 import md5
except ImportError:
    from hashlib import md5

HASH_BYTES: Final = 16
# The dictionary takes up to about 30 MB in addition to the buffer.
RECENT_KEYS_MAX: Final = 131_072
RECENT_KEY_BYTES_MAX: Final = 64
# Offsets are stored plus one, so that zeroed memory means a free slot.
_ENTRY = Struct("=16sq")
_OFFSET = Struct("=q")
_SLOT = Struct(">i")
# The last position in a hash from which four bytes can be read.
_LAST_SLOT_POSITION: Final = HASH_BYTES - 4
_INT_MIN: Final = -(2**31)
# Number of slots that are read at a time while iterating.
_SWEEP_SLOTS: Final = 65_536
LIVE_FLAGS_MAX: Final = 8 * 1024 * 1024


def count_slots(buffer_bytes: int) -> int:
    """Returns the number of entries for which a buffer has room."""
    return buffer_bytes // ENTRY_BYTES


class OffsetMap:
    """Offset map of a cleaning run; `latest_offset` is the end of the fully mapped range, -1 before anything is
    mapped.
    """

    __slots__ = ("_entries", "_recent_max", "_recent_offset_by_key", "_table", "entries_max", "latest_offset", "slots")

    def __init__(
        self,
        buffer_bytes: int,
        load_factor: float,
        *,
        keys_max: int | None = None,
        recent_max: int = RECENT_KEYS_MAX,
    ) -> None:
        """Allocates the map; `keys_max` bounds the number of possible keys, so that a small job uses little memory."""
        slots = count_slots(buffer_bytes)
        if keys_max is not None:
            slots = max(min(slots, int(keys_max / load_factor) + 2), 1)
        self.slots = slots
        self.entries_max = int(slots * load_factor)
        self.latest_offset = -1
        self._entries = 0
        self._table = bytearray(slots * ENTRY_BYTES)
        # Entries that supersede those of the table.
        self._recent_offset_by_key: dict[bytes, int] = {}
        self._recent_max = recent_max

    @property
    def entries(self) -> int:
        """Number of keys."""
        if not self._entries:
            return len(self._recent_offset_by_key)
        self._flush_recent()
        return self._entries

    def put(self, key: bytes, offset: int) -> bool:
        """Sets the offset of `key`; returns False, changing nothing, if there is no room for another key."""
        recent = self._recent_offset_by_key
        if key in recent:
            recent[key] = offset
            return True
        recent_count = len(recent)
        # Each key in the dictionary may need a slot of its own.
        if self._entries + recent_count >= self.entries_max or recent_count >= self._recent_max:
            self._flush_recent()
            if self._entries >= self.entries_max:
                return self._store(key, offset)
        if len(key) > RECENT_KEY_BYTES_MAX:
            return self._store(key, offset)
        recent[key] = offset
        return True

    def get(self, key: bytes) -> int:
        """Returns the last offset that was put for `key`, -1 if there is none."""
        result = self._recent_offset_by_key.get(key)
        if result is not None:
            return result
        if not self._entries:
            return -1
        position = self._position_of(md5(key, usedforsecurity=False).digest())
        return int(_OFFSET.unpack_from(self._table, position + HASH_BYTES)[0]) - 1

    def offsets(self) -> Iterator[int]:
        """Yields the last offset of every key, in no order."""
        if self._entries:
            self._flush_recent()
        yield from self._recent_offset_by_key.values()
        if not self._entries:
            return
        stored = memoryview(self._table).cast("q")[HASH_BYTES // 8 :: ENTRY_BYTES // 8]
        for start in range(0, self.slots, _SWEEP_SLOTS):
            for stored_offset in stored[start : start + _SWEEP_SLOTS].tolist():
                if stored_offset:
                    yield stored_offset - 1

    def _flush_recent(self) -> None:
        """Moves the dictionary into the table; `put` ensures that there is room."""
        for key, offset in self._recent_offset_by_key.items():
            self._store(key, offset)
        self._recent_offset_by_key.clear()

    def _store(self, key: bytes, offset: int) -> bool:
        digest: bytes = md5(key, usedforsecurity=False).digest()
        position = self._position_of(digest)
        if not _OFFSET.unpack_from(self._table, position + HASH_BYTES)[0]:
            if self._entries >= self.entries_max:
                return False
            self._entries += 1
        _ENTRY.pack_into(self._table, position, digest, offset + 1)
        return True

    def _position_of(self, digest: bytes) -> int:
        """Returns the position of the hash, or of the free slot where it belongs; the load factor ensures free
        slots.
        """
        table, slots = self._table, self.slots
        position = probe(digest, 0) % slots * ENTRY_BYTES
        attempt = 0
        while (
            table[position : position + HASH_BYTES] != digest and _OFFSET.unpack_from(table, position + HASH_BYTES)[0]
        ):
            attempt += 1
            position = probe(digest, attempt) % slots * ENTRY_BYTES
        return position


def probe(digest: bytes, attempt: int) -> int:
    """Returns the slot of probe `attempt`, before the modulus.

    It is the four bytes of the hash that start at byte `attempt`; after the last four bytes, each probe adds one.
    """
    slot: int = _SLOT.unpack_from(digest, min(attempt, _LAST_SLOT_POSITION))[0]
    slot += max(0, attempt - _LAST_SLOT_POSITION)
    if slot > -_INT_MIN - 1:
        slot += 2 * _INT_MIN
    return 0 if slot == _INT_MIN else abs(slot)


class LiveOffsetFilter:
    """Live offsets of a map that was filled from `first_dirty` on; later additions to the map are not included."""

    __slots__ = ("_end_offset", "_first_offset", "_live_flags", "_shift")

    def __init__(self, offsets: OffsetMap, first_dirty: int, flags_max: int = LIVE_FLAGS_MAX) -> None:
        self._first_offset = first_dirty
        self._end_offset = offsets.latest_offset + 1
        span = max(self._end_offset - first_dirty, 0)
        self._shift = (span // flags_max).bit_length()
        self._live_flags = bytearray((span >> self._shift) + 1)
        for offset in offsets.offsets():
            if offset < self._end_offset:  # the last batch may be mapped in part
                self._live_flags[(offset - first_dirty) >> self._shift] = 1

    def may_have_live(self, base_offset: int, last_offset: int) -> bool:
        """True if a record between the two offsets, both included, may be live; always true outside the mapped
        range.
        """
        if base_offset < self._first_offset or last_offset >= self._end_offset:
            return True
        start = (base_offset - self._first_offset) >> self._shift
        end = ((last_offset - self._first_offset) >> self._shift) + 1
        return self._live_flags.find(1, start, end) >= 0
