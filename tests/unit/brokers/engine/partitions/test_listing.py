"""ListOffsets by timestamp, and the data that it reads (LOG-26, LOG-28)."""

from __future__ import annotations

from pathlib import Path

import pytest

from brokers.engine.partitions.listing import list_offsets
from brokers.engine.partitions.role import PartitionRole
from brokers.engine.records import error_codes
from brokers.engine.records.builder import Record, build_batch
from brokers.engine.storage import lookups
from tests.unit.brokers.engine.partitions.test_table import NOW_MS, opened, produce


@pytest.mark.parametrize("timestamp", [-1, -3, NOW_MS])
def test_a_leader_that_lags_does_not_say_that_there_is_no_such_record(tmp_path: Path, timestamp: int) -> None:
    """LOG-28: the previous leader reported the records as committed; the client must retry."""
    table = opened(tmp_path)
    table.become_leader("t", 0, b"1" * 16, 0, {}, now_ms=NOW_MS, role=PartitionRole((1, 2), (1, 2)))
    produce(table, "t", 0, times=3)
    partition = table.become_leader("t", 0, b"1" * 16, 1, {}, now_ms=NOW_MS, role=PartitionRole((1, 2), (1, 2)))
    results = [list_offsets(partition, timestamp, isolation=isolation, version=7) for isolation in (0, 1)]
    assert [result.error_code for result in results] == [error_codes.OFFSET_NOT_AVAILABLE] * 2
    assert list_offsets(partition, -2, isolation=0, version=7).offset == 0
    assert partition.update_follower_fetch_state(2, 1, 3, 0, 0) is False
    assert list_offsets(partition, timestamp, isolation=0, version=7).error_code == error_codes.NONE
    assert list_offsets(partition, NOW_MS + 1, isolation=0, version=7).offset == -1
    table.close()


def test_segments_without_times_are_not_read_for_a_time(tmp_path: Path) -> None:
    """LOG-26: no index helps there, and a log of gigabytes would block the event loop for many seconds."""
    table = opened(tmp_path)
    partition = table.become_leader("t", 0, b"1" * 16, 0, {"segment.bytes": "16384"}, now_ms=NOW_MS)
    for stamp_ms in [-1] * 9 + [NOW_MS]:
        data = memoryview(build_batch([Record(stamp_ms, None, b"x" * 5_000)]))
        assert partition.append(data, NOW_MS, acks=1, produce_version=9).error_code == 0
    segments = partition.log.segments
    for segment in segments:
        segment.free_memory()
    assert list_offsets(partition, NOW_MS, isolation=0, version=7).offset == 9
    assert [segment.file.fd >= 0 for segment in segments] == [False] * (len(segments) - 1) + [True]
    table.close()


def test_times_that_fall_for_long_do_not_make_a_search_long(tmp_path: Path) -> None:
    """LOG-26: one record is from a clock ahead, and all after it are older, until a later one."""
    table = opened(tmp_path)
    partition = table.become_leader("t", 0, b"1" * 16, 0, {}, now_ms=NOW_MS)
    for stamp_ms in [NOW_MS, *range(NOW_MS - 1_000, NOW_MS - 1_150, -1), NOW_MS + 5, NOW_MS + 2, NOW_MS + 9]:
        data = memoryview(build_batch([Record(stamp_ms, None, b"x" * 5_000)]))
        assert partition.append(data, NOW_MS, acks=1, produce_version=9).error_code == 0
    times = [NOW_MS, NOW_MS + 1, NOW_MS + 5, NOW_MS + 6, NOW_MS + 10]
    assert [list_offsets(partition, at, isolation=0, version=7).offset for at in times] == [0, 151, 151, 153, -1]
    segment = partition.log.active
    read = sum(1 for _ in segment.headers(lookups._search_position(segment, NOW_MS + 1, 0, may_wait=True)))
    assert read <= 5
    table.close()
