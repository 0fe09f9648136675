"""Random runs of appends, transactions, rolls, cleanings and restarts against the promises of compaction (TST-5, CMP-1
to CMP-9).

The model remembers every record that was written. After every step the whole log is read and compared with it.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from brokers.engine.records import batch as layout
from brokers.engine.records.builder import Record, build_batch, read_records
from brokers.engine.records.control import ABORT, COMMIT, end_marker
from brokers.engine.storage.log import LogConfig
from brokers.engine.storage.producer_state import CachedBatch
from brokers.engine.storage.transactions import replay_batch
from tests.testkit import depth
from tests.unit.brokers.engine.storage.compaction.cleaning import clean
from tests.unit.brokers.engine.storage.logs import NOW_MS, new_log, reopen

CONFIG = LogConfig(index_limits=(100, 10_000), segment_bytes=2_000)
RETENTION_MS = 1_000
SMALL_MAP_BYTES = 12 * 24
RECORDS = st.lists(
    st.tuples(st.sampled_from("abcdef"), st.one_of(st.none(), st.integers(0, 9)), st.integers(-50, 50)),
    min_size=1,
    max_size=5,
)


@dataclass
class Written:
    """One record; `transaction` is the number of its transaction, -1 for none."""

    record: Record
    transaction: int = -1


class CompactedLog(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.home = Path(tempfile.mkdtemp())
        self.log = new_log(self.home / "t-0", CONFIG)
        self.now_ms = NOW_MS
        self.written: dict[int, Written] = {}
        self.markers: dict[int, int] = {}  # offset of the marker -> transaction
        self.open: dict[int, int] = {}  # producer -> transaction
        self.first_offsets: dict[int, int] = {}
        self.aborted: set[int] = set()
        self.marker_of: dict[int, int] = {}
        self.sequences: dict[int, int] = {}
        self.checkpoint = 0
        self.completed: dict[int, int] = {}  # tombstone -> earliest time at which it may be removed

    def teardown(self) -> None:
        for segment in self.log.segments:
            segment.file.close()
        shutil.rmtree(self.home)

    # -- steps --------------------------------------------------------------------------------------------------------

    def _append(self, data: bytearray) -> int:
        header = layout.read_header(data)
        base = self.log.append(memoryview(data), header.last_offset_delta, header.max_timestamp, 0, self.now_ms)
        replay_batch(self.log, layout.read_header(data), data)
        self.log.producers.end_offset = self.log.log_end_offset
        return base

    @rule(content=RECORDS, codec=st.sampled_from([0, 1, 4]), producer=st.sampled_from([-1, 7, 8]))
    def append(self, content: list[tuple[str, int | None, int]], codec: int, producer: int) -> None:
        records = self._records(content)
        sequence = self.sequences.get(producer, 0) if producer >= 0 else -1
        self.sequences[producer] = sequence + len(records)
        epoch = 0 if producer >= 0 else -1
        data = build_batch(records, codec=codec, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
        self._remember(self._append(data), records, -1)

    @rule(content=RECORDS, producer=st.sampled_from([1, 2]))
    def write_in_transaction(self, content: list[tuple[str, int | None, int]], producer: int) -> None:
        records = self._records(content)
        sequence = self.sequences.get(producer, 0)
        self.sequences[producer] = sequence + len(records)
        flags = layout.TRANSACTIONAL
        data = build_batch(records, attributes=flags, producer_id=producer, producer_epoch=0, base_sequence=sequence)
        base = self._append(data)
        transaction = self.open.setdefault(producer, len(self.first_offsets))
        self.first_offsets.setdefault(transaction, base)
        self._remember(base, records, transaction)

    @precondition(lambda self: self.open)
    @rule(pick=st.data(), commit=st.booleans())
    def end_transaction(self, pick: st.DataObject, commit: bool) -> None:
        producer = pick.draw(st.sampled_from(sorted(self.open)))
        transaction = self.open.pop(producer)
        kind = COMMIT if commit else ABORT
        marker = end_marker(kind, timestamp_ms=self.now_ms, producer_id=producer, producer_epoch=0, coordinator_epoch=0)
        self.marker_of[transaction] = self._append(marker)
        if not commit:
            self.aborted.add(transaction)

    @rule()
    def roll(self) -> None:
        if self.log.active.size_bytes:
            self.log.roll(self.now_ms)

    @rule(by_ms=st.sampled_from([1, RETENTION_MS // 2, RETENTION_MS]))
    def wait(self, by_ms: int) -> None:
        self.now_ms += by_ms

    @rule(small=st.booleans())
    def clean(self, small: bool) -> None:
        producers = {producer: (last.last_offset, epoch) for producer, (epoch, last) in self._producers().items()}
        if len(self.log.segments) < 2 or self.log.segments[1].base_offset > self._stable():
            return
        done = clean(
            self.log,
            now_ms=self.now_ms,
            first_dirty=self.checkpoint,
            end_offset=self._stable(),
            delete_retention_ms=RETENTION_MS,
            map_bytes=SMALL_MAP_BYTES if small else 1 << 16,
            producers=producers,
        )
        self.checkpoint = max(self.checkpoint, done.end_offset)
        for offset, written in self.written.items():
            if offset < self.checkpoint and written.record.value is None:
                self.completed.setdefault(offset, self.now_ms + RETENTION_MS)

    @rule()
    def clean_until_all_horizons_have_passed(self) -> None:
        for _ in range(3):
            self.clean(small=False)
            self.wait(RETENTION_MS)

    @rule(crash=st.booleans(), lose_snapshots=st.booleans())
    def restart(self, crash: bool, lose_snapshots: bool) -> None:
        producers = self._producers()
        if not crash:
            self.log.close()
        for segment in self.log.segments:
            segment.file.close()
        if lose_snapshots:
            for path in (self.home / "t-0").glob("*.snapshot"):
                path.unlink()
        self.log, report = reopen(self.home / "t-0", CONFIG, clean=not crash)
        assert report.truncated_bytes == 0
        assert self._producers() == producers, "CMP-23: every producer continues where it was"

    def _producers(self) -> dict[int, tuple[int, CachedBatch]]:
        """Returns the producer state without timestamps: a batch that lost records carries the timestamp of the
        remaining ones.
        """
        known = self.log.producers.producers.items()
        return {producer: (entry.epoch, entry.batches[-1]._replace(timestamp_ms=0)) for producer, entry in known}

    def _records(self, content: list[tuple[str, int | None, int]]) -> list[Record]:
        return [
            Record(self.now_ms + shift, key.encode(), None if value is None else b"%d" % value)
            for key, value, shift in content
        ]

    def _remember(self, base: int, records: list[Record], transaction: int) -> None:
        for number, record in enumerate(records):
            self.written[base + number] = Written(record, transaction)

    def _stable(self) -> int:
        return min((self.first_offsets[at] for at in self.open.values()), default=self.log.log_end_offset)

    # -- invariants ---------------------------------------------------------------------------------------------------

    def _found(self) -> tuple[dict[int, Record], set[int]]:
        """Returns (records, offsets of control batches), read slice by slice as a consumer does."""
        records: dict[int, Record] = {}
        markers: set[int] = set()
        offset = self.log.log_start_offset
        while (piece := self.log.read(offset, 700, self.log.log_end_offset, min_one_batch=True)) is not None:
            data = piece.read()
            piece.release()
            for position, header in layout.scan_headers(data):
                assert header.base_offset >= offset, "order never changes"
                offset = header.next_offset
                if header.is_control:
                    markers |= {header.base_offset} if header.record_count else set()
                else:
                    records.update(read_records(data[position : position + header.size_bytes]))
        return records, markers

    @invariant()
    def the_log_keeps_its_promises(self) -> None:
        self.log.check()
        result, markers = self._found()
        assert self.log.log_end_offset == max([-1, *self.written, *self.marker_of.values()]) + 1
        latest: dict[bytes | None, int] = {}
        for offset, written in self.written.items():
            if offset in result:
                assert result[offset] == written.record, "CMP-4: what stays stays as it was, at its offset"
            elif offset >= self.checkpoint:
                raise AssertionError(f"CMP-1: offset {offset} of the head is missing")
            if written.transaction not in self.aborted:
                latest[written.record.key] = offset
        assert set(result) <= set(self.written)
        undecided = set(self.open.values())
        for key in latest:
            decided = [
                offset
                for offset, written in self.written.items()
                if written.record.key == key and written.transaction not in self.aborted | undecided
            ]
            if decided:
                self._check_latest(decided[-1], result)
        for offset in result:
            transaction = self.written[offset].transaction
            if transaction in self.marker_of:
                assert self.marker_of[transaction] in markers, "CMP-22: a reader must learn how it ended"

    def _check_latest(self, offset: int, found: dict[int, Record]) -> None:
        is_marker = self.written[offset].record.value is None
        if not is_marker or self.now_ms < self.completed.get(offset, self.now_ms + 1):
            assert offset in found, f"CMP-5, CMP-6: the last record of its key, offset {offset}, is missing"


TestCompactedLog = CompactedLog.TestCase
EXAMPLES = depth.number_from("PENSTOCK_COMPACTION_EXAMPLES", short=40, long=150)
TestCompactedLog.settings = settings(
    max_examples=EXAMPLES, stateful_step_count=30, suppress_health_check=list(HealthCheck)
)
