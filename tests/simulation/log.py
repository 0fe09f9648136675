"""Simulated log of one partition on a recorded disk, with the model that it must equal."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from brokers.engine.partitions.cleaning import Cleaner
from brokers.engine.partitions.deletion import delete_before
from brokers.engine.partitions.table import PartitionTable, StorageSettings
from brokers.engine.partitions.transactions import append_marker
from brokers.engine.partitions.verification import UNVERIFIED_OK
from brokers.engine.records.batch import TRANSACTIONAL
from brokers.engine.records.builder import Record, build_batch, read_records
from brokers.engine.records.control import ABORT, COMMIT, end_marker
from brokers.engine.storage import checkpoints
from brokers.engine.storage.compaction.job import Cleaned, Event, Finished
from brokers.engine.storage.compaction.pacing import Pacer
from brokers.engine.storage.compaction.run import Run
from brokers.engine.storage.compaction.settings import CleanerSettings
from brokers.engine.storage.recovery import truncate_log
from tests.simulation.disk import Disk
from tests.simulation.promises import Promises

NOW_MS: Final = 1_700_000_000_000
TOPIC: Final = "t"
TOPIC_ID: Final = b"0123456789abcdef"
CONFIG: Final = {"index.interval.bytes": "150", "retention.ms": "-1", "file.delete.delay.ms": "0"}
COMPACTED: Final = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "delete.retention.ms": "0"}
SEGMENT_BYTES: Final = 1_500
CODECS: Final = (0, 0, 0, 1, 4)


def open_table(top: Path) -> PartitionTable:
    """Opens a table over `top` like a broker at its start, without leaderships."""
    settings = StorageSettings(
        roots=(top,), broker_id=1, cluster_id="c", defaults=CONFIG, retention_interval_ms=0, open_files_max=4
    )
    table = PartitionTable(settings)
    table.recover(NOW_MS)
    return table


class SimulatedLog:
    """Steps that a broker can take; each one records its promises in the model."""

    def __init__(
        self,
        top: Path,
        *,
        disk: Disk | None = None,
        model: Promises | None = None,
        epoch: int = 0,
        record_count: int = 0,
        compacted: bool = False,
    ) -> None:
        self.top = top
        self.disk = disk or Disk(top)
        self.model = model or Promises()
        self.compacted = compacted
        self.config = {**CONFIG, **(COMPACTED if compacted else {})}
        self.epoch = epoch
        self.now_ms = NOW_MS
        self.sequences: dict[int, int] = {}
        self.record_count = record_count
        self.table = open_table(top)
        self._lead()

    def _lead(self) -> None:
        self.partition = self.table.become_leader(TOPIC, 0, TOPIC_ID, self.epoch, self.config, now_ms=NOW_MS)
        self.partition.log.config = self.partition.log.config._replace(segment_bytes=SEGMENT_BYTES)

    @property
    def step(self) -> int:
        return len(self.disk.ops)

    # -- writing ------------------------------------------------------------------------------------------------------

    def append(
        self,
        count: int = 1,
        size: int = 40,
        shift_ms: int = 0,
        producer: int = -1,
        codec: int = 0,
        transactional: bool = False,
    ) -> None:
        """Appends one batch, with sequence numbers if `producer` >= 0; sometimes it is sent twice and written once."""
        records = []
        for _ in range(count):
            self.record_count += 1
            stamp_ms = self.now_ms + shift_ms + self.record_count % 7
            records.append(Record(stamp_ms, b"k%d" % (self.record_count % 5), b"%d." % self.record_count + b"x" * size))
        sequence = -1
        if producer >= 0:
            sequence = self.sequences.get(producer, 0)
            self.sequences[producer] = sequence + count
        base = self.model.end
        # The batch may be present as soon as its first bytes are written, and is promised once it is acknowledged.
        self.model.write(records, self.epoch, producer, sequence)
        for repetition in range(2 if producer >= 0 and count % 2 else 1):
            data = build_batch(
                records,
                codec=codec,
                attributes=TRANSACTIONAL if transactional else 0,
                producer_id=producer,
                producer_epoch=0 if producer >= 0 else -1,
                base_sequence=sequence,
            )
            answer = self.partition.append(
                memoryview(data), self.now_ms, acks=1, produce_version=9, verification_token=UNVERIFIED_OK
            )
            assert (answer.error_code, answer.base_offset) == (0, base), f"sent {repetition + 1} times: {answer}"
        assert self.partition.log_end_offset == self.model.end
        self.model.promise(self.step, end_after_kill=self.model.end)

    def mark(self, producer: int, *, committed: bool) -> None:
        """Appends a marker that ends the producer's transaction."""
        marker = end_marker(
            COMMIT if committed else ABORT,
            timestamp_ms=self.now_ms,
            producer_id=producer,
            producer_epoch=0,
            coordinator_epoch=0,
        )
        self.model.write([record for _, record in read_records(bytes(marker))], self.epoch, -1, -1)
        answer = append_marker(self.partition, producer, 0, 0, committed, self.now_ms)
        assert answer.error_code == 0, answer
        assert self.partition.log_end_offset == self.model.end
        self.model.promise(self.step, end_after_kill=self.model.end)

    def learn_sequences(self) -> None:
        """Continues the producers' sequences from the log."""
        producers = self.partition.log.producers.producers.items()
        self.sequences = {id_: entry.batches[-1].last_sequence + 1 for id_, entry in producers if entry.batches}

    def roll(self) -> None:
        if self.partition.log.active.size_bytes:
            self.partition.log.roll(self.now_ms)

    def elect(self) -> None:
        self.epoch += 1
        self._lead()

    # -- making durable -----------------------------------------------------------------------------------------------

    def flush(self) -> None:
        batch = self.table.flusher.plan_flush()
        batch.run()
        batch.finish()
        self.model.promise(self.step, end_after_power_loss=self.model.end)

    # -- removing -----------------------------------------------------------------------------------------------------

    def retain(self, keep_bytes: int) -> None:
        """Runs one round of retention by size, which also deletes the segments of earlier rounds."""
        self.model.promise(self.step, start_max=self.model.end)
        self.table.update_config(TOPIC, {**self.config, "retention.bytes": str(keep_bytes)})
        self.now_ms += 1
        self.table.maintain(self.now_ms)
        self._lead()
        self.model.promise(self.step, start_min_after_kill=self.partition.log_start_offset, start_max=self._start)

    @property
    def _start(self) -> int:
        return self.partition.log_start_offset

    def delete_records(self, offset: int) -> None:
        target = min(offset, self.model.end)
        self.model.promise(self.step, start_max=max(target, self._start))
        answer = delete_before(self.partition, target)
        assert answer.error_code == 0
        batch = self.table.flusher.plan_start_offsets([self.top])
        batch.run()
        batch.finish()
        start = answer.low_watermark
        self.model.promise(self.step, start_min_after_kill=start, start_min_after_power_loss=start)

    def truncate(self, offset: int) -> None:
        """Truncates the log like a follower; the next records reuse the offsets."""
        log = self.partition.log
        target = max(offset, log.log_start_offset)
        result = log.find_position(target) if target < log.log_end_offset else None
        if result is None:
            return
        segment = log.segments[result[0]]
        end = max(next(header.base_offset for _, header in segment.headers(result[1])), 0)
        if end < log.log_start_offset:
            return
        last = self.model.last
        self.model.promise(
            self.step,
            end_after_kill=min(last.end_after_kill, end),
            end_after_power_loss=min(last.end_after_power_loss, end),
        )
        removed_segments = truncate_log(log, target, self.now_ms)
        self.table.remove_later(self.partition, removed_segments, self.now_ms)
        assert log.log_end_offset == end
        self.model.truncate(end, self.step)
        self.partition.high_watermark = end
        self.learn_sequences()
        self.table.flusher.checkpoint_recovery_points()
        self.elect()

    def clean(self) -> None:
        """Runs the cleaner over closed segments like a broker, but in this process."""
        cleaner = Cleaner(self.table, CleanerSettings())
        work = cleaner.plan(self.now_ms)
        assert work is not None
        work.flush_log()
        cleaner.finish_flush(work)
        if work.is_first:
            cleaner.checkpoint(self.top).write()
        events: list[Event] = []
        Run(work.job, events.append, Pacer(0.0, lambda: 0.0, lambda _: None)).run()
        for event in events:
            if isinstance(event, Cleaned):
                assert cleaner.swap_in(work, event, self.now_ms)
            else:
                assert isinstance(event, Finished)
                cleaner.on_finished(work, event)
                cleaner.checkpoint(self.top).write()
        self.table.maintain(self.now_ms)
        self._lead()

    # -- ending -------------------------------------------------------------------------------------------------------

    def restart(self) -> None:
        """Stops cleanly and starts again."""
        self.table.close(broker_epoch=1)
        assert not self.table.offline_directories
        assert (self.top / checkpoints.RECOVERY_POINTS).exists()
        self.model.promise(self.step, end_after_power_loss=self.model.end)
        self.table = open_table(self.top)
        self._lead()
