"""Log of one partition: segments in offset order; batches are appended to the last one (LOG-15 to LOG-24).

One thread appends, reads, rolls and truncates; only the fsyncs of a `FlushJob` may run in another thread. A read copies
nothing: it returns a slice of a segment file that starts and ends at batch boundaries.
"""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path
from typing import Final, NamedTuple

from brokers.engine.records import batch as layout
from brokers.engine.records.batch import BatchHeader
from brokers.engine.storage.files import FileSlice, OpenFiles, StorageFailed, sync_directory
from brokers.engine.storage.leader_epochs import LeaderEpochs
from brokers.engine.storage.producer_state import ProducerState, begin_segment, save_snapshot, snapshot_path
from brokers.engine.storage.retention import RetentionRules, SegmentFacts, count_deletable
from brokers.engine.storage.segment import DamagedSegment, IndexLimits, Segment

RELATIVE_OFFSET_MAX: Final = 2**31 - 1
# Maximum number of batch positions in each of the two position caches of a log: a consumer at the tail finds its
# position without a scan.
POSITIONS_MAX: Final = 64
# Minimum age of an active segment that is rolled by time: none in a log of few segments; in a longer log one second, or
# one minute for a small segment. Producers choose record timestamps freely, and each segment costs files.
ROLLED_MS_MIN: Final = 1_000
ROLLED_RAPIDLY_MAX: Final = 8
ROLLED_SMALL_MS_MIN: Final = 60_000
SMALL_SEGMENT_BYTES: Final = 1 << 20
NO_HOLE: Final = -1
AT_THE_END: Final = -1


class LogConfig(NamedTuple):
    """Topic settings that determine the layout of the files (spec N)."""

    segment_bytes: int = 1_073_741_824
    segment_ms: int = 604_800_000
    index_limits: IndexLimits = (4_096, 10_485_760)
    retention: RetentionRules = RetentionRules()


