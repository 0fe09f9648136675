"""The command `dump`: prints the contents of a log row by row, valid or not. The log may be in use by a broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from brokers.engine.inspect.directories import Logs, PartitionDirectory
from brokers.engine.inspect.findings import KIND, Row, Value, escaped
from brokers.engine.inspect.reading import (
    TRANSACTION_ENTRY,
    Batch,
    UnreadableRest,
    list_segment_files,
    read_batches,
    read_index_entries,
    read_offset_entries,
    read_time_entries,
    segment_path,
)
from brokers.engine.inspect.verify import CHECKPOINTS
from brokers.engine.records import control
from brokers.engine.records.builder import read_records
from brokers.engine.records.compression import NAMES, Oversized, Undecodable
from brokers.engine.records.walk import Malformed
from brokers.engine.storage import checkpoints, leader_epochs
from brokers.engine.storage.directories import CLEAN_SHUTDOWN_FILE, META_FILE, PARTITION_METADATA_FILE
from brokers.engine.storage.producer_state import SNAPSHOT_SUFFIX, ProducerState, snapshot_path
from brokers.engine.storage.segment import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX

_CODECS: Final = {number: name for name, number in NAMES.items()}
_MARKERS: Final = {control.ABORT: "abort", control.COMMIT: "commit"}


class DumpSelection(NamedTuple):
    """Selection of the rows to print. `limit` is the maximum number of batches of each partition, None for all."""

    records: bool = False
    indexes: bool = False
    from_offset: int = 0
    limit: int | None = None


def rows(logs: Logs, selection: DumpSelection) -> Iterator[Row]:
    """Yields the rows of `logs`: the root's own files if the whole root was requested, then partition by partition."""
    if logs.whole:
        yield from _root_rows(logs.root)
    for partition in logs.partitions:
        try:
            yield from _partition_rows(partition, selection)
        except FileNotFoundError as missing:  # a running broker may delete or rename files
            yield {KIND: "gone", "partition": partition.name, "file": Path(str(missing.filename)).name}


def _root_rows(root: Path) -> Iterator[Row]:
    meta = root / META_FILE
    yield {
        KIND: "directory",
        "path": str(root),
        "meta": _parse_named_values(meta, "="),
        "stopped_cleanly": (root / CLEAN_SHUTDOWN_FILE).exists(),
    }
    for name in CHECKPOINTS:
        try:
            for (topic, index), offset in sorted(checkpoints.read_offsets(root / name, root).items()):
                yield {KIND: "checkpoint", "file": name, "partition": f"{topic}-{index}", "offset": offset}
        except checkpoints.UnreadableCheckpoint as error:
            yield {KIND: "unreadable", "file": name, "why": str(error)}


def _parse_named_values(file: Path, separator: str) -> Value:
    """Returns the values in a file by their names; the whole content if a line has no name; None without a file."""
    if not file.exists():
        return None
    content = file.read_bytes()
    lines = [line for line in escaped(content.replace(b"\n", b"\0")).split("\\x00") if line and line[:1] != "#"]
    if not all(separator in line for line in lines):
        return escaped(content)
    values: dict[str, Value] = {}
    for line in lines:
        name, value = line.split(separator, 1)
        values[name] = value
    return values


def _number(text: str) -> int | str:
    return int(text) if text.isascii() and text.removeprefix("-").isdecimal() else text


def _partition_rows(partition: PartitionDirectory, selection: DumpSelection) -> Iterator[Row]:
    directory = partition.path
    bases, others = list_segment_files(directory)
    metadata = directory / PARTITION_METADATA_FILE
    yield {
        KIND: "partition",
        "partition": partition.name,
        "metadata": _parse_named_values(metadata, ": "),
        "segments": len(bases.get(LOG_SUFFIX, [])),
        "other_files": [*others],
    }
    try:
        for epoch, start in checkpoints.parse_lines(directory / leader_epochs.FILE_NAME, 2, directory):
            yield {KIND: "leader_epoch", "epoch": _number(epoch), "start_offset": _number(start)}
    except checkpoints.UnreadableCheckpoint as error:
        yield {KIND: "unreadable", "file": leader_epochs.FILE_NAME, "why": str(error)}
    for offset in bases.get(SNAPSHOT_SUFFIX, []):
        yield from _snapshot_rows(directory, offset)
    batches_left = selection.limit
    starts = bases.get(LOG_SUFFIX, [])
    for number, base in enumerate(starts):
        following = starts[number + 1] if number + 1 < len(starts) else None
        if following is not None and following <= selection.from_offset:
            continue
        if batches_left is not None and batches_left <= 0:
            return
        yield _segment_row(directory, base)
        if selection.indexes:
            yield from _index_rows(directory, base)
        for row in _batch_rows(segment_path(directory, base, LOG_SUFFIX), selection, batches_left):
            if batches_left is not None and row[KIND] == "batch":
                batches_left -= 1
            yield row


