"""Producer state of a partition (IDE-4 to IDE-11), including open transactions, and its snapshot file (LOG-13).

`check` decides; `update`, `update_in_transaction` and `end_transaction` are the only mutators. Leader append, follower
append and replay at load all use them.
"""

from __future__ import annotations

from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from brokers.engine.records import error_codes
from brokers.engine.records.batch import SEQUENCE_MAX, advance_sequence
from brokers.engine.storage.files import storage_errors, write_atomically
from brokers.engine.storage.open_transactions import OpenTransactions
from brokers.engine.storage.verifications import Verifications
from brokers.engine.wire.checksum import crc32c

CACHED_BATCHES: Final = 5
SNAPSHOT_SUFFIX: Final = ".snapshot"
SNAPSHOT_VERSION: Final = 1
PRODUCER_EXPIRATION_MS: Final = 86_400_000
# Maximum number of producers, which bounds memory against invented producer ids. A removed producer may continue at any
# sequence (IDE-8). Producers with an open transaction are not removed; the coordinator limits their number.
PRODUCERS_MAX: Final = 20_000
NO_SEQUENCE: Final = -1

_HEADER = Struct(">hIi")
_ENTRY = Struct(">qhiqiqiq")
_CHECKSUM_START = 6


class CachedBatch(NamedTuple):
    """One of the last batches of a producer; `offset_delta` is last minus first offset."""

    first_sequence: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int


