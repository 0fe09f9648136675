"""Records that a power cut destroyed in the middle of a log without checkpoints (LOG-36, LOG-39)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.role import PartitionRole
from brokers.engine.storage import checkpoints
from tests.unit.brokers.engine.partitions.test_start_offsets import crash, led
from tests.unit.brokers.engine.partitions.test_table import NOW_MS, opened, produce


def follower_after_a_hole(
    directory: Path, start_offset: int = 0, leader: int = 2, high_watermark: int = 0, **config: str
) -> Partition:
    """Writes ten batches in segments of three; the last batch of the first segment is missing."""
    table = led(opened(directory))
    produce(table, "t", 0, size=5_000, times=10)
    partition = table.get("t", 0)
    assert partition is not None
    first, second = partition.log.segments[:2]
    _, last = list(first.headers(0))[-1]
    path, size_bytes = first.file.path, first.size_bytes - last.size_bytes
    hole_offset = last.base_offset
    assert second.base_offset == hole_offset + 1
    crash(table)
    os.truncate(path, size_bytes)
    if start_offset:
        checkpoints.write_offsets(directory / checkpoints.LOG_START_OFFSETS, {("t", 0): start_offset}, directory)

    if high_watermark:
        checkpoints.write_offsets(directory / checkpoints.HIGH_WATERMARKS, {("t", 0): high_watermark}, directory)

    table = opened(directory)
    result = table.become_follower(
        "t",
        0,
        b"1" * 16,
        1,
        {name.replace("_", "."): value for name, value in config.items()},
        now_ms=NOW_MS,
        role=PartitionRole((1, 2), (2,), leader),
    )
    assert hole_offset == 2
    table.close()
    return result


def test_a_follower_fetches_records_behind_missing_ones_again(tmp_path: Path) -> None:
    result = follower_after_a_hole(tmp_path)
    assert (result.log_start_offset, result.high_watermark, result.log_end_offset) == (0, 0, 2)


def test_nothing_is_truncated_while_there_is_no_leader(tmp_path: Path) -> None:
    """This replica may be the next leader, with the remaining records."""
    assert follower_after_a_hole(tmp_path, leader=-1).log_end_offset == 10


def test_missing_records_below_the_log_start_do_not_matter(tmp_path: Path) -> None:
    result = follower_after_a_hole(tmp_path, start_offset=3)
    assert (result.log_start_offset, result.log_end_offset) == (3, 10)


def test_a_log_that_may_have_been_cleaned_keeps_its_holes(tmp_path: Path) -> None:
    assert follower_after_a_hole(tmp_path, cleanup_policy="compact").log_end_offset == 10


def test_a_high_watermark_that_reached_the_disk_before_the_records_ends_at_the_hole(tmp_path: Path) -> None:
    """The high watermark is written every few seconds, records when they are flushed: no committed record is truncated
    here.
    """
    with capture_logs() as said:
        result = follower_after_a_hole(tmp_path, high_watermark=10)
    assert (result.high_watermark, result.log_end_offset) == (2, 2)
    assert [line["event"] for line in said if line["log_level"] == "error"] == ["records_missing"]
    shutil.rmtree(tmp_path)
    awaited = follower_after_a_hole(tmp_path, high_watermark=10, leader=-1)
    assert (awaited.high_watermark, awaited.log_end_offset) == (2, 10)


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_a_log_without_a_hole_is_not_truncated(tmp_path: Path, policy: str) -> None:
    table = led(opened(tmp_path))
    produce(table, "t", 0, size=5_000, times=10)
    crash(table)
    table = opened(tmp_path)
    result = table.become_follower(
        "t", 0, b"1" * 16, 1, {"cleanup.policy": policy}, now_ms=NOW_MS, role=PartitionRole((1, 2), (2,), 2)
    )
    assert result.log_end_offset == 10
    table.close()