def _segment_row(directory: Path, base: int) -> Row:
    row: Row = {KIND: "segment", "file": segment_path(directory, base, LOG_SUFFIX).name}
    for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX):
        path = segment_path(directory, base, suffix)
        row[f"{suffix[1:]}_bytes"] = path.stat().st_size if path.exists() else None
    return row


def _batch_rows(path: Path, selection: DumpSelection, limit: int | None) -> Iterator[Row]:
    number = 0
    for batch in read_batches(path):
        if isinstance(batch, UnreadableRest):
            yield {KIND: "unreadable", "position": batch.position, "bytes": batch.size_bytes, "why": batch.reason}
            return
        if batch.header.last_offset < selection.from_offset:
            continue
        if limit is not None and number >= limit:
            return
        number += 1
        yield _batch_row(batch)
        if selection.records:
            yield from _record_rows(batch)


def _batch_row(batch: Batch) -> Row:
    header = batch.header
    flags = (
        ("transactional", header.is_transactional),
        ("control", header.is_control),
        ("log_append_time", bool(header.attributes & 0x08)),
        ("delete_horizon", bool(header.attributes & 0x40)),
    )
    values: list[Value] = [name for name, is_set in flags if is_set]
    return {
        KIND: "batch",
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "position": batch.position,
        "size": header.size_bytes,
        "records": header.record_count,
        "codec": _CODECS.get(header.codec, f"unknown {header.codec}"),
        "leader_epoch": header.leader_epoch,
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
        "flags": values or None,
        "crc": f"{header.crc:08x}",
        "crc_ok": batch.is_intact,
    }


def _record_rows(batch: Batch) -> Iterator[Row]:
    try:
        result = read_records(batch.data) if batch.header.record_count else []
    except (Malformed, Undecodable, Oversized, KeyError) as error:
        yield {KIND: "unreadable", "position": batch.position, "why": f"records: {error}"}
        return
    for offset, record in result:
        row: Row = {KIND: "record", "offset": offset, "timestamp": record.timestamp_ms}
        row["key"] = None if record.key is None else escaped(record.key)
        row["value"] = None if record.value is None else escaped(record.value)
        if record.headers:
            row["headers"] = [
                [escaped(name.encode()), None if value is None else escaped(value)] for name, value in record.headers
            ]
        if batch.header.is_control and record.key is not None and len(record.key) == 4:
            row["marker"] = _MARKERS.get(control.marker_kind(record.key), "unknown")
            marker = control.read_marker(batch.data)
            row["coordinator_epoch"] = None if marker is None else marker.coordinator_epoch
        yield row


def _index_rows(directory: Path, base: int) -> Iterator[Row]:
    path = segment_path(directory, base, INDEX_SUFFIX)
    for relative, position in read_offset_entries(path).entries if path.exists() else []:
        yield {KIND: "index", "offset": base + relative, "position": position}
    path = segment_path(directory, base, TIME_INDEX_SUFFIX)
    for timestamp, relative in read_time_entries(path).entries if path.exists() else []:
        yield {KIND: "timeindex", "timestamp": timestamp, "offset": base + relative}
    path = segment_path(directory, base, TRANSACTION_INDEX_SUFFIX)
    for _, producer_id, first, last, stable in (
        read_index_entries(path, TRANSACTION_ENTRY).entries if path.exists() else []
    ):
        yield {
            KIND: "aborted",
            "producer_id": producer_id,
            "first_offset": first,
            "last_offset": last,
            "last_stable_offset": stable,
        }


def _snapshot_rows(directory: Path, offset: int) -> Iterator[Row]:
    path = snapshot_path(str(directory), offset)
    state = ProducerState()
    if not state.restore(path.read_bytes(), offset):
        yield {KIND: "unreadable", "file": path.name, "why": "checksum or version is wrong"}
        return
    yield {KIND: "snapshot", "file": path.name, "producers": len(state.producers)}
    for producer_id, entry in state.producers.items():
        last = entry.batches[-1] if entry.batches else None
        yield {
            KIND: "producer",
            "producer_id": producer_id,
            "producer_epoch": entry.epoch,
            "last_sequence": last.last_sequence if last else -1,
            "last_offset": last.last_offset if last else -1,
            "last_timestamp": entry.last_timestamp_ms,
            "coordinator_epoch": entry.coordinator_epoch,
            "transaction_first_offset": entry.transaction_first_offset,
        }
