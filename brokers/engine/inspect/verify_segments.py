"""Verification of segments: every batch of the `.log`, and the indexes against these batches (LOG-8 to LOG-14)."""

from __future__ import annotations

from bisect import bisect_left
from pathlib import Path
from typing import NamedTuple

from brokers.engine.inspect.findings import Findings
from brokers.engine.inspect.reading import (
    Batch,
    UnreadableRest,
    read_batches,
    read_offset_entries,
    read_time_entries,
    segment_path,
)
from brokers.engine.inspect.verify_state import EpochCheck, ProducerCheck
from brokers.engine.inspect.verify_transactions import EndedTransactions, check_entries
from brokers.engine.records.batch import LONG_MAX
from brokers.engine.records.builder import records_block
from brokers.engine.records.compression import Oversized, Undecodable
from brokers.engine.records.walk import Malformed, check_fields
from brokers.engine.storage import rewriting, splitting
from brokers.engine.storage.indexes import Aborted
from brokers.engine.storage.log import RELATIVE_OFFSET_MAX
from brokers.engine.storage.rewriting import OldFormat, find_old_message
from brokers.engine.storage.segment import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX


class Rules(NamedTuple):
    """Rules of a verification.

    With `deep` the records are checked. With `gaps` offsets may be missing, as after compaction. `whole` is True if the
    segment is closed or its broker stopped cleanly, so that the indexes must be complete.
    """

    deep: bool
    gaps: bool
    whole: bool


class IndexedBatch(NamedTuple):
    """The properties of a batch that index entries refer to."""

    position: int
    base_offset: int
    last_offset: int
    max_timestamp: int


