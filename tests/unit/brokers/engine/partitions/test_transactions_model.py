"""Random transactions of several producers, with rolls, truncations, retention and restarts, against a plain list.

Checked are the last stable offset, the listed aborted transactions and the records an application sees (TXN-20 to
TXN-24, IDE-10).
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from brokers.engine.partitions.partition import READ_COMMITTED, Partition
from brokers.engine.partitions.producers import AbortedByPartition, known_producers, list_aborted
from brokers.engine.partitions.table import PartitionTable, StorageSettings
from brokers.engine.records.builder import Record, build_batch
from tests.testkit import depth
from tests.testkit.small_segments import SMALL_SEGMENTS
from tests.unit.brokers.engine.partitions.transactional import KEY, NOW_MS, committed_records, end, write

EXAMPLES: Final = depth.number_from("PENSTOCK_TRANSACTION_EXAMPLES", short=10, long=25)
TOPIC, TOPIC_ID = "ins-a.orders", bytes(range(16))
CONFIG = {"segment.bytes": "1500", "index.interval.bytes": "100", "file.delete.delay.ms": "0"}
PRODUCERS: Final = (5, 6, 7, 8)
PLAIN, DATA, COMMIT, ABORT = range(4)


class Written(NamedTuple):
    base_offset: int
    values: tuple[bytes, ...]
    kind: int
    producer_id: int = -1

    @property
    def next_offset(self) -> int:
        return self.base_offset + max(len(self.values), 1)


class Model:
    """A partition and its expected content; `start` is its log start offset."""

    def __init__(self, home: Path) -> None:
        self.settings = StorageSettings(roots=(home,), broker_id=1, cluster_id="c", defaults=SMALL_SEGMENTS)
        self.written: list[Written] = []
        self.start = self.epoch = 0
        self.table = PartitionTable(self.settings)
        self.table.recover(NOW_MS)
        self.partition = self._lead()

    def _lead(self) -> Partition:
        self.epoch += 1
        return self.table.become_leader(TOPIC, 0, TOPIC_ID, self.epoch, CONFIG, now_ms=NOW_MS)

    @property
    def end_offset(self) -> int:
        return self.written[-1].next_offset if self.written else 0

    def sequence_of(self, producer_id: int) -> int:
        """Returns the sequence of the producer's next record."""
        return sum(
            len(batch.values) for batch in self.written if batch.producer_id == producer_id and batch.kind == DATA
        )

    # -- steps ---------------------------------------------------------------------------------------------------------

    def step(self, what: int, how: int) -> None:
        often = (self.write, self.write, self.mark, self.mark, self.plain)
        seldom = (self.roll, self.truncate, self.restart, self.delete, self.flush)
        actions = (*often, *often, *seldom)
        actions[what % len(actions)](how)

    def write(self, how: int) -> None:
        producer_id = PRODUCERS[how % len(PRODUCERS)]
        base = self.end_offset
        values = tuple(b"%d" % (base + at) + b"." * (how % 50) for at in range(1 + how // 4 % 3))
        result = write(self.partition, producer_id, self.sequence_of(producer_id), *values)
        assert (result.error_code, result.base_offset) == (0, base)
        self.written.append(Written(base, values, DATA, producer_id))

    def mark(self, how: int) -> None:
        opened = [who for who, _, marker, _ in self.transactions() if marker is None]
        known = opened if opened and how % 5 else PRODUCERS
        producer_id = known[how % len(known)]
        kind = ABORT if how // 5 % 3 else COMMIT
        result = end(self.partition, producer_id, committed=kind == COMMIT)
        assert (result.error_code, result.base_offset) == (0, self.end_offset)
        self.written.append(Written(self.end_offset, (), kind, producer_id))

    def plain(self, how: int) -> None:
        value = b"%d" % self.end_offset + b"-" * (how % 90)
        data = memoryview(build_batch([Record(NOW_MS, None, value)], codec=how % 2))
        assert self.partition.append(data, NOW_MS, acks=1, produce_version=9).base_offset == self.end_offset
        self.written.append(Written(self.end_offset, (value,), PLAIN))

    def roll(self, how: int) -> None:
        if self.partition.log.active.size_bytes:
            self.partition.log.roll(NOW_MS)

    def flush(self, how: int) -> None:
        batch = self.table.flusher.plan_flush()
        batch.run()
        batch.finish()

    def delete(self, how: int) -> None:
        """Deletes records below all undecided ones, and segments without other records."""
        offset = min(self.start + how % 7, self.stable_offset())
        self.partition.log.advance_start(offset)
        self.start = max(self.start, offset)
        self.table.maintain(NOW_MS)

    def truncate(self, how: int) -> None:
        target = max(self.start, self.end_offset - how % 12)
        kept = [batch for batch in self.written if batch.next_offset <= target]
        if (kept[-1].next_offset if kept else 0) < self.start:
            return
        self.partition.become_follower(self.epoch, (1, 2), (1, 2), 2)
        self.table.truncate(self.partition, target, NOW_MS)
        self.written = kept
        self._lead()

    def restart(self, how: int) -> None:
        if how % 2:
            self.table.close()
        else:
            self.flush(0)  # only a checkpoint file has the log start offset
            self.crash()
        self.table = PartitionTable(self.settings)
        self.table.recover(NOW_MS)
        self.partition = self._lead()

    def crash(self) -> None:
        for held in self.table:
            for segment in held.log.segments:
                segment.file.close()
        for root in self.table._roots:
            root.unlock()

    # -- expected state ------------------------------------------------------------------------------------------------

    def transactions(self) -> list[tuple[int, int, int | None, int]]:
        """Returns (producer id, first offset, marker offset or None, outcome) in the order of their markers."""
        opened: dict[int, int] = {}
        result: list[tuple[int, int, int | None, int]] = []
        for batch in self.written:
            if batch.kind == DATA:
                opened.setdefault(batch.producer_id, batch.base_offset)
            elif batch.kind != PLAIN and batch.producer_id in opened:
                result.append((batch.producer_id, opened.pop(batch.producer_id), batch.base_offset, batch.kind))
        return result + [(producer_id, first, None, DATA) for producer_id, first in opened.items()]

    def stable_offset(self) -> int:
        open_from = [first for _, first, marker, _ in self.transactions() if marker is None]
        return max(min([self.end_offset, *open_from]), self.start)

    def shown(self) -> list[tuple[int, bytes | None]]:
        """Returns the records that a read_committed application sees from the log start on."""
        limit = self.stable_offset()
        dropped = [(who, first, marker or 0) for who, first, marker, how in self.transactions() if how == ABORT]
        shown: list[tuple[int, bytes | None]] = []
        for batch in self.written:
            is_dropped = any(
                who == batch.producer_id and first <= batch.base_offset < last for who, first, last in dropped
            )
            if not is_dropped and batch.next_offset <= limit:
                shown += [(batch.base_offset + at, value) for at, value in enumerate(batch.values)]
        return [result for result in shown if result[0] >= self.start]

    def check(self) -> None:
        partition = self.partition
        partition.check()
        assert (partition.log_start_offset, partition.high_watermark) == (self.start, self.end_offset)
        assert partition.last_stable_offset == self.stable_offset()
        for max_bytes in (1, 300, 1 << 20):
            assert committed_records(partition, self.start, max_bytes=max_bytes) == self.shown()
        open_from = {who: first for who, first, marker, _ in self.transactions() if marker is None}
        known = {producer.producer_id: producer for producer in known_producers(partition)}
        held = {who: producer.transaction_first_offset for who, producer in known.items()}
        assert {who: first for who, first in held.items() if first >= 0} == open_from
        self._check_aborted()

    def _check_aborted(self) -> None:
        """Checks that the list covers a slice, contains only aborted transactions, and is in order."""
        ended = [
            (who, first, last) for who, first, last, how in self.transactions() if how == ABORT and last is not None
        ]
        for offset in range(self.start, self.stable_offset()):
            result = self.partition.read(offset, 200, min_one_batch=True, isolation=READ_COMMITTED)
            if result.slice is None:
                continue
            listed: AbortedByPartition = {}
            reach = offset + 1
            list_aborted(listed, KEY, self.partition, offset, result.slice, True)
            result.slice.release()
            given = listed[KEY, 0]
            must = [(who, first) for who, first, last in ended if last >= offset and first < reach]
            may = [(who, first) for who, first, last in ended if last >= offset]
            assert [transaction for transaction in may if transaction in given] == given, (offset, given, may)
            assert set(must) <= set(given)


@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck), database=None)
@given(steps=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 200)), min_size=30, max_size=80))
def test_a_partition_agrees_with_the_model_of_its_transactions(steps: list[tuple[int, int]]) -> None:
    home = Path(tempfile.mkdtemp(prefix="transactions", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    try:
        model = Model(home)
        for what, how in steps:
            model.step(what, how)
        note(f"{len(model.written)} batches, log {model.start} to {model.end_offset}")
        model.check()
        for how in (0, 1):
            model.restart(how)
            model.check()
        model.crash()
    finally:
        shutil.rmtree(home)
