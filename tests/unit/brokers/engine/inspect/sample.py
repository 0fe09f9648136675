"""A log directory with every kind of file, and a runner of the `log` tools."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

from brokers.engine.inspect.__main__ import main
from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.table import PartitionTable, StorageSettings
from brokers.engine.records.builder import Record, build_batch
from brokers.engine.storage.log import LogConfig

NOW_MS = 1_700_000_000_000
TOPIC_ID = bytes(range(1, 17))
BATCHES = 14
CODECS = (0, 0, 1, 0, 2, 0, 3, 0, 4)
# Small segments (smaller than a topic may configure) and an index entry for nearly every batch.
SMALL = LogConfig(segment_bytes=700, index_limits=(100, 10_000))


def table(root: Path) -> PartitionTable:
    made = PartitionTable(StorageSettings(roots=(root,), broker_id=1, cluster_id="test"))
    made.recover(NOW_MS)
    return made


def lead(held: PartitionTable, epoch: int, index: int = 0) -> Partition:
    partition = held.become_leader("orders", index, TOPIC_ID, epoch, {}, now_ms=NOW_MS)
    partition.log.config = SMALL
    return partition


def append(partition: Partition, number: int) -> None:
    """Append a batch; `number` varies time, size and codec, and most batches are from an idempotent producer."""
    count = 1 + number % 3
    records = [
        Record(NOW_MS + number * 10 + at, b"k%d" % at, b"%d/%d." % (number, at) * 9, (("trace", b"\x00\xff"),))
        for at in range(count)
    ]
    sequence = sum(1 + earlier % 3 for earlier in range(number))
    data = build_batch(
        records, codec=CODECS[number % len(CODECS)], producer_id=7, producer_epoch=0, base_sequence=sequence
    )
    result = partition.append(memoryview(data), NOW_MS, acks=1, produce_version=9)
    assert result.error_code == 0, result


def build(root: Path, *, batches: int = BATCHES, clean: bool = True) -> Path:
    """Write a partition of two leader epochs and several segments and return its directory; the broker stops cleanly,
    or its files are flushed and abandoned.
    """
    held = table(root)
    for number in range(batches):
        if number in (0, batches // 2):
            partition = lead(held, 3 + number)
        append(partition, number)
    if clean:
        held.close()
    else:
        for log_root in held._roots:
            log_root.unlock()
    return root / "orders-0"


def run(*arguments: object) -> tuple[int, list[dict[str, Any]]]:
    """Run the tool and return (exit code, rows)."""
    out = io.StringIO()
    code = main([*map(str, arguments), "--json"], out)
    return code, [json.loads(line) for line in out.getvalue().splitlines()]


def findings(rows: list[dict[str, Any]], kind: str = "fault") -> list[dict[str, Any]]:
    return [row for row in rows if row["row"] == kind]


def content(directory: Path) -> dict[str, bytes]:
    return {str(file.relative_to(directory)): file.read_bytes() for file in directory.rglob("*") if file.is_file()}
