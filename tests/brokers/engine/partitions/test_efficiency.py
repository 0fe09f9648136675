"""What an append and a read cost in steps of the interpreter, however many records and however long the log (EFF-1,
EFF-5).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from brokers.engine.partitions.partition import Partition
from brokers.engine.records.builder import Record, build_batch
from brokers.native import finder
from tests.brokers.engine.partitions.transactional import NOW_MS

pytestmark = pytest.mark.skipif(finder.is_installed(), reason="compiled functions are not seen by a profile hook")

# Beside what every append or read takes.
CALLS_MORE_MAX = 40


def calls(act: Callable[[], Any]) -> int:
    """Of Python functions."""
    count = 0

    def note(frame: FrameType, event: str, _: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(None)
    return count


def append(partition: Partition, records: int) -> None:
    data = memoryview(build_batch([Record(NOW_MS, b"k", b"v" * 100)] * records))
    assert partition.append(data, NOW_MS, acks=1, produce_version=9).error_code == 0


def test_an_append_makes_no_object_of_any_record(partition: Partition) -> None:
    """EFF-1: an uncompressed batch is checked where it lies."""
    append(partition, 1)
    few = memoryview(build_batch([Record(NOW_MS, b"k", b"v" * 100)] * 10))
    many = memoryview(build_batch([Record(NOW_MS, b"k", b"v" * 100)] * 5_000))

    def appending(data: memoryview) -> Callable[[], Any]:
        return lambda: partition.append(data, NOW_MS, acks=1, produce_version=9)

    assert abs(calls(appending(many)) - calls(appending(few))) < CALLS_MORE_MAX
    assert partition.log_end_offset == 5_011


def test_appends_and_reads_cost_the_same_in_a_log_ten_times_as_long(partition: Partition) -> None:
    """EFF-5: a position is found by the index and a scan no longer than its interval."""

    def cost() -> tuple[int, int]:
        data = memoryview(build_batch([Record(NOW_MS, b"k", b"v" * 100)] * 10))
        appended = calls(lambda: partition.append(data, NOW_MS, acks=1, produce_version=9))
        partition.log.rest()
        found = []
        looked = calls(lambda: found.append(partition.read(partition.log_end_offset // 2, 1 << 20, min_one_batch=True)))
        assert found[0].slice is not None
        found[0].slice.release()
        return appended, looked

    for _ in range(60):
        append(partition, 10)
    first = cost()
    for _ in range(600):
        append(partition, 10)
    second = cost()
    assert all(abs(b - a) < CALLS_MORE_MAX for a, b in zip(first, second, strict=True)), (first, second)
