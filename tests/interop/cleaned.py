"""A log directory that our cleaner has been over, with all that it can leave behind."""

from __future__ import annotations

from pathlib import Path

from brokers.engine.partitions.cleaning import CHECKPOINT
from brokers.engine.records import batch as layout
from brokers.engine.records.builder import Record, build_batch
from brokers.engine.records.control import ABORT, COMMIT, end_marker
from brokers.engine.storage import checkpoints
from brokers.engine.storage.log import Log, LogConfig
from brokers.engine.storage.transactions import replay_batch
from tests.unit.brokers.engine.inspect import sample
from tests.unit.brokers.engine.storage.compaction.cleaning import clean
from tests.unit.brokers.engine.storage.logs import NOW_MS, read_all

HOUR_MS = 3_600_000
TRANSACTIONAL_PRODUCER, IDEMPOTENT_PRODUCER = 11, 7
# Small segments, and an index entry for nearly every batch.
SMALL = LogConfig(segment_bytes=4_000, index_limits=(100, 10_000))


def build(root: Path) -> Path:
    """Closed, with a clean stop: `root`/orders-0. Cleaned three times, between which delete markers expired.

    Left are: gaps, batches behind all codecs of which records are gone, delete markers whose horizon has not come, a
    commit marker beside its data, one without data and with a horizon, and an idempotent producer's last batch with
    nothing in it.
    """
    held = sample.table(root)
    partition = sample.lead(held, 3)
    log = partition.log
    log.config = SMALL
    first = _first_writes(log)
    log.roll(NOW_MS)
    producers = {IDEMPOTENT_PRODUCER: (first, 0)}
    done = clean(log, now_ms=NOW_MS, delete_retention_ms=HOUR_MS, producers=producers)
    _second_writes(log)
    log.roll(NOW_MS)
    later_ms = NOW_MS + 2 * HOUR_MS
    for now_ms in (later_ms, later_ms + 1):
        done = clean(log, now_ms=now_ms, first_dirty=done.end_offset, delete_retention_ms=HOUR_MS, producers=producers)
    for number in range(3):
        write(log, [("a", f"in the active segment {number}" * 5)])
    held.close()
    checkpoints.write_offsets(root / CHECKPOINT, {("orders", 0): done.end_offset}, root)
    return root / "orders-0"


def _first_writes(log: Log) -> int:
    """The offset of what the idempotent producer wrote last."""
    for codec in range(5):  # of each batch one record stays
        write(log, [(f"codec {codec}", "1"), (f"stays {codec}", "1"), (f"codec {codec}", "2")], codec=codec)
    for codec in range(5):
        write(log, [(f"codec {codec}", "3")])
    for number in range(60):
        pairs = [(f"k{(number * 3 + at) % 17}", f"{number}/{at}." * 9) for at in range(1 + number % 4)]
        write(log, pairs, codec=number % 5)
    write(log, [("gone", "1"), ("gone", None), ("k16", None)], codec=4)
    in_transaction(log, [("t1", "aborted")], ABORT)
    in_transaction(log, [("t2", "committed"), ("t3", "committed")], COMMIT)
    base = _append(
        log,
        build_batch(
            [Record(NOW_MS, b"idempotent", b"superseded")],
            producer_id=IDEMPOTENT_PRODUCER,
            producer_epoch=0,
            base_sequence=5,
        ),
    )
    write(log, [("idempotent", "of nobody")])
    return base


def _second_writes(log: Log) -> None:
    write(log, [("k1", None), ("k2", "again"), ("k3", None)], codec=3)
    write(log, [("t2", "again"), ("t3", "again")])
    in_transaction(log, [("t4", "committed")], COMMIT)


def write(log: Log, pairs: list[tuple[str, str | None]], *, codec: int = 0) -> int:
    return _append(log, build_batch(_records(pairs), codec=codec))


def in_transaction(log: Log, pairs: list[tuple[str, str | None]], kind: int) -> None:
    entry = log.producers.producers.get(TRANSACTIONAL_PRODUCER)
    sequence = entry.batches[-1].last_sequence + 1 if entry and entry.batches else 0
    _append(
        log,
        build_batch(
            _records(pairs),
            attributes=layout.TRANSACTIONAL,
            producer_id=TRANSACTIONAL_PRODUCER,
            producer_epoch=0,
            base_sequence=sequence,
        ),
    )
    _append(
        log,
        end_marker(
            kind, timestamp_ms=NOW_MS, producer_id=TRANSACTIONAL_PRODUCER, producer_epoch=0, coordinator_epoch=0
        ),
    )


def markers(log: Log) -> list[int]:
    """The offsets of what ended transactions."""
    return [header.base_offset for held in log.segments for _, header in held.headers(0) if header.is_control]


def records(log: Log) -> list[tuple[int, Record]]:
    """(offset, record) of all that a reader of committed records is given."""
    return [pair for pair in read_all(log) if pair[0] not in set(markers(log))]


def values(log: Log) -> dict[str, str | None]:
    """The last value of each key."""
    return {
        (record.key or b"").decode(): None if record.value is None else record.value.decode()
        for _, record in records(log)
    }


def _records(pairs: list[tuple[str, str | None]]) -> list[Record]:
    return [
        Record(NOW_MS + at, key.encode(), None if value is None else value.encode())
        for at, (key, value) in enumerate(pairs)
    ]


def _append(log: Log, data: bytearray) -> int:
    header = layout.read_header(data)
    base = log.append(memoryview(data), header.last_offset_delta, header.max_timestamp, 3, NOW_MS)
    replay_batch(log, layout.read_header(data), data)
    log.producers.end_offset = log.log_end_offset
    return base
