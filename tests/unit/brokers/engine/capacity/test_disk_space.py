"""A broker keeps part of its disk free, whatever the instances bought."""

from __future__ import annotations

import pytest

from brokers.engine.capacity.room import DiskSpace, default_free_bytes_min

MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("total_bytes", "floor_bytes"), [(10 * MIB, 512 * MIB), (1_000 * 1024 * MIB, 10 * 1024 * MIB), (0, 512 * MIB)]
)
def test_floor_is_one_hundredth_and_half_a_gigabyte_at_least(total_bytes: int, floor_bytes: int) -> None:
    assert default_free_bytes_min(total_bytes) == floor_bytes


def test_disk_takes_records_again_only_when_clearly_more_is_free() -> None:
    disk = DiskSpace()

    assert not disk.update(0, 1_000, free_bytes_min=1_000)
    assert disk.update(0, 999, free_bytes_min=1_000)
    assert disk.is_short
    assert not disk.update(0, 1_099, free_bytes_min=1_000)
    assert disk.update(0, 1_100, free_bytes_min=1_000)
    assert not disk.is_short
