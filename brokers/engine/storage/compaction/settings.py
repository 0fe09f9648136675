"""Settings of the log cleaner: those of the broker (`log.cleaner.*`) and the compaction rules of a topic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from brokers.engine.errors import SettingsWrong

LONG_MAX: Final = 2**63 - 1
ENTRY_BYTES: Final = 24
THREADS_MAX: Final = 16
# Maximum size of one offset map, whatever the buffer size (CMP-16).
MAP_BYTES_MAX: Final = 2**31 - 1
MAP_BYTES_MIN: Final = 1024 * 1024
BUFFER_BYTES_MIN: Final = 4 * 1024
UNLIMITED: Final = 0.0

THREADS: Final = 1
DEDUPE_BUFFER_BYTES: Final = 134_217_728
IO_BUFFER_BYTES: Final = 524_288
LOAD_FACTOR: Final = 0.9
BACKOFF_MS: Final = 15_000


class CompactionRules(NamedTuple):
    """Topic settings `min.cleanable.dirty.ratio`, the two compaction lags and `delete.retention.ms`."""

    dirty_ratio_min: float = 0.5
    lag_ms_min: int = 0
    lag_ms_max: int = LONG_MAX
    delete_retention_ms: int = 86_400_000


class CleanerSettings(NamedTuple):
    """Broker settings; `io_bytes_per_s` limits reads and writes together, and 0 means no limit."""

    enabled: bool = True
    threads: int = THREADS
    dedupe_buffer_bytes: int = DEDUPE_BUFFER_BYTES
    io_buffer_bytes: int = IO_BUFFER_BYTES
    load_factor: float = LOAD_FACTOR
    io_bytes_per_s: float = UNLIMITED
    backoff_ms: int = BACKOFF_MS

    @property
    def map_bytes(self) -> int:
        """Size in bytes of the offset map of each thread."""
        return min(self.dedupe_buffer_bytes // self.threads, MAP_BYTES_MAX)


def from_overrides(overrides: Mapping[str, str]) -> CleanerSettings:
    """Returns the settings among a broker's keys. Raises SettingsWrong for an invalid value."""
    enabled = overrides.get("log.cleaner.enable", "true").strip().lower()
    if enabled not in ("true", "false"):
        raise SettingsWrong(f"log.cleaner.enable is neither true nor false: {enabled!r}")
    settings = CleanerSettings(
        enabled=enabled == "true",
        threads=int(_number(overrides, "log.cleaner.threads", THREADS, 1, THREADS_MAX)),
        dedupe_buffer_bytes=int(
            _number(overrides, "log.cleaner.dedupe.buffer.size", DEDUPE_BUFFER_BYTES, MAP_BYTES_MIN, LONG_MAX)
        ),
        io_buffer_bytes=int(
            _number(overrides, "log.cleaner.io.buffer.size", IO_BUFFER_BYTES, BUFFER_BYTES_MIN, MAP_BYTES_MAX)
        ),
        load_factor=_number(overrides, "log.cleaner.io.buffer.load.factor", LOAD_FACTOR, 0.01, 1.0),
        io_bytes_per_s=_number(overrides, "log.cleaner.io.max.bytes.per.second", UNLIMITED, 0.0, float("inf")),
        backoff_ms=int(_number(overrides, "log.cleaner.backoff.ms", BACKOFF_MS, 1, LONG_MAX)),
    )
    if settings.map_bytes < MAP_BYTES_MIN:
        raise SettingsWrong(f"log.cleaner.dedupe.buffer.size leaves each thread less than {MAP_BYTES_MIN} bytes")
    return settings


def _number(overrides: Mapping[str, str], key: str, default: float, low: float, high: float) -> float:
    text = overrides.get(key)
    if text is None:
        return default
    try:
        number = float(text)
    except ValueError:
        raise SettingsWrong(f"{key} is not a number: {text!r}") from None
    if not low <= number <= high:
        raise SettingsWrong(f"{key} must lie between {low} and {high}, not {text}")
    return number