class ProducerEntry:
    """State of one producer id in this partition."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_timestamp_ms", "transaction_first_offset")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.coordinator_epoch = -1
        self.last_timestamp_ms = -1
        self.transaction_first_offset = -1
        self.batches: list[CachedBatch] = []


class ProducerState:
    """State of all producers of one partition.

    `end_offset` is the offset up to which the log is included. `transactions` are the open ones, and `verifications`
    the pending requests to the transaction coordinator.
    """

    __slots__ = (
        "_idle",
        "end_offset",
        "producers",
        "snapshot_offset",
        "transactions",
        "unflushed_snapshots",
        "verifications",
    )

    def __init__(self) -> None:
        self.producers: dict[int, ProducerEntry] = {}
        # Producers without an open transaction -> the offset at which they were queued for removal. The first is
        # removed when space is needed; a producer that has written since moves to the end. A usual append does not
        # touch this.
        self._idle: dict[int, int] = {}
        self.transactions = OpenTransactions()
        self.verifications = Verifications()
        self.end_offset = 0
        self.snapshot_offset = 0
        # Base offsets of segments whose snapshots are not flushed.
        self.unflushed_snapshots: set[int] = set()

    # -- deciding -----------------------------------------------------------------------------------------------------

    def check_sequence(
        self, producer_id: int, epoch: int, first_sequence: int, last_delta: int, in_transaction: bool = False
    ) -> int | CachedBatch:
        """Returns 0 to append, the cached batch if this is its duplicate, otherwise an error code (IDE-5 to IDE-8,
        TXN-15).
        """
        entry = self.producers.get(producer_id)
        if entry is None:
            return error_codes.NONE
        if epoch < entry.epoch:
            return error_codes.INVALID_PRODUCER_EPOCH
        batches = entry.batches
        if epoch > entry.epoch:
            is_next = first_sequence == 0 or entry.epoch == -1
        else:
            last_sequence = batches[-1].last_sequence if batches else NO_SEQUENCE
            is_next = first_sequence == last_sequence + 1 or (first_sequence == 0 and last_sequence == SEQUENCE_MAX)
        if is_next:
            if in_transaction or entry.transaction_first_offset < 0:
                return error_codes.NONE
            return error_codes.INVALID_TXN_STATE
        if epoch == entry.epoch:
            last_sequence = advance_sequence(first_sequence, last_delta)
            for cached in batches:
                if cached.first_sequence == first_sequence and cached.last_sequence == last_sequence:
                    return cached
        return error_codes.OUT_OF_ORDER_SEQUENCE_NUMBER

    def find_duplicate(self, producer_id: int, epoch: int, first_sequence: int, last_delta: int) -> CachedBatch | None:
        """Returns the cached batch that this batch duplicates, or None (IDE-6)."""
        entry = self.producers.get(producer_id)
        if entry is None or entry.epoch != epoch:
            return None
        last_sequence = advance_sequence(first_sequence, last_delta)
        for cached in entry.batches:
            if cached.first_sequence == first_sequence and cached.last_sequence == last_sequence:
                return cached
        return None

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """True if a batch of this epoch continues the open transaction of the producer.

        A later epoch requires verification by the coordinator: if it were accepted here, the marker of the open
        transaction would be refused.
        """
        if self.transactions.first_offset_of(producer_id) < 0:
            return False
        entry = self.producers.get(producer_id)
        return entry is None or epoch <= entry.epoch

    def coordinator_epoch_of(self, producer_id: int) -> int:
        """Returns the coordinator epoch of the last marker of the producer, -1 if there is none."""
        entry = self.producers.get(producer_id)
        return -1 if entry is None else entry.coordinator_epoch

    def check_epoch(self, producer_id: int, epoch: int) -> int:
        """Returns the error code for a batch without a sequence (TXN-14): 0, or 47 for an old producer epoch."""
        entry = self.producers.get(producer_id)
        return error_codes.INVALID_PRODUCER_EPOCH if entry is not None and epoch < entry.epoch else error_codes.NONE

    def check_marker(self, producer_id: int, epoch: int, coordinator_epoch: int) -> int:
        """Returns the error code for a marker of the producer's transaction (TXN-14): 0, 47 or 52."""
        entry = self.producers.get(producer_id)
        if entry is None:
            return error_codes.NONE
        if epoch < entry.epoch:
            return error_codes.INVALID_PRODUCER_EPOCH
        return (
            error_codes.TRANSACTION_COORDINATOR_FENCED
            if coordinator_epoch < entry.coordinator_epoch
            else error_codes.NONE
        )

    # -- updates from the log -----------------------------------------------------------------------------------------

    def _get_or_create_entry(self, producer_id: int, epoch: int, last_offset: int) -> ProducerEntry:
        entry = self.producers.get(producer_id)
        if entry is None:
            if len(self.producers) >= PRODUCERS_MAX:
                self._evict_one()
            entry = self.producers[producer_id] = ProducerEntry(epoch)
            self._idle[producer_id] = last_offset
        elif entry.epoch != epoch:
            entry.epoch = epoch
            entry.batches.clear()
        return entry

    def _evict_one(self) -> None:
        """Removes the producer that has been idle for longest, never one with an open transaction."""
        removed = -1
        active: list[tuple[int, int]] = []
        for producer_id, since_offset in self._idle.items():
            last_offset = self._last_offset(producer_id)
            if last_offset <= since_offset:
                removed = producer_id
                break
            active.append((last_offset, producer_id))
        active.sort()
        if removed < 0 and active:
            removed = active.pop(0)[1]
        for last_offset, producer_id in active:
            del self._idle[producer_id]
            self._idle[producer_id] = last_offset
        if removed >= 0:
            del self._idle[removed]
            del self.producers[removed]

    def _last_offset(self, producer_id: int) -> int:
        batches = self.producers[producer_id].batches
        return batches[-1].last_offset if batches else -1

    def update(
        self, producer_id: int, epoch: int, first_sequence: int, last_delta: int, last_offset: int, timestamp_ms: int
    ) -> None:
        """Adds a data batch that is in the log."""
        entry = self._get_or_create_entry(producer_id, epoch, last_offset)
        last_sequence = advance_sequence(first_sequence, last_delta)
        entry.batches.append(CachedBatch(first_sequence, last_sequence, last_offset, last_delta, timestamp_ms))
        if len(entry.batches) > CACHED_BATCHES:
            del entry.batches[0]
        entry.last_timestamp_ms = timestamp_ms

    def update_in_transaction(
        self, producer_id: int, epoch: int, first_sequence: int, last_delta: int, last_offset: int, timestamp_ms: int
    ) -> None:
        """Adds a batch of a transaction, which begins with it unless it is open."""
        self.update(producer_id, epoch, first_sequence, last_delta, last_offset, timestamp_ms)
        entry = self.producers[producer_id]
        if entry.transaction_first_offset < 0:
            entry.transaction_first_offset = last_offset - last_delta
            self._idle.pop(producer_id, None)
            self.transactions.begin(producer_id, last_offset - last_delta)
        self.verifications.complete(producer_id)

    def end_transaction(
        self, producer_id: int, epoch: int, coordinator_epoch: int, marker_offset: int, timestamp_ms: int
    ) -> int:
        """Adds an end marker and returns the first offset of the transaction it ended, -1 if none was open."""
        entry = self._get_or_create_entry(producer_id, epoch, marker_offset)
        entry.coordinator_epoch = coordinator_epoch
        if entry.transaction_first_offset >= 0:
            entry.transaction_first_offset = -1
            self._idle[producer_id] = marker_offset
        entry.last_timestamp_ms = timestamp_ms
        self.verifications.complete(producer_id)
        return self.transactions.end(producer_id, marker_offset)

    def expire(self, now_ms: int, age_ms_min: int = PRODUCER_EXPIRATION_MS) -> int:
        """Removes idle producers without an open transaction (IDE-11); returns how many."""
        self.verifications.expire(now_ms, age_ms_min)
        producers = self.producers
        expired = [
            producer_id for producer_id in self._idle if now_ms - producers[producer_id].last_timestamp_ms >= age_ms_min
        ]
        for producer_id in expired:
            del self._idle[producer_id]
            del producers[producer_id]
        return len(expired)

    def clear(self, end_offset: int) -> None:
        """Removes all producers; the log continues at `end_offset`."""
        self.producers.clear()
        self._idle.clear()
        self.transactions.clear()
        self.verifications.clear()
        self.end_offset = self.snapshot_offset = end_offset

    # -- the snapshot -------------------------------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """Returns the snapshot file: producers with an open transaction, then the others, longest idle first."""
        out = bytearray(_HEADER.pack(SNAPSHOT_VERSION, 0, len(self.producers)))
        idle = [
            (max(since_offset, self._last_offset(producer_id)), number, producer_id)
            for number, (producer_id, since_offset) in enumerate(self._idle.items())
        ]
        idle.sort()
        in_transaction = [producer_id for producer_id in self.producers if producer_id not in self._idle]
        for producer_id in in_transaction + [producer_id for _, _, producer_id in idle]:
            entry = self.producers[producer_id]
            last_batch = entry.batches[-1] if entry.batches else CachedBatch(-1, -1, -1, 0, entry.last_timestamp_ms)
            out += _ENTRY.pack(
                producer_id,
                entry.epoch,
                last_batch.last_sequence,
                last_batch.last_offset,
                last_batch.offset_delta,
                entry.last_timestamp_ms,
                entry.coordinator_epoch,
                entry.transaction_first_offset,
            )
        checksum = crc32c(memoryview(out)[_CHECKSUM_START:])
        _HEADER.pack_into(out, 0, SNAPSHOT_VERSION, checksum, len(self.producers))
        return bytes(out)

    def restore(self, content: bytes, offset: int) -> bool:
        """Replaces the state by a snapshot taken at `offset`; returns False, changing nothing, if the file is
        damaged.
        """
        if len(content) < _HEADER.size:
            return False
        version, checksum, count = _HEADER.unpack_from(content)
        if version != SNAPSHOT_VERSION or checksum != crc32c(memoryview(content)[_CHECKSUM_START:]):
            return False
        if count < 0 or len(content) < _HEADER.size + count * _ENTRY.size:
            return False
        self.clear(offset)
        in_transaction: list[tuple[int, int]] = []
        for number in range(count):
            (
                producer_id,
                epoch,
                sequence,
                last_offset,
                delta,
                timestamp_ms,
                coordinator_epoch,
                first_offset,
            ) = _ENTRY.unpack_from(content, _HEADER.size + number * _ENTRY.size)
            entry = self.producers[producer_id] = ProducerEntry(epoch)
            entry.last_timestamp_ms = timestamp_ms
            entry.coordinator_epoch = coordinator_epoch
            entry.transaction_first_offset = first_offset
            if first_offset >= 0:
                in_transaction.append((first_offset, producer_id))
            else:
                self._idle[producer_id] = last_offset
            if last_offset >= 0:
                first_sequence = sequence - delta if sequence >= 0 else NO_SEQUENCE
                first_sequence = first_sequence if first_sequence >= 0 or sequence < 0 else first_sequence + 2**31
                entry.batches.append(CachedBatch(first_sequence, sequence, last_offset, delta, timestamp_ms))
        for first_offset, producer_id in sorted(in_transaction):
            self.transactions.begin(producer_id, first_offset)
        return True


