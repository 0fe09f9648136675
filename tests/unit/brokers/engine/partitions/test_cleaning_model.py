"""Cleanings interrupted at any point, with appends, DeleteRecords, retention, readers and restarts (TST-5, CMP-1 to
CMP-9).

Unlike the model of a single log, this one uses the cleaner's scheduling, and the run stops at every I/O operation. The
model remembers every record; after every step the log is read whole and compared with it.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Final

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from brokers.engine.partitions.cleaning import Cleaner, LogToClean
from brokers.engine.partitions.deletion import delete_before
from brokers.engine.records.builder import Record, build_batch
from brokers.engine.storage.compaction.job import Cleaned, Failed, Fault, Finished
from brokers.engine.storage.compaction.settings import CleanerSettings
from brokers.engine.storage.files import FileSlice
from tests.testkit import depth
from tests.unit.brokers.engine.partitions.stepped import SteppedRun
from tests.unit.brokers.engine.partitions.test_table import NOW_MS, opened
from tests.unit.brokers.engine.storage.logs import read_all

EXAMPLES: Final = depth.number_from("PENSTOCK_CLEANING_EXAMPLES", short=15, long=60)
BACKOFF_MS: Final = 100
MARKER_MS: Final = 1_000  # delete.retention.ms
RETENTION_MS: Final = 20_000
CONTENT = st.lists(
    st.tuples(st.sampled_from("abcdef"), st.one_of(st.none(), st.integers(0, 9)), st.integers(-50, 50)),
    min_size=1,
    max_size=6,
)


class CleanedPartition(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.home = Path(tempfile.mkdtemp())
        self.now_ms = NOW_MS
        self.written: dict[int, Record] = {}
        self.touched = 0  # upper bound of the offsets that any swap may have rewritten
        self.completed: dict[int, int] = {}  # tombstone -> earliest time at which it may be removed
        self.work: LogToClean | None = None
        self.run: SteppedRun | None = None
        self.held: list[tuple[FileSlice, bytes]] = []

    @initialize(
        deletes=st.booleans(), lag_ms_min=st.sampled_from([0, 0, 500]), lag_ms_max=st.sampled_from([None, 2_000])
    )
    def begin(self, deletes: bool, lag_ms_min: int, lag_ms_max: int | None) -> None:
        self.deletes = deletes
        self.lag_ms_min = lag_ms_min
        self.lag_ms_max = lag_ms_max
        self.config = {
            "cleanup.policy": "compact,delete" if deletes else "compact",
            "retention.ms": str(RETENTION_MS),
            "min.compaction.lag.ms": str(lag_ms_min),
            "delete.retention.ms": str(MARKER_MS),
            "file.delete.delay.ms": "10",
            "index.interval.bytes": "100",
            "min.cleanable.dirty.ratio": "0.01",
        }
        if lag_ms_max is not None:
            self.config["max.compaction.lag.ms"] = str(lag_ms_max)
        self._open()

    def _open(self) -> None:
        self.table = opened(self.home, retention_interval_ms=0)
        self.partition = self.table.become_leader("t", 0, b"1" * 16, 0, self.config, now_ms=self.now_ms)
        log = self.partition.log
        log.config = log.config._replace(segment_bytes=600)
        self.cleaner = Cleaner(self.table, CleanerSettings(backoff_ms=BACKOFF_MS))

    def teardown(self) -> None:
        if hasattr(self, "table"):
            self._stop_run()
            self._release()
            self.table.close()
        shutil.rmtree(self.home)

    # -- steps of the partition ---------------------------------------------------------------------------------------

    @rule(contents=st.lists(CONTENT, min_size=1, max_size=10), codec=st.sampled_from([0, 1, 4]))
    def append(self, contents: list[list[tuple[str, int | None, int]]], codec: int) -> None:
        for content in contents:
            self._append(content, codec)

    def _append(self, content: list[tuple[str, int | None, int]], codec: int) -> None:
        records = [
            Record(self.now_ms + shift, key.encode(), None if value is None else b"%d" % value * 20)
            for key, value, shift in content
        ]
        data = memoryview(build_batch(records, codec=codec))
        answer = self.partition.append(data, self.now_ms, acks=1, produce_version=9)
        assert answer.error_code == 0
        self.written.update({answer.base_offset + at: record for at, record in enumerate(records)})

    @rule(by_ms=st.sampled_from([1, BACKOFF_MS, MARKER_MS, RETENTION_MS]))
    def wait(self, by_ms: int) -> None:
        self.now_ms += by_ms

    @rule()
    def keep_house(self) -> None:
        self.table.maintain(self.now_ms)

    @precondition(lambda self: self.deletes and self.written)
    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        start, end = self.partition.log.log_start_offset, self.partition.high_watermark
        assert delete_before(self.partition, start + int((end - start) * share)).error_code == 0

    @rule(share=st.floats(0, 1))
    def hold(self, share: float) -> None:
        """Gives a reader a slice that it reads later (CMP-29)."""
        log = self.partition.log
        at = log.log_start_offset + int((log.log_end_offset - log.log_start_offset) * share)
        piece = log.read(at, 500, log.log_end_offset, min_one_batch=True)
        if piece is not None:
            self.held.append((piece, piece.read()))

    @rule()
    def release(self) -> None:
        self._release()

    def _release(self) -> None:
        for piece, data in self.held:
            assert piece.read() == data, "a read that began on an old file finishes on it"
            piece.release()
        self.held.clear()

    @rule(crash=st.booleans())
    def restart(self, crash: bool) -> None:
        """Restarts the broker; its cleaner process ends with it."""
        self._stop_run()
        self._release()
        start, end = self.partition.log.log_start_offset, self.partition.log.log_end_offset
        if crash:
            for segment in self.partition.log.segments:
                segment.file.close()
            for root in self.table._roots:
                root.unlock()
        else:
            self.table.close()
        self._open()
        log = self.partition.log
        assert log.log_end_offset == end, "nothing is lost"
        assert log.log_start_offset == start or (crash and log.log_start_offset < start)

    # -- steps of the cleaner -----------------------------------------------------------------------------------------

    @precondition(lambda self: self.work is None)
    @rule(steps=st.integers(0, 8))
    def plan(self, steps: int) -> None:
        """Starts a run for a due log and executes some of its steps."""
        work = self.work = self.cleaner.plan(self.now_ms)
        if work is None:
            return
        assert self.cleaner.plan(self.now_ms) is None, "never two on one log"
        log = self.partition.log
        assert max(base for base, _ in work.job.segments) < log.active.base_offset, "CMP-8"
        for offset, record in self.written.items():
            if work.job.first_dirty <= offset < work.job.end_offset:
                assert record.timestamp_ms <= self.now_ms - self.lag_ms_min or not self.lag_ms_min, "CMP-2"
        work.flush_log()
        self.cleaner.finish_flush(work)
        if work.is_first:
            self.cleaner.checkpoint(self.home).write()
        self.run = SteppedRun(work.job)
        self.step(steps)

    @precondition(lambda self: self.run is not None)
    @rule(steps=st.integers(1, 8))
    def step(self, steps: int) -> None:
        for _ in range(steps):
            if self.run is not None:
                self._step(self.run)

    @precondition(lambda self: self.run is not None)
    @rule()
    def finish(self) -> None:
        while self.run is not None:
            self._step(self.run)

    @precondition(lambda self: self.run is not None)
    @rule()
    def kill(self) -> None:
        """Kills only the cleaner process; the run is repeated after the back-off."""
        assert self.run is not None and self.work is not None
        self.run.kill()
        work, self.run, self.work = self.work, None, None
        assert self.cleaner.on_failed(work, Failed("killed", Fault.TRANSIENT), self.now_ms) is not None
        assert self.cleaner.plan(self.now_ms) is None

    def _step(self, run: SteppedRun) -> None:
        assert self.work is not None
        work, event = self.work, run.step()
        if isinstance(event, Cleaned):
            if not self.cleaner.swap_in(work, event, self.now_ms):
                self._stop_run()
                return
            ends = [base for base, _ in work.job.segments[1:]] + [work.job.end_offset]
            end = dict(zip([base for base, _ in work.job.segments], ends, strict=True))[event.sources[-1]]
            self.touched = max(self.touched, end)
            for offset, record in self.written.items():
                if event.sources[0] <= offset < end and record.value is None:
                    self.completed.setdefault(offset, work.job.now_ms + MARKER_MS)
        elif isinstance(event, Finished):
            run.kill()
            self.cleaner.on_finished(work, event)
            self.cleaner.checkpoint(self.home).write()
            self.work = self.run = None
            self._tail_is_clean(event.end_offset)
        elif run.is_over:
            assert isinstance(run.error, FileNotFoundError), run.error
            self.cleaner.on_failed(work, Failed(str(run.error), Fault.TRANSIENT), self.now_ms)
            self.work = self.run = None

    def _stop_run(self) -> None:
        if self.run is not None and self.work is not None:
            self.run.kill()
            self.cleaner.abandon(self.work)
        self.work = self.run = None

    # -- invariants ---------------------------------------------------------------------------------------------------

    def _tail_is_clean(self, end_offset: int) -> None:
        keys = [record.key for offset, record in read_all(self.partition.log) if offset < end_offset]
        assert len(keys) == len(set(keys)), "one record of each key"

    @invariant()
    def the_partition_keeps_its_promises(self) -> None:
        if not hasattr(self, "table"):
            return
        log = self.partition.log
        log.check()
        start = log.log_start_offset
        everything = read_all(log)
        offsets = [offset for offset, _ in everything]
        assert offsets == sorted(offsets), "CMP-3"
        result = dict(everything)
        latest: dict[bytes | None, int] = {}
        for offset, record in self.written.items():
            latest[record.key] = offset
            if offset in result:
                assert result[offset] == record, "CMP-4: what stays stays as it was, at its offset"
            elif offset >= start:
                assert offset < self.touched, f"CMP-1: offset {offset} of the head is missing"
                assert not self.lag_ms_min or record.timestamp_ms <= self.now_ms - self.lag_ms_min, "CMP-2"
        assert set(result) <= set(self.written)
        for key, offset in latest.items():
            if offset < start or offset in result:
                continue
            is_marker = self.written[offset].value is None
            may_go = is_marker and self.now_ms >= self.completed.get(offset, self.now_ms + 1)
            assert may_go, f"CMP-5, CMP-6: the last record of {key!r}, offset {offset}, is missing"


TestCleanedPartition = CleanedPartition.TestCase
TestCleanedPartition.settings = settings(
    max_examples=EXAMPLES, stateful_step_count=40, suppress_health_check=list(HealthCheck)
)
