"""Cost of an append and of a read in interpreter steps and memory, for any number of records and length of log (EFF-1
to EFF-3, EFF-5).
"""

from __future__ import annotations

import gc
import os
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.table import PartitionTable, StorageSettings
from brokers.engine.records.builder import Record, build_batch
from brokers.native import finder
from tests.unit.brokers.engine.partitions.transactional import NOW_MS

pytestmark = pytest.mark.skipif(finder.is_installed(), reason="compiled functions are not seen by a profile hook")

# Constant overhead of every append or read.
CALLS_MORE_MAX = 40


def calls(act: Callable[[], Any]) -> int:
    """Returns the number of calls of Python functions."""
    count = 0

    def note(frame: FrameType, event: str, _: Any) -> None:
        nonlocal count
        count += event == "call"

    gc.disable()  # a collection calls functions of its own
    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


def append(partition: Partition, records: int) -> None:
    data = memoryview(build_batch([Record(NOW_MS, b"k", b"v" * 100)] * records))
    assert partition.append(data, NOW_MS, acks=1, produce_version=9).error_code == 0


def test_an_append_makes_no_object_of_any_record(partition: Partition) -> None:
    """EFF-1: an uncompressed batch is checked in place."""
    append(partition, 1)
    few = memoryview(build_batch([Record(NOW_MS, b"k", b"v" * 100)] * 10))
    many = memoryview(build_batch([Record(NOW_MS, b"k", b"v" * 100)] * 5_000))

    def appending(data: memoryview) -> Callable[[], Any]:
        return lambda: partition.append(data, NOW_MS, acks=1, produce_version=9)

    assert abs(calls(appending(many)) - calls(appending(few))) < CALLS_MORE_MAX
    assert partition.log_end_offset == 5_011


def test_appends_and_reads_cost_the_same_in_a_log_ten_times_as_long(partition: Partition) -> None:
    """EFF-5: the index and a scan of at most one index interval find a position."""

    def cost() -> tuple[int, int]:
        data = memoryview(build_batch([Record(NOW_MS, b"k", b"v" * 100)] * 10))
        appended = calls(lambda: partition.append(data, NOW_MS, acks=1, produce_version=9))
        partition.log.free_memory()
        result = []
        looked = calls(
            lambda: result.append(partition.read(partition.log_end_offset // 2, 1 << 20, min_one_batch=True))
        )
        assert result[0].slice is not None
        result[0].slice.release()
        return appended, looked

    for _ in range(60):
        append(partition, 10)
    first = cost()
    for _ in range(600):
        append(partition, 10)
    second = cost()
    assert all(abs(b - a) < CALLS_MORE_MAX for a, b in zip(first, second, strict=True)), (first, second)


def test_no_record_is_kept_in_memory(table: PartitionTable, partition: Partition, tmp_path: Path) -> None:
    """EFF-2: records are only in the page cache, so a start has nothing to load."""

    def rounds(count: int) -> None:
        for _ in range(count):
            first = partition.log_end_offset
            append(partition, 2_000)
            result = partition.read(first, 1 << 20, min_one_batch=True)
            assert result.slice is not None
            result.slice.release()

    rounds(20)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        size_bytes = partition.size_bytes
        rounds(80)
        gc.collect()
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    batch_bytes = (partition.size_bytes - size_bytes) // 80
    assert batch_bytes > 200_000
    assert after - before < batch_bytes / 2
    assert peak - before < 6 * batch_bytes, "one is made and checked at a time"
    table.close()
    again = PartitionTable(StorageSettings(roots=(tmp_path,), broker_id=1, cluster_id="c"))
    again.recover(NOW_MS)
    restarted = again.get(partition.topic, partition.index)
    assert restarted is not None
    assert (restarted.log_end_offset, len(restarted.log._positions)) == (partition.log_end_offset, 0)
    again.close()


def test_reads_and_appends_do_not_wait_for_each_other(partition: Partition) -> None:
    """EFF-3: a reader has a slice of the file, regardless of appends, rolls and deletions meanwhile."""
    append(partition, 100)
    before = partition.read(0, 1 << 20, min_one_batch=True).slice
    assert before is not None
    expected = os.pread(before.fd, before.length, before.position)

    append(partition, 100)
    partition.log.roll(NOW_MS)
    append(partition, 100)
    held = partition.read(0, 1 << 20, min_one_batch=True).slice
    assert held is not None and held.length > before.length
    partition.log.advance_start(200)
    partition.log._remove_segments(partition.log.segments[:1], partition.log.segments[1:])

    assert os.pread(before.fd, before.length, before.position) == expected
    assert os.pread(held.fd, held.length, held.position).startswith(expected)
    for piece in (before, held):
        piece.release()
