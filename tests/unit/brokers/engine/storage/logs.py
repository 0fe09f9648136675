"""Builders for log tests: a log in a directory, batches of any size, and a plain list for comparison."""

from __future__ import annotations

from pathlib import Path

from brokers.engine.records import batch as layout
from brokers.engine.records.builder import Record, build_batch, read_records
from brokers.engine.storage.files import OpenFiles
from brokers.engine.storage.log import Log, LogConfig
from brokers.engine.storage.recovery import LoadReport, LogCheckpoint, create_log, load_log

NOW_MS = 1_700_000_000_000


def new_log(directory: Path, config: LogConfig | None = None, files: OpenFiles | None = None) -> Log:
    directory.mkdir(parents=True, exist_ok=True)
    root = directory.parent
    return create_log(str(directory), root, "t", 0, files or OpenFiles(), config or LogConfig(), now_ms=NOW_MS)


def reopen(
    directory: Path, config: LogConfig | None = None, *, clean: bool, recovery_point: int = 0, start_offset: int = 0
) -> tuple[Log, LoadReport]:
    return load_log(
        str(directory),
        directory.parent,
        ("t", 0),
        OpenFiles(),
        config or LogConfig(),
        LogCheckpoint(recovery_point, start_offset, clean),
        now_ms=NOW_MS,
    )


def append(log: Log, records: list[Record], *, epoch: int = 0, codec: int = 0, now_ms: int = NOW_MS) -> int:
    """Appends the records as one batch and returns its base offset."""
    data = memoryview(build_batch(records, codec=codec))
    log.epochs.assign(epoch, log.log_end_offset)
    return log.append(data, len(records) - 1, max(r.timestamp_ms for r in records), epoch, now_ms)


def values(count: int, *, size: int = 20, stamp_ms: int = NOW_MS) -> list[Record]:
    return [Record(stamp_ms + at, None, b"%d." % at + b"x" * size) for at in range(count)]


def read_all(log: Log, *, from_offset: int | None = None, max_bytes: int = 1 << 20) -> list[tuple[int, Record]]:
    """Returns every record from an offset on, read slice by slice as a consumer does."""
    offset = log.log_start_offset if from_offset is None else from_offset
    result: list[tuple[int, Record]] = []
    while (piece := log.read(offset, max_bytes, log.log_end_offset, min_one_batch=True)) is not None:
        data = piece.read()
        piece.release()
        batches = list(layout.scan_headers(data))
        assert sum(header.size_bytes for _, header in batches) == len(data), "a slice holds whole batches"
        for position, header in batches:
            result += [
                pair for pair in read_records(data[position : position + header.size_bytes]) if pair[0] >= offset
            ]
            offset = header.next_offset
    return result
