"""A cleaning run: maps the head, then rewrites every segment up to the end of the map (CMP-18, CMP-19).

It only reads closed segments and writes `.cleaned` files; the broker replaces the segments (`swap`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from time import process_time

from brokers.engine.records.batch import BatchHeader
from brokers.engine.records.builder import records_block
from brokers.engine.records.compression import Oversized, Undecodable
from brokers.engine.records.control import marker_kind
from brokers.engine.records.walk import Malformed
from brokers.engine.storage.compaction.fields import read_fields, read_keys
from brokers.engine.storage.compaction.filtering import BatchRetention, delete_horizon_of, rewrite
from brokers.engine.storage.compaction.job import Cleaned, CleaningFailed, Event, Finished, Job
from brokers.engine.storage.compaction.offset_map import LiveOffsetFilter, OffsetMap
from brokers.engine.storage.compaction.pacing import Pacer
from brokers.engine.storage.compaction.reading import Batches, log_path, read_batches
from brokers.engine.storage.compaction.selection import SourceSegment, group_segments
from brokers.engine.storage.compaction.transactions import Markers, Outcomes
from brokers.engine.storage.compaction.writing import CleanedSegment
from brokers.engine.storage.files import sync_directory
from brokers.engine.storage.indexes import Aborted, AbortedIndex
from brokers.engine.storage.segment import INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX, base_name


class Run:
    """One cleaning run; `report` gets an event for each rewritten group, in order, and one at the end."""

    def __init__(self, job: Job, report: Callable[[Event], None], pacer: Pacer) -> None:
        self._job = job
        self._report = report
        self._pacer = pacer
        self._offsets = OffsetMap(job.map_bytes, job.load_factor, keys_max=job.end_offset - job.first_dirty)
        self._offsets.latest_offset = job.first_dirty - 1
        self._outcomes = Outcomes()
        self._markers = Markers()
        # Aborted transactions listed in the index of the current segment, by the offset of the marker.
        self._aborted_by_marker: dict[int, Aborted] = {}
        self._live_offsets = LiveOffsetFilter(self._offsets, job.first_dirty)
        self._cpu_s_before = process_time()
        self._kept_records = self._dropped_records = self._keyless_records = 0

    def run(self) -> None:
        """Runs the job. Raises CleaningFailed and OSError."""
        job = self._job
        end_offset = self._map_head()
        self._live_offsets = LiveOffsetFilter(self._offsets, job.first_dirty)
        sources = self._source_segments(end_offset)
        bytes_before = bytes_after = 0
        for members in group_segments(sources, job.segment_bytes, job.index_bytes):
            cleaned = self._rewrite_group(members)
            bytes_before += cleaned.bytes_before
            bytes_after += cleaned.size_bytes
            self._report(cleaned)
        self._report(
            Finished(
                end_offset,
                bytes_before,
                bytes_after,
                self._kept_records,
                self._dropped_records,
                self._keyless_records,
                self._offsets.entries,
                self._pacer.total_bytes,
                round(self._pacer.waited_s, 3),
                round(process_time() - self._cpu_s_before, 3),
            )
        )

    def _batches(self, base_offset: int, size_bytes: int) -> Batches:
        path = log_path(self._job.directory, base_offset)
        return read_batches(path, size_bytes, self._job.buffer_bytes, self._pacer)

    # -- the head -----------------------------------------------------------------------------------------------------

    def _map_head(self) -> int:
        """Fills the offset map and returns the end offset of this run."""
        job = self._job
        end_offsets = [base for base, _ in job.segments[1:]] + [job.end_offset]
        dirty = [
            (base, size, end)
            for (base, size), end in zip(job.segments, end_offsets, strict=True)
            if end > job.first_dirty
        ]
        has_outcomes = False
        for base, size, end in dirty:
            with closing(self._batches(base, size)) as batch_stream:
                for header, data in batch_stream:
                    if header.last_offset < job.first_dirty:
                        continue
                    if header.is_transactional and not has_outcomes:
                        # Most logs have no transactions and do not need a second pass.
                        self._collect_outcomes([(base, size) for base, size, _ in dirty])
                        has_outcomes = True
                    if not self._map_batch(base, header, data):
                        if self._offsets.latest_offset < job.first_dirty:
                            raise CleaningFailed(
                                log_path(job.directory, base), 0, "one batch has more keys than the offset map has room"
                            )
                        return self._offsets.latest_offset + 1
                    self._offsets.latest_offset = header.last_offset
            self._offsets.latest_offset = end - 1
        return job.end_offset

    def _map_batch(self, base_offset: int, header: BatchHeader, data: memoryview) -> bool:
        """Maps the keys of a batch; returns False if the map is full before the end of the batch."""
        if header.is_control or not header.record_count or self._outcomes.is_aborted(header):
            return True
        put, base, first_dirty = self._offsets.put, header.base_offset, self._job.first_dirty
        keyless = 0
        try:
            for delta, key in read_keys(records_block(data), header.record_count):
                if key is None:
                    keyless += 1
                elif base + delta >= first_dirty and not put(key, base + delta):
                    return False
        except (Malformed, Undecodable, Oversized) as error:
            raise self._unreadable_batch(base_offset, header, error) from None
        if base >= first_dirty:
            self._keyless_records += keyless
        return True

    def _collect_outcomes(self, dirty: Sequence[tuple[int, int]]) -> None:
        """Determines how the transactions of the head ended; their markers may lie beyond it."""
        for base, size in dirty:
            with closing(self._batches(base, size)) as batch_stream:
                for header, data in batch_stream:
                    if header.is_control or header.is_transactional:
                        self._outcomes.add_batch(header, _read_marker_kind(header, data))
        for base, size in self._job.ahead:
            if not self._outcomes.has_undecided:
                return
            with closing(self._batches(base, size)) as batch_stream:
                for header, data in batch_stream:
                    if header.base_offset >= self._job.committed_offset:
                        break
                    self._outcomes.add_batch(header, _read_marker_kind(header, data), is_beyond_head=True)
        if self._outcomes.has_undecided:
            directory = self._job.directory
            raise CleaningFailed(directory, 0, "a transaction below the last stable offset has no end")

    # -- rewriting ----------------------------------------------------------------------------------------------------

    def _source_segments(self, end_offset: int) -> list[SourceSegment]:
        job = self._job
        end_offsets = [base for base, _ in job.segments[1:]] + [job.end_offset]
        sources = []
        for (base, size), next_base in zip(job.segments, end_offsets, strict=True):
            if base < end_offset:
                stem = f"{job.directory}/{base_name(base)}"
                index, time_index = _file_bytes(stem + INDEX_SUFFIX), _file_bytes(stem + TIME_INDEX_SUFFIX)
                sources.append(SourceSegment(base, next_base, size, index, time_index))
        return sources

    def _rewrite_group(self, members: Sequence[SourceSegment]) -> Cleaned:
        job = self._job
        base_offset = members[0].base_offset
        target = CleanedSegment(job.directory, base_offset, job.index_interval_bytes, job.buffer_bytes, self._pacer)
        try:
            for source in members:
                self._aborted_by_marker = _read_aborted_index(job.directory, source.base_offset)
                with closing(self._batches(source.base_offset, source.size_bytes)) as batch_stream:
                    for header, data in batch_stream:
                        self._rewrite_batch(source.base_offset, header, data, target)
            modified = os.stat(log_path(job.directory, members[-1].base_offset))  # noqa: PTH116
            target.finish(modified.st_mtime_ns)
        finally:
            target.close()
        sync_directory(Path(job.directory), Path(job.directory).parent)
        return Cleaned(
            base_offset,
            [source.base_offset for source in members],
            target.size_bytes,
            sum(source.size_bytes for source in members),
            target.max_timestamp,
            target.max_timestamp_offset,
        )

    def _rewrite_batch(self, base_offset: int, header: BatchHeader, data: memoryview, target: CleanedSegment) -> None:
        job = self._job
        retention = self._decide_retention(header)
        try:
            rewritten = rewrite(
                data,
                header,
                self._offsets,
                retention,
                now_ms=job.now_ms,
                delete_retention_ms=job.delete_retention_ms,
            )
        except (Malformed, Undecodable, Oversized) as error:
            raise self._unreadable_batch(base_offset, header, error) from None
        self._kept_records += rewritten.kept
        self._dropped_records += rewritten.dropped
        if header.base_offset < job.first_dirty:  # batches of the head were counted when they were mapped
            self._keyless_records += rewritten.keyless
        if rewritten.data is not None:
            target.add(rewritten.data, header.last_offset, rewritten.largest_timestamp)
            aborted = self._aborted_by_marker.get(header.last_offset)
            if aborted is not None and not retention.is_marker_obsolete:
                # The source still had data of this transaction, which a reader may be reading (CMP-22).
                target.add_aborted(aborted)

    def _decide_retention(self, header: BatchHeader) -> BatchRetention:
        is_obsolete = self._markers.process(header)
        if header.is_control:
            horizon = delete_horizon_of(header)
            drop_records = is_obsolete and (
                not header.record_count or (horizon is not None and horizon <= self._job.now_ms)
            )
        else:
            is_live = not header.record_count or self._live_offsets.may_have_live(
                header.base_offset, header.last_offset
            )
            drop_records = not is_live or self._outcomes.is_aborted(header)
        return BatchRetention(drop_records, self._is_last_of_producer(header), is_obsolete)

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        """True if the batch carries the last sequence of a live producer (CMP-23)."""
        last_batch = self._job.producers.get(header.producer_id)
        if header.producer_id < 0 or last_batch is None:
            return False
        offset, epoch = last_batch
        if offset >= 0:
            return header.last_offset == offset
        return header.is_control and header.producer_epoch == epoch

    def _unreadable_batch(self, base_offset: int, header: BatchHeader, error: Exception) -> CleaningFailed:
        path = log_path(self._job.directory, base_offset)
        return CleaningFailed(path, 0, f"the batch at offset {header.base_offset} cannot be read: {error}")


def _read_marker_kind(header: BatchHeader, data: memoryview) -> int | None:
    """Returns the marker type of a control batch that still has its record, else None."""
    if not header.is_control or not header.record_count:
        return None
    try:
        key = read_fields(records_block(data), header.record_count)[0][5]
    except (Malformed, Undecodable, Oversized):
        return None
    return marker_kind(key) if key is not None and len(key) >= 4 else None


def _read_aborted_index(directory: str, base_offset: int) -> dict[int, Aborted]:
    path = f"{directory}/{base_name(base_offset)}{TRANSACTION_INDEX_SUFFIX}"
    index = AbortedIndex(path, Path(directory).parent, base_offset, is_new=False)
    entries = [index.entry(number) for number in range(len(index))]
    return {entry.marker_offset: entry for entry in entries}


def _file_bytes(path: str) -> int:
    return os.stat(path).st_size if os.path.exists(path) else 0  # noqa: PTH110, PTH116
