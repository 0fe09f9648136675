"""Hostile producers: every batch is rejected without effect, or stored such that readers, cleaner and restarts work."""

from __future__ import annotations

import os
import random
import shutil
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from brokers.engine.partitions.cleaning import Cleaner
from brokers.engine.partitions.listing import list_offsets
from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.table import PartitionTable
from brokers.engine.records import batch as layout
from brokers.engine.records.builder import read_records
from brokers.engine.records.compression import Oversized, Undecodable, compress
from brokers.engine.records.conversion import UnsupportedCodec, convert_to_messages
from brokers.engine.records.walk import Malformed
from brokers.engine.storage.compaction.job import Cleaned, CleaningFailed, Finished
from brokers.engine.storage.compaction.pacing import Pacer
from brokers.engine.storage.compaction.run import Run
from brokers.engine.storage.compaction.settings import CleanerSettings
from brokers.engine.wire.varints import encode_signed
from brokers.native import finder
from tests.unit.brokers.engine.partitions.test_table import opened
from tests.unit.brokers.engine.records.hostile import EXTREMES, LONG_MAX, LONG_MIN, NOW_MS, batch, record, some_batch

SEEDS = 25
BATCHES = 60
TOPIC, TOPIC_ID = "ins-a.orders", b"1" * 16
FOR_EVER = str(LONG_MAX)
CONFIGS: tuple[dict[str, str], ...] = (
    {},
    {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "delete.retention.ms": FOR_EVER},
    {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "delete.retention.ms": "0"},
    {"message.timestamp.before.max.ms": "1000"},
    {"message.timestamp.type": "LogAppendTime"},
    {"compression.type": "zstd"},
    {"compression.type": "uncompressed", "message.timestamp.after.max.ms": "100"},
)
# Special timestamps of ListOffsets.
LISTED = struct.Struct(">hqqi")


def lead(table: PartitionTable, config: dict[str, str]) -> Partition:
    shape = {"segment.bytes": "16384", "index.interval.bytes": "0"}
    return table.become_leader(TOPIC, 0, TOPIC_ID, 0, shape | config, now_ms=NOW_MS)


def clean(table: PartitionTable, now_ms: int) -> int:
    """Cleans until no log is due and returns the number of runs; a batch that cannot be read ends them."""
    cleaner = Cleaner(table, CleanerSettings())
    runs = 0
    while (work := cleaner.plan(now_ms)) is not None:
        work.flush_log()
        cleaner.finish_flush(work)
        events: list[Any] = []
        try:
            Run(work.job, events.append, Pacer(0.0, lambda: 0.0, lambda _: None)).run()
        except CleaningFailed:
            cleaner.abandon(work)
            return runs
        for event in events:
            if isinstance(event, Cleaned):
                assert cleaner.swap_in(work, event, now_ms)
            elif isinstance(event, Finished):
                cleaner.on_finished(work, event)
        runs += 1
    return runs


def batches(partition: Partition) -> Iterator[bytes]:
    offset = partition.log_start_offset
    while offset < partition.log_end_offset:
        result = partition.read(offset, 1 << 20, min_one_batch=True)
        assert result.error_code == 0
        if result.slice is None:
            return
        data = os.pread(result.slice.fd, result.slice.length, result.slice.position)
        result.slice.release()
        for position, header in layout.scan_headers(data):
            yield data[position : position + header.size_bytes]
            assert header.next_offset > offset
            offset = header.next_offset