class Log:
    """An append-only log of record batches; `log_end_offset` is the offset of the next record.

    `recovery.load_log` and `recovery.create_log` build it.
    """

    __slots__ = (
        "_old_positions",
        "_positions",
        "active",
        "config",
        "directory",
        "durable_start_offset",
        "epochs",
        "files",
        "hole_offset",
        "index",
        "last_reported_damage",
        "log_end_offset",
        "log_start_offset",
        "may_have_aborts",
        "producers",
        "recovery_point",
        "root",
        "segments",
        "topic",
        "unflushed_deletions",
    )

    def __init__(
        self,
        directory: str,
        root: Path,
        topic: str,
        index: int,
        files: OpenFiles,
        config: LogConfig,
        segments: list[Segment],
    ) -> None:
        self.directory = directory
        self.root = root
        self.topic = topic
        self.index = index
        self.files = files
        self.config = config
        self.segments = segments
        self.active = segments[-1]
        self.log_start_offset = segments[0].base_offset
        # Log start offset that a crash cannot undo; an advance beyond it, to `log_start_offset`, is not on disk yet.
        self.durable_start_offset = self.log_start_offset
        self.log_end_offset = self.active.base_offset
        self.recovery_point = self.log_end_offset
        self.unflushed_deletions = 0  # deletions of segments that a power cut may still undo
        self.epochs = LeaderEpochs(directory, root)
        self.producers = ProducerState()
        # Start of the first gap that recovery found, if compaction or a power cut may have removed the records there.
        self.hole_offset = NO_HOLE
        self.last_reported_damage = ""  # last damage that a reader met, to report each damage once
        self.may_have_aborts = False  # True if a segment may list aborted transactions
        self._positions: dict[int, int] = {}
        self._old_positions: dict[int, int] = {}

    @property
    def size_bytes(self) -> int:
        """Size of the log files of all segments in bytes, without their indexes."""
        segments = self.segments
        return segments[0].size_bytes if len(segments) == 1 else sum(segment.size_bytes for segment in segments)

    @property
    def disk_bytes(self) -> int:
        """Disk space in bytes taken by the segments, including their indexes and snapshots."""
        segments, active = self.segments, self.active
        return sum(segment.disk_bytes for segment in segments) - active.disk_bytes + active.active_disk_bytes

    # -- appending ----------------------------------------------------------------------------------------------------

    def append(
        self, data: memoryview, last_offset_delta: int, max_timestamp: int, leader_epoch: int, now_ms: int
    ) -> int:
        """Assigns the next offsets to the single batch in `data`, writes it and returns its base offset.

        Raises StorageFailed.
        """
        base_offset = self.log_end_offset
        last_offset = base_offset + last_offset_delta
        segment = self.active
        size = len(data)
        if segment.size_bytes and self.must_roll(segment, size, last_offset, max_timestamp, now_ms):
            segment = self.roll(now_ms)
        layout.set_offset_and_epoch(data, base_offset, leader_epoch)
        if self.epochs.has_unsaved:
            self.epochs.save_unsaved()
        position = segment.size_bytes
        segment.append(data, last_offset, max_timestamp, self.config.index_limits)
        self.log_end_offset = last_offset + 1
        positions = self._positions
        if len(positions) >= POSITIONS_MAX:
            self._old_positions = positions
            positions = self._positions = {}
        positions[base_offset] = position
        return base_offset

    def must_roll(self, segment: Segment, size: int, last_offset: int, max_timestamp: int, now_ms: int) -> bool:
        """True if a non-empty segment must be rolled before a batch of `size` bytes is appended (LOG-16)."""
        config = self.config
        if segment.size_bytes > config.segment_bytes - size or last_offset - segment.base_offset > RELATIVE_OFFSET_MAX:
            return True
        first_timestamp = segment.first_timestamp
        if first_timestamp is None:
            first_timestamp = segment.load_first_timestamp()
        open_ms = now_ms - segment.created_ms
        age_ms = max_timestamp - first_timestamp if first_timestamp >= 0 else open_ms
        if age_ms > config.segment_ms:
            is_rapid = 0 <= open_ms < self._open_ms_min(segment)
            return not is_rapid or segment.has_full_index
        return segment.has_full_index

    def _open_ms_min(self, segment: Segment) -> int:
        """Minimum time in milliseconds that the active segment stays open before it is rolled by time."""
        if len(self.segments) < ROLLED_RAPIDLY_MAX:
            return 0
        return ROLLED_MS_MIN if segment.size_bytes >= SMALL_SEGMENT_BYTES else ROLLED_SMALL_MS_MIN

    def roll(self, now_ms: int, base_offset: int = AT_THE_END) -> Segment:
        """Closes the active segment and opens the next one, at the log end offset or at `base_offset` behind a hole
        (LOG-17, LOG-18).
        """
        base_offset = max(base_offset, self.log_end_offset)
        self.active.finish()
        begin_segment(self.producers, self.directory, base_offset, self.root)
        segment = Segment(self.directory, self.root, base_offset, self.files, now_ms=now_ms)
        segment.create_file()
        segment.measure_side_files()
        self.segments.append(segment)
        self.active = segment
        return segment

    def cache_position(self, offset: int, position: int) -> None:
        """Caches the position of `offset` in the segment that contains it."""
        positions = self._positions
        if len(positions) >= POSITIONS_MAX:
            self._old_positions = positions
            positions = self._positions = {}
        positions[offset] = position

    # -- reading ------------------------------------------------------------------------------------------------------

    def read(
        self, offset: int, max_bytes: int, limit_offset: int, *, min_one_batch: bool, may_wait: bool = True
    ) -> FileSlice | None:
        """Returns a slice of whole batches, from the batch with `offset` up to `limit_offset`, of about `max_bytes`
        (LOG-22 to LOG-24).

        Returns None if nothing is readable, or if the first batch is larger than `max_bytes` and `min_one_batch` is not
        set. Without `may_wait` it raises NotCached instead of waiting for the disk. Raises DamagedSegment.
        """
        if offset >= limit_offset or (max_bytes <= 0 and not min_one_batch):
            return None
        located = self.find_position(offset, may_wait)
        if located is None:
            return None
        number, position = located
        segment = self.segments[number]
        if segment.base_offset >= limit_offset:
            return None  # the records between the segments were compacted away
        if limit_offset == self.log_end_offset or segment is not self._find_segment(limit_offset)[1]:
            end = segment.size_bytes
        else:
            limit = self.find_position(limit_offset, may_wait)
            end = segment.size_bytes if limit is None or limit[0] != number else limit[1]
        if end - position > max_bytes:
            end = self._find_slice_end(segment, position, position + max_bytes, end, min_one_batch, may_wait)
        return FileSlice(segment.file, position, end - position) if end > position else None

    def find_position(self, offset: int, may_wait: bool = True) -> tuple[int, int] | None:
        """Returns (segment number, position) of the first batch whose last offset is >= `offset`, or None at the log
        end.

        Raises DamagedSegment, because a reader must not silently skip damaged records.
        """
        number, segment = self._find_segment(offset)
        position = self._positions.get(offset)
        if position is None:
            position = self._old_positions.get(offset)
        if position is not None:
            return number, position
        while True:
            if segment.damage_by_offset and offset in segment.damage_by_offset:  # readers repeat a failed request
                raise DamagedSegment(segment.file.path, segment.damage_by_offset[offset])
            located = segment.locate(offset, may_wait)
            if located is not None:
                if segment.base_offset <= offset:  # positions are cached only for the segment that contains the offset
                    self.cache_position(offset, located[0])
                return number, located[0]
            segment.raise_if_damaged(offset, may_wait)
            number += 1  # the offset lies in a gap at the end of this segment: the next one starts above it
            if number >= len(self.segments):
                return None
            segment = self.segments[number]

    def bytes_between(self, start_offset: int, end_offset: int) -> int:
        """Number of bytes taken by the batches between two offsets, over all segments; 0 if they cannot be read."""
        try:
            start = self.find_position(start_offset)
            end = None if end_offset >= self.log_end_offset else self.find_position(end_offset)
        except (DamagedSegment, StorageFailed) as failure:
            if isinstance(failure, StorageFailed) and not failure.is_transient:
                raise
            return 0  # a reader of these offsets gets the error
        if start is None:
            return 0
        end_number, end_position = (len(self.segments) - 1, self.active.size_bytes) if end is None else end
        return sum([segment.size_bytes for segment in self.segments[start[0] : end_number]]) + end_position - start[1]

    def _find_segment(self, offset: int) -> tuple[int, Segment]:
        """Returns the number and segment with the greatest base offset <= `offset`."""
        segments = self.segments
        if offset >= self.active.base_offset:
            return len(segments) - 1, self.active
        number = max(bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1, 0)
        return number, segments[number]

    def _find_slice_end(
        self, segment: Segment, position: int, end_max: int, end: int, min_one_batch: bool, may_wait: bool
    ) -> int:
        """Returns the end of a slice that may not reach `end`.

        The end is a batch boundary at or below `end_max`, or the end of the first batch if `min_one_batch` is set.
        """
        if not may_wait:
            segment.offset_index.require_cached()
        boundary = segment.offset_index.find_floor_position(end_max)
        if boundary > position:
            header = self._read_header_at(segment, boundary, may_wait)
            if header is not None:
                self.cache_position(header.base_offset, boundary)
                return boundary
        boundary = position
        for batch_position, header in segment.headers(position, end, may_wait):
            if batch_position + header.size_bytes > end_max:
                if batch_position == position and min_one_batch:
                    return position + header.size_bytes
                self.cache_position(header.base_offset, batch_position)
                return batch_position
            boundary = batch_position + header.size_bytes
        if boundary == position:
            raise DamagedSegment(segment.file.path, position)
        return boundary

    @staticmethod
    def _read_header_at(segment: Segment, position: int, may_wait: bool) -> BatchHeader | None:
        """Returns the header of the batch at an indexed position, or None if no batch begins there because the index is
        damaged.
        """
        data = segment.batch_at(position, layout.HEADER_BYTES, may_wait)
        if len(data) < layout.HEADER_BYTES:
            return None
        header = layout.read_header(data)
        is_batch = header.magic == layout.MAGIC and header.size_bytes >= layout.HEADER_BYTES
        is_in_segment = segment.base_offset <= header.base_offset and position + header.size_bytes <= segment.size_bytes
        return header if is_batch and is_in_segment else None

    # -- maintenance --------------------------------------------------------------------------------------------------

    def apply_retention(self, high_watermark: int, now_ms: int) -> list[str]:
        """Deletes the segments that retention releases (LOG-42 to LOG-44) and returns the `.deleted` files to unlink
        later.
        """
        if not self.active.size_bytes and len(self.segments) == 1:
            return []
        facts = [
            SegmentFacts(segment.base_offset, segment.size_bytes, segment.largest_timestamp())
            for segment in self.segments
        ]
        count = count_deletable(
            facts,
            self.config.retention,
            log_start_offset=self.log_start_offset,
            log_end_offset=self.log_end_offset,
            high_watermark=high_watermark,
            now_ms=now_ms,
        )
        if count == 0:
            return []
        if count == len(self.segments):
            self.roll(now_ms)
        self.advance_start(self.segments[count].base_offset)
        return self._remove_segments(self.segments[:count], self.segments[count:])

    def delete_oldest(self, count: int) -> list[str]:
        """Deletes up to `count` of the oldest segments, never the active one, and returns the `.deleted` files to
        unlink.
        """
        count = min(count, len(self.segments) - 1)
        if count <= 0:
            return []
        self.advance_start(self.segments[count].base_offset)
        return self._remove_segments(self.segments[:count], self.segments[count:])

    def advance_start(self, offset: int) -> None:
        """Raises the log start offset: records below it become unreadable and are deleted with their segment."""
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.epochs.truncate_start(offset)

    def on_start_offset_durable(self, offset: int) -> None:
        """Records that a log start offset of at least `offset` is on disk."""
        self.durable_start_offset = max(self.durable_start_offset, min(offset, self.log_start_offset))

    def _remove_segments(self, removed_segments: list[Segment], remaining: list[Segment]) -> list[str]:
        self.segments = remaining
        if remaining:
            self.on_start_offset_durable(remaining[0].base_offset)
        self.unflushed_deletions += 1
        self._clear_position_cache()
        renamed = []
        for segment in removed_segments:
            renamed += segment.mark_deleted()
            snapshot = snapshot_path(self.directory, segment.base_offset)
            if snapshot.exists():
                renamed.append(str(snapshot))
        return renamed

    def remove_all_segments(self) -> list[str]:
        """Removes all segments, the last one first, and returns the files to unlink.

        `as_follower.truncate_fully_and_start_at` calls it and adds a new segment.
        """
        return self._remove_segments(self.segments[::-1], [])

    def detach_segments(self, first_number: int, end_number: int) -> list[str]:
        """Removes closed segments before `attach_segment` adds their replacement; returns the files to unlink."""
        base_offset = self.segments[first_number].base_offset
        removed_files = self._remove_segments(
            self.segments[first_number:end_number], self.segments[:first_number] + self.segments[end_number:]
        )
        kept_snapshot = str(snapshot_path(self.directory, base_offset))
        return [path for path in removed_files if path != kept_snapshot]

    def attach_segment(self, number: int, segment: Segment) -> None:
        """Inserts a closed segment at index `number`."""
        self.segments = [*self.segments[:number], segment, *self.segments[number:]]
        self.may_have_aborts = self.may_have_aborts or segment.aborted is not None

    def truncate_to(self, offset: int, now_ms: int) -> list[str]:
        """Removes every batch that contains `offset` or a later one, and all batches behind damage; returns files to
        unlink.

        `recovery.truncate_log` calls it and then corrects the producer state.
        """
        if offset >= self.log_end_offset:
            return []
        self._clear_position_cache()
        remaining = [segment for segment in self.segments if segment.base_offset <= offset]
        removed_segments = self.segments[len(remaining) :]
        removed_segments.reverse()  # a crash in between must not leave a hole, here or with the truncation below
        renamed = self._remove_segments(removed_segments, remaining)
        sync_directory(Path(self.directory), self.root)
        if not remaining:
            remaining = self.segments = [Segment(self.directory, self.root, offset, self.files, now_ms=now_ms)]
            remaining[0].create_file()
        self.active = remaining[-1]
        self.active.load_indexes()
        size_bytes, offset = self.active.find_truncation_point(offset)
        if size_bytes < self.active.size_bytes:
            self.active.truncate(size_bytes, offset)
        self.log_end_offset = offset
        self.log_start_offset = min(self.log_start_offset, offset)
        self.durable_start_offset = min(self.durable_start_offset, offset)
        self.recovery_point = min(self.recovery_point, offset)
        self.epochs.truncate_end(offset)
        return renamed

    def _clear_position_cache(self) -> None:
        self._positions = {}
        self._old_positions = {}

    def close(self) -> None:
        """Writes complete index files and a producer snapshot at a clean stop; `flushing.FlushJob` flushes them."""
        self.epochs.save_unsaved()
        if self.active.size_bytes:
            self.active.finish()
            save_snapshot(self.producers, self.directory, self.log_end_offset, self.root)
        for segment in self.segments:
            segment.file.close()

    def free_memory(self) -> None:
        """Frees the memory of an idle log: cached positions and the indexes of closed segments."""
        self._clear_position_cache()
        for segment in self.segments[:-1]:
            segment.free_memory()

    def free_memory_of_closed_segments(self) -> None:
        """Frees the indexes of closed segments whose descriptors were closed because they were idle."""
        for segment in self.segments[:-1]:
            if segment.file.fd < 0:
                segment.free_memory()

    def check(self) -> None:
        """Asserts the invariants, for tests."""
        bases = [segment.base_offset for segment in self.segments]
        assert bases == sorted(set(bases)), "segments overlap"
        assert self.segments[-1] is self.active, "the active segment is the last one"
        assert bases[0] <= self.log_start_offset <= self.log_end_offset, "start and end offsets are out of order"
        assert self.recovery_point <= self.log_end_offset, "the recovery point is past the end"
