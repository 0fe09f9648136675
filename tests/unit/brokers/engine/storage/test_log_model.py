"""Random runs of appends, rolls, flushes, truncations, deletions and restarts against a list (LOG-15 to LOG-39).

A run is a byte string with two bytes per step: cheap to draw, and it shrinks to the shortest failing run. The suite
runs thousands of small ones; `make simulate` adds a disk that loses power.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from brokers.engine.records import batch as layout
from brokers.engine.records.builder import Record, build_batch
from brokers.engine.storage.files import OpenFiles
from brokers.engine.storage.flushing import FlushJob
from brokers.engine.storage.log import LogConfig
from brokers.engine.storage.recovery import LogCheckpoint, create_log, load_log, truncate_log
from brokers.engine.storage.retention import RetentionRules
from brokers.engine.storage.transactions import replay_batch
from tests.simulation.checks import check_lookups, read_all
from tests.simulation.matrix import quick_directory
from tests.testkit import depth
from tests.unit.brokers.engine.storage.logs import NOW_MS

EXAMPLES_WANTED: Final = depth.number_from("PENSTOCK_LOG_EXAMPLES", short=500, long=7_000)
STEPS_MAX: Final = 10
CONFIG: Final = LogConfig(
    segment_bytes=600, index_limits=(100, 10_000), retention=RetentionRules(retention_ms=-1, retention_bytes=900)
)
FILES: Final = OpenFiles(limit=8)


class Modelled:
    """A log with its expected content: `records` by offset, `start`, and the last batch of each producer."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()
        where = (str(directory), directory.parent, "t", 0, FILES, CONFIG)
        self.log = create_log(*where, now_ms=NOW_MS)
        self.log.epochs.assign(0, 0)
        self.records: list[Record] = []
        self.epochs: list[int] = []
        self.epoch = self.start = self.recovery_point = 0
        self.producers: dict[int, list[tuple[int, int]]] = {7: [], 8: []}  # (first offset, next sequence)

    def step(self, what: int, how: int) -> None:
        often = (self.append,) * 6
        seldom = (self.roll, self.flush, self.truncate, self.reopen, self.retain, self.delete, self.elect)
        actions = (*often, *seldom)
        actions[what % len(actions)](how)

    def append(self, how: int) -> None:
        count, producer = 1 + how % 3, (-1, 7, 8, -1)[how >> 6]
        base = len(self.records)
        added = [
            Record(NOW_MS + (how * 37 + at * 11) % 97, None, b"%d" % (base + at) * (how % 9)) for at in range(count)
        ]
        numbered = self.producers.get(producer, [])
        sequence = (numbered[-1][1] if numbered else 0) if producer >= 0 else -1
        numbered.append((base, sequence + count))
        data = build_batch(
            added,
            codec=how >> 5 & 1,
            producer_id=producer,
            producer_epoch=-1 if producer < 0 else 0,
            base_sequence=sequence,
        )
        latest = max(record.timestamp_ms for record in added)
        assert self.log.append(memoryview(data), count - 1, latest, self.epoch, NOW_MS) == base
        replay_batch(self.log, layout.read_header(data), data)
        self.log.producers.end_offset = self.log.log_end_offset
        self.records += added
        self.epochs += [self.epoch] * count

    def roll(self, how: int) -> None:
        if self.log.active.size_bytes:
            self.log.roll(NOW_MS)

    def flush(self, how: int) -> None:
        job = FlushJob(self.log)
        job.run()
        job.finish()
        self.recovery_point = self.log.recovery_point

    def elect(self, how: int) -> None:
        self.epoch += 1 + how % 2
        self.log.epochs.assign(self.epoch, self.log.log_end_offset)

    def retain(self, how: int) -> None:
        for path in self.log.apply_retention(self.log.log_end_offset, NOW_MS):
            Path(path).unlink()
        self.start = self.log.log_start_offset
        assert self.log.size_bytes <= 900 + 600 + 200

    def delete(self, how: int) -> None:
        self.log.advance_start(min(how, len(self.records)))
        self.start = max(self.start, min(how, len(self.records)))

    def truncate(self, how: int) -> None:
        target = max(self.start, len(self.records) - how % 16)
        held = read_all(self.log)[1]
        cut = next((header.base_offset for header in held if header.last_offset >= target), len(self.records))
        if cut < self.start:
            return
        for path in truncate_log(self.log, target, NOW_MS):
            Path(path).unlink(missing_ok=True)
        del self.records[cut:]
        del self.epochs[cut:]
        for numbered in self.producers.values():
            numbered[:] = [(base, sequence) for base, sequence in numbered if base < cut]
        self.recovery_point = min(self.recovery_point, cut)
        self.elect(0)

    def reopen(self, how: int) -> None:
        is_clean = how % 2 == 0
        if is_clean:
            self.log.close()
        self.close()
        where = (str(self.directory), self.directory.parent, ("t", 0), FILES, CONFIG)
        self.log, report = load_log(
            *where,
            LogCheckpoint(
                len(self.records) if is_clean else self.recovery_point, self.start, is_clean, self.recovery_point
            ),
            now_ms=NOW_MS,
        )
        assert (report.truncated_bytes, report.clean) == (0, is_clean)
        self.check()

    def check(self) -> None:
        """Reads everything; lookups are checked at the end of a run only."""
        log = self.log
        log.check()
        assert (log.log_start_offset, log.log_end_offset) == (self.start, len(self.records))
        result, headers = read_all(log)
        assert result == list(enumerate(self.records))[self.start :]
        for header in headers:
            assert log.epochs.epoch_at(max(header.base_offset, self.start)) == self.epochs[header.base_offset]
        for producer, numbered in self.producers.items():
            if numbered and numbered[-1][0] >= self.start:
                last = log.producers.producers[producer].batches[-1]
                assert last.last_sequence + 1 == numbered[-1][1]
                assert last.last_offset - last.offset_delta == numbered[-1][0]

    def close(self) -> None:
        for segment in self.log.segments:
            segment.file.close()


@settings(max_examples=EXAMPLES_WANTED, suppress_health_check=list(HealthCheck), database=None)
@given(st.binary(min_size=4, max_size=2 * STEPS_MAX))
def test_any_run_of_a_log_equals_a_list(program: bytes) -> None:
    note(program.hex(" ", 2))
    with quick_directory() as home:
        log = Modelled(home / "t-0")
        for what, how in zip(program[::2], program[1::2], strict=False):
            log.step(what, how)
        log.check()
        log.reopen(program[0])
        check_lookups(log.log, read_all(log.log)[0])
        log.close()