def read_all_ways(partition: Partition) -> None:
    for timestamp in (*EXTREMES, NOW_MS - 5, NOW_MS + 1_000, -2, -3):
        listed = list_offsets(partition, timestamp, isolation=0, version=9)
        LISTED.pack(listed.error_code, listed.timestamp, listed.offset, listed.leader_epoch)
    for stored in batches(partition):
        assert layout.checksum(stored) == layout.read_header(stored).crc
        for magic in (0, 1):
            try:
                read_records(stored)
                convert_to_messages(stored, magic, 0)
            except (Malformed, UnsupportedCodec, Undecodable, Oversized):
                continue


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_random_batch_is_refused_or_readable(seed: int, tmp_path: Path) -> None:
    dice = random.Random(seed)
    table = opened(tmp_path)
    partition = lead(table, CONFIGS[seed % len(CONFIGS)])
    accepted, now_ms = 0, NOW_MS
    for _ in range(BATCHES):
        before = (partition.log_end_offset, partition.size_bytes)
        result = partition.append(memoryview(some_batch(dice)), now_ms, acks=1, produce_version=9)
        if result.error_code or not result.appended_bytes:
            assert (partition.log_end_offset, partition.size_bytes) == before
        else:
            accepted += 1
        now_ms += dice.choice((0, 1, 1_000))
    assert 0 < accepted < BATCHES
    read_all_ways(partition)
    clean(table, now_ms)
    read_all_ways(partition)
    partition.check()
    end = partition.log_end_offset

    copy = tmp_path.with_name(f"{tmp_path.name}-killed")
    shutil.copytree(tmp_path, copy)
    table.close()
    for root in (tmp_path, copy):
        again = opened(root)
        reopened = lead(again, CONFIGS[seed % len(CONFIGS)])
        assert reopened.log_end_offset == end
        read_all_ways(reopened)
        again.close()


@pytest.mark.parametrize("time_ms", [LONG_MIN, LONG_MAX, 0])
@pytest.mark.parametrize("retention_ms", ["0", FOR_EVER])
def test_delete_markers_of_any_time_are_cleaned_and_keep_it(tmp_path: Path, time_ms: int, retention_ms: str) -> None:
    """CMP-20, REC-25: also with a delete horizon in the infinite future."""
    table = opened(tmp_path)
    partition = lead(
        table, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "delete.retention.ms": retention_ms}
    )
    for content in (record(b"a"), record(b"a", None)):
        data = batch(content, base_ms=time_ms, max_ms=time_ms)
        assert partition.append(memoryview(data), NOW_MS, acks=1, produce_version=9).error_code == 0
    partition.log.roll(NOW_MS)
    filler = batch(record(b"b"))
    assert partition.append(memoryview(filler), NOW_MS, acks=1, produce_version=9).error_code == 0

    assert clean(table, NOW_MS) > 0

    (marker, _) = batches(partition)
    assert layout.read_header(marker).base_timestamp == min(NOW_MS + int(retention_ms), LONG_MAX)
    assert [(offset, result.value, result.timestamp_ms) for offset, result in read_records(marker)] == [
        (1, None, time_ms)
    ]
    table.close()


def calls(timestamp: int, partition: Partition) -> tuple[int, int]:
    """Returns the offset found and the number of calls of Python functions."""
    count = 0

    def note(frame: FrameType, event: str, _: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        result = list_offsets(partition, timestamp, isolation=0, version=9)
    finally:
        sys.setprofile(None)
    assert result.error_code == 0
    return result.offset, count


@pytest.mark.skipif(finder.is_installed(), reason="compiled functions are not seen by a profile hook")
def test_a_search_by_time_is_not_led_through_the_log_by_greatest_times_that_were_made_up(tmp_path: Path) -> None:
    """LOG-26: the first batch whose header claims the timestamp is the answer."""
    table = opened(tmp_path)
    partition = lead(table, {})
    block = record() * 50
    for _ in range(100):
        data = batch(compress(0, block), 50, max_ms=LONG_MAX)
        assert partition.append(memoryview(data), NOW_MS, acks=1, produce_version=9).error_code == 0

    assert calls(NOW_MS, partition)[0] == 0
    offset, count = calls(NOW_MS + 1, partition)
    assert (offset, count < 2_000) == (0, True)
    table.close()


def test_a_search_by_time_reads_no_headers_of_records(tmp_path: Path) -> None:
    """LOG-26: the header sections of records in larger batches were never validated."""
    table = opened(tmp_path)
    partition = lead(table, {"message.timestamp.type": "CreateTime"})
    lying = record(headers=encode_signed(2**31 - 1))
    block = lying * 5 + record(timestamp_delta=7) + lying
    data = batch(block, 7, max_ms=NOW_MS + 7)
    assert partition.append(memoryview(data), NOW_MS, acks=1, produce_version=9).error_code == 0

    result = list_offsets(partition, NOW_MS + 1, isolation=0, version=9)

    assert (result.timestamp, result.offset) == (NOW_MS + 7, 0)
    table.close()