class SegmentCheck:
    """Verification of one segment. `run` returns the offset after its last readable batch."""

    def __init__(self, directory: Path, base: int, findings: Findings, rules: Rules) -> None:
        self.directory = directory
        self.base = base
        self.findings = findings
        self.rules = rules
        self.file = segment_path(directory, base, LOG_SUFFIX).name
        self.indexed_batches: list[IndexedBatch] = []
        self.aborted: list[Aborted] = []
        self.markers: dict[int, int] = {}  # offset of each marker → its producer
        self.faultless_count = 0  # number of `indexed_batches` before the first fault

    def run(
        self,
        previous_end_offset: int | None,
        epochs: EpochCheck,
        producers: ProducerCheck,
        next_base_offset: int = LONG_MAX,
        recovery_point: int = 0,
    ) -> int:
        """Verifies the segment and returns its end offset.

        `previous_end_offset` is the end offset of the previous segment, None for the first one. `next_base_offset` is
        the base offset of the next segment.
        """
        path = segment_path(self.directory, self.base, LOG_SUFFIX)
        self.findings.add_to_count("segments")
        next_offset = self.base
        if previous_end_offset is not None:
            if self.base < previous_end_offset:
                self.findings.report_fault(
                    self.file, f"begins below {previous_end_offset}, where the segment before ends"
                )
            elif self.base > previous_end_offset and not self.rules.gaps:
                self.findings.report_fault(
                    self.file, f"offsets {previous_end_offset} to {self.base - 1} are missing before it"
                )
        for batch in read_batches(path):
            if isinstance(batch, UnreadableRest):
                if batch.position == 0 and find_old_message(str(path), 0) is not None:
                    return self._old_messages(path, next_offset)
                problem = f"{batch.reason}; {batch.size_bytes} bytes from here on are unreadable"
                self.findings.report_fault(self.file, problem, position=batch.position, offset=next_offset)
                break
            self.findings.add_to_count("batches")
            self.findings.add_to_count("bytes", len(batch.data))
            faults_before = self.findings.faults
            self._check(batch, next_offset)
            header = batch.header
            epochs.add_batch(self.file, batch.position, header)
            aborted = producers.add_batch(batch)
            if aborted is not None:
                self.aborted.append(aborted)
            if header.is_control:
                self.markers[header.last_offset] = header.producer_id
            if self.findings.faults == faults_before and self.faultless_count == len(self.indexed_batches):
                self.faultless_count += 1
            self.indexed_batches.append(
                IndexedBatch(batch.position, header.base_offset, header.last_offset, header.max_timestamp)
            )
            next_offset = max(next_offset, header.next_offset)
        if not self._is_to_be_split(next_base_offset, recovery_point):
            self._check_offset_index()
            self._check_time_index()
        self._check_transaction_index(producers.transactions.first_offset or 0)
        return next_offset

    def _is_to_be_split(self, next_base_offset: int, recovery_point: int) -> bool:
        """True if the segment is valid except for offsets that its indexes cannot express, so that the next start
        splits it. Batches with such offsets that the next start would not accept are faults.
        """
        limit = self.base + RELATIVE_OFFSET_MAX
        distant_batches = [indexed for indexed in self.indexed_batches if indexed.last_offset > limit]
        if not distant_batches:
            return False
        confirmed_batches = splitting.filter_confirmed(
            self.indexed_batches[: self.faultless_count], self.base, next_base_offset, recovery_point
        )
        confirmed_positions = {indexed.position for indexed in confirmed_batches if indexed.last_offset > limit}
        for indexed in distant_batches:
            if indexed.position not in confirmed_positions:
                problem = "offset is too far from the segment's base"
                self.findings.report_fault(self.file, problem, position=indexed.position, offset=indexed.base_offset)
        if confirmed_positions:
            problem = "holds offsets too far from its base for an index to name; the next start splits it"
            self.findings.report_note(self.file, problem)
        return bool(confirmed_positions)

    def _old_messages(self, path: Path, next_offset: int) -> int:
        """Verifies a segment that Kafka wrote before 0.11, whose indexes are rewritten with it."""
        try:
            end = rewriting.end_offset(str(path))
        except OldFormat as damage:
            self.findings.report_fault(self.file, str(damage), offset=next_offset)
            return next_offset
        self.findings.report_note(self.file, "holds intact messages of an old format; the next start rewrites them")
        return max(end, next_offset)

    def _check(self, batch: Batch, next_offset: int) -> None:
        header = batch.header
        faults_before = self.findings.faults
        if not batch.is_intact:
            self._fault(batch, f"checksum {header.crc:#010x} is not that of the batch")
        if header.base_offset < next_offset:
            self._fault(batch, f"offset goes back, {next_offset} was next")
        elif header.base_offset > next_offset and not self.rules.gaps:
            self._fault(batch, f"offsets {next_offset} to {header.base_offset - 1} are missing before it")
        if header.last_offset_delta < 0 or not 0 <= header.record_count <= header.last_offset_delta + 1:
            self._fault(batch, f"{header.record_count} records over {header.last_offset_delta + 1} offsets")
        elif header.record_count <= header.last_offset_delta and not self.rules.gaps:
            self._fault(batch, f"only {header.record_count} records over {header.last_offset_delta + 1} offsets")
        if self.rules.deep and self.findings.faults == faults_before:
            self._check_records(batch)

    def _check_records(self, batch: Batch) -> None:
        header = batch.header
        try:
            block = records_block(batch.data) if header.record_count else b""
            check_fields(block, header.record_count)
        except (Malformed, Undecodable, Oversized, KeyError) as error:
            self._fault(batch, f"its records cannot be read: {error}")
            return
        self.findings.add_to_count("records", header.record_count)

    def _fault(self, batch: Batch, problem: str) -> None:
        self.findings.report_fault(self.file, problem, position=batch.position, offset=batch.header.base_offset)

    # -- indexes ------------------------------------------------------------------------------------------------------

    def _find_index_file(self, suffix: str) -> Path | None:
        path = segment_path(self.directory, self.base, suffix)
        if path.exists():
            return path
        if self.indexed_batches:
            if self.rules.whole:
                self.findings.report_fault(path.name, "is missing; the next start reads the segment to rebuild it")
            else:
                self.findings.report_note(path.name, "is missing, as after a crash; the next start rebuilds it")
        return None

    def _check_offset_index(self) -> None:
        path = self._find_index_file(INDEX_SUFFIX)
        if path is None:
            return
        index = read_offset_entries(path)
        _check_tail(self.findings, path.name, index.zero_bytes, index.odd_bytes)
        starts = {indexed.position: number for number, indexed in enumerate(self.indexed_batches)}
        previous_entry = (-1, -1)
        covering = 0
        for number, (relative, position) in enumerate(index.entries):
            entry_position, offset = number * 8, self.base + relative
            if relative <= previous_entry[0] or position <= previous_entry[1]:
                self.findings.report_fault(path.name, "entries do not grow", position=entry_position, offset=offset)
            previous_entry = (relative, position)
            start = starts.get(position)
            if start is None:
                self.findings.report_fault(
                    path.name, f"no batch begins at byte {position}", position=entry_position, offset=offset
                )
                continue
            indexed = self.indexed_batches[start]
            if indexed.last_offset == offset:
                continue
            later = bisect_left(self.indexed_batches, offset, lo=start, key=lambda indexed: indexed.last_offset)
            if (
                offset < indexed.last_offset
                or later == len(self.indexed_batches)
                or self.indexed_batches[later].last_offset != offset
            ):
                problem = f"the batch at byte {position} ends with offset {indexed.last_offset}"
                self.findings.report_fault(path.name, problem, position=entry_position, offset=offset)
            else:
                covering += 1
        if covering:
            self.findings.report_note(path.name, f"{covering} entries cover several batches, as a follower writes them")

    def _check_time_index(self) -> None:
        path = self._find_index_file(TIME_INDEX_SUFFIX)
        if path is None:
            return
        index = read_time_entries(path)
        _check_tail(self.findings, path.name, index.zero_bytes, index.odd_bytes)
        previous_entry = (-1, -1)
        greatest, batch_number = -1, 0
        for number, (timestamp, relative) in enumerate(index.entries):
            entry_position, offset = number * 12, self.base + relative
            if timestamp <= previous_entry[0] or relative < previous_entry[1]:
                self.findings.report_fault(path.name, "entries do not grow", position=entry_position, offset=offset)
                previous_entry = (timestamp, relative)
                continue
            previous_entry = (timestamp, relative)
            while batch_number < len(self.indexed_batches) and self.indexed_batches[batch_number].last_offset < offset:
                greatest = max(greatest, self.indexed_batches[batch_number].max_timestamp)
                batch_number += 1
            batch = self.indexed_batches[batch_number] if batch_number < len(self.indexed_batches) else None
            if batch is None or batch.base_offset > offset:
                self.findings.report_fault(
                    path.name, "no batch holds this offset", position=entry_position, offset=offset
                )
            elif batch.max_timestamp != timestamp:
                problem = f"says {timestamp}, the batch's greatest timestamp is {batch.max_timestamp}"
                self.findings.report_fault(path.name, problem, position=entry_position, offset=offset)
            elif greatest >= timestamp:
                problem = f"an earlier batch reaches {greatest}, at or after {timestamp}"
                self.findings.report_fault(path.name, problem, position=entry_position, offset=offset)
            elif batch.last_offset != offset:
                self.findings.report_note(
                    path.name, "names an offset inside the batch", position=entry_position, offset=offset
                )
        latest = max((indexed.max_timestamp for indexed in self.indexed_batches), default=-1)
        if self.rules.whole and latest > previous_entry[0]:
            self.findings.report_fault(
                path.name, f"ends with {previous_entry[0]}, the segment's greatest timestamp is {latest}"
            )

    def _check_transaction_index(self, log_start_offset: int) -> None:
        path = segment_path(self.directory, self.base, TRANSACTION_INDEX_SUFFIX)
        ended = EndedTransactions(self.aborted, self.markers, log_start_offset)
        check_entries(path, ended, self.findings, gaps=self.rules.gaps, whole=self.rules.whole)


def _check_tail(findings: Findings, file: str, zero_bytes: int, odd_bytes: int) -> None:
    if odd_bytes:
        findings.report_fault(file, f"{odd_bytes} bytes at its end are not a whole entry")
    if zero_bytes:
        findings.report_note(file, f"{zero_bytes} bytes of zeros at its end, as Apache Kafka preallocates")