def snapshot_path(directory: str, offset: int) -> Path:
    return Path(directory, f"{offset:020d}{SNAPSHOT_SUFFIX}")


def save_snapshot(state: ProducerState, directory: str, offset: int, root: Path) -> None:
    """Writes the state as of `offset` unless that snapshot exists already."""
    if state.snapshot_offset != offset:
        write_atomically(snapshot_path(directory, offset), state.to_bytes(), root, durable=False)
        state.snapshot_offset = offset


def begin_segment(state: ProducerState, directory: str, offset: int, root: Path) -> None:
    """Ensures a snapshot at `offset`, the base of a new segment; the next flush makes it durable.

    The snapshot is the only source of the state once the segments before it are deleted. A clean stop may have left the
    file there.
    """
    save_snapshot(state, directory, offset, root)
    state.unflushed_snapshots.add(offset)


def load_newest_snapshot(state: ProducerState, directory: str, offsets: list[int], limit: int, root: Path) -> None:
    """Restores the newest valid snapshot at or below `limit` and deletes damaged and later ones (LOG-13, LOG-39)."""
    for offset in sorted(offsets, reverse=True):
        path = snapshot_path(directory, offset)
        with storage_errors(root):
            if offset <= limit and state.restore(path.read_bytes(), offset):
                return
            path.unlink(missing_ok=True)
    state.clear(0)


def delete_stray_snapshots(
    state: ProducerState, directory: str, offsets: list[int], bases: set[int], root: Path
) -> None:
    """Deletes the snapshots at `offsets`, except those at segment bases and the snapshot from which `state` was
    restored (LOG-39).

    Every clean stop leaves a snapshot within the active segment, and no deletion of a segment removes it.
    """
    with storage_errors(root):
        for offset in offsets:
            if offset != state.snapshot_offset and offset not in bases:
                snapshot_path(directory, offset).unlink(missing_ok=True)
