"""Measures the free space of every log directory's volume each second, and logs when it is nearly full."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import structlog

from brokers.engine.errors import SettingsWrong
from brokers.engine.handlers.configs.broker_settings import FREE_BYTES
from brokers.engine.lifecycle import Periodic
from brokers.engine.partitions.table import PartitionTable

log = structlog.get_logger(__name__)
MEASURE_INTERVAL_S: Final = 1.0


def volume(path: Path) -> dict[str, int]:
    """Returns the total and the usable bytes of the volume; empty if they are unknown."""
    try:
        result = os.statvfs(path)
    except OSError:
        return {}
    return {"total_bytes": result.f_blocks * result.f_frsize, "usable_bytes": result.f_bavail * result.f_frsize}


class FreeSpaceMonitor:
    """Free space of the log directories. `free_bytes_min` is the operator's minimum; 0 selects the default of
    `capacity.room`.
    """

    def __init__(self, table: PartitionTable, free_bytes_min: int) -> None:
        self._table = table
        self.free_bytes_min = free_bytes_min

    def start_periodic(self, periodic: Periodic) -> None:
        self.measure()
        periodic.every(MEASURE_INTERVAL_S, self.measure)

    def measure(self) -> None:
        """Measures all volumes, and logs when one becomes nearly full or has enough free space again."""
        for path, disk in self._table.disks.items():
            if path in self._table.offline_directories:
                continue
            sizes = volume(path)
            if not sizes or not disk.update(sizes["total_bytes"], sizes["usable_bytes"], self.free_bytes_min):
                continue
            if disk.is_short:
                log.error("log_directory_nearly_full", directory=str(path), usable_bytes=disk.usable_bytes)
            else:
                log.info("log_directory_has_room", directory=str(path), usable_bytes=disk.usable_bytes)


def free_bytes_min_from(effective: Mapping[str, str]) -> int:
    """Returns the operator's minimum of free space in bytes, 0 without a setting. Raises SettingsWrong."""
    value = effective.get(FREE_BYTES, "0")
    if not value.isascii() or not value.isdigit():
        raise SettingsWrong(f"{FREE_BYTES} is not a number of bytes: {value!r}")
    return int(value)
