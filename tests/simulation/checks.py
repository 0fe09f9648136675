"""Checks of a log that was opened after a crash, by reading all of it (LOG-22 to LOG-41)."""

from __future__ import annotations

import re
from pathlib import Path

from brokers.engine.partitions.partition import Partition
from brokers.engine.records import batch as layout
from brokers.engine.records.batch import BatchHeader
from brokers.engine.records.builder import Record, read_records
from brokers.engine.records.control import ABORT, read_marker
from brokers.engine.storage.log import Log
from brokers.engine.storage.lookups import find_first_at_or_after, find_greatest_timestamp
from brokers.engine.storage.producer_state import CachedBatch
from tests.simulation.promises import Promises, Written

DEBRIS = re.compile(r"\.(tmp|deleted|cleaned|swap)$")
READ_BYTES = 700


def read_all(log: Log) -> tuple[list[tuple[int, Record]], list[BatchHeader]]:
    """Returns all records and batch headers of a log, read slice by slice like a consumer."""
    records: list[tuple[int, Record]] = []
    headers: list[BatchHeader] = []
    offset = log.log_start_offset
    while (piece := log.read(offset, READ_BYTES, log.log_end_offset, min_one_batch=True)) is not None:
        data = piece.read()
        piece.release()
        result = list(layout.scan_headers(data))
        assert sum(header.size_bytes for _, header in result) == len(data), "a slice holds whole batches"
        for position, header in result:
            content = data[position : position + header.size_bytes]
            assert layout.checksum(content) == header.crc, f"a rotten batch is served at {header.base_offset}"
            records += [pair for pair in read_records(content) if pair[0] >= offset]
            headers.append(header)
            offset = header.next_offset
    return records, headers


def check_promises(partition: Partition, model: Promises, step: int, *, power_lost: bool) -> list[Written]:
    """Checks that no promised record is missing, none is invented, and offsets are dense; returns the records."""
    log = partition.log
    promise = model.at(step)
    partition.check()
    start, end = log.log_start_offset, log.log_end_offset
    end_min = promise.end_after_power_loss if power_lost else promise.end_after_kill
    assert end >= end_min, f"the log ends at {end}, promised was {end_min}"
    start_min = promise.start_min_after_power_loss if power_lost else promise.start_min_after_kill
    assert start_min <= start <= promise.start_max or (start, end) == (start_min, start_min), (
        f"the log starts at {start}, not between {start_min} and {promise.start_max}"
    )
    records, headers = read_all(log)
    offsets = [offset for offset, _ in records]
    # Nothing is promised about a log that was never flushed after a power loss, not even that a prefix is left.
    if promise.end_after_power_loss or not power_lost:
        assert offsets == list(range(start, end)), f"offsets of {start} to {end} have holes"
    assert offsets == sorted(set(offsets))
    result = []
    for offset, record in records:
        candidates = model.candidates(offset, step)
        same = [written for written in candidates if written.record == record]
        assert same, f"the record at {offset} was never written there, or was taken back: {record}"
        result.append(same[-1])
    _check_epochs(log, headers)
    if offsets == list(range(start, end)):
        _check_producers(log, result)
    check_transactions(log)
    check_lookups(log, records)
    return result


def check_compacted(partition: Partition, model: Promises, step: int, *, power_lost: bool) -> None:
    """Checks that the latest record of every key is present, and that all others were written at their offsets (CMP-3
    to CMP-5).
    """
    log = partition.log
    promise = model.at(step)
    partition.check()
    end_min = promise.end_after_power_loss if power_lost else promise.end_after_kill
    assert log.log_end_offset >= end_min
    records, _ = read_all(log)
    offsets = [offset for offset, _ in records]
    assert offsets == sorted(set(offsets)), "order never changes"
    latest: dict[bytes | None, int] = {}
    for offset, record in records:
        (written,) = model.candidates(offset, step)
        assert record == written.record
        latest[record.key] = offset
    for offset in range(end_min):
        (written,) = model.candidates(offset, step)
        # A later record may be present instead; cleaning removes a record only when a later one is on disk.
        assert latest.get(written.record.key, -1) >= offset, f"the latest value of {written.record.key!r} is gone"
    check_lookups(log, records)


def _check_epochs(log: Log, headers: list[BatchHeader]) -> None:
    entries = log.epochs.entries
    assert entries == sorted(entries), "epochs are out of order"
    for header in headers:
        known_epoch = log.epochs.epoch_at(max(header.base_offset, log.log_start_offset))
        assert known_epoch == header.leader_epoch, (
            f"the batch at {header.base_offset} is of epoch {header.leader_epoch}: {known_epoch}"
        )


def _check_producers(log: Log, batches: list[Written]) -> None:
    """Checks that the last batch of every producer is recognised as a duplicate when it is sent again."""
    latest = {written.producer_id: written for written in batches if written.producer_id >= 0}
    for producer, written in latest.items():
        duplicate = log.producers.check_sequence(producer, 0, written.first_sequence, written.last - written.first)
        assert isinstance(duplicate, CachedBatch), f"producer {producer} may repeat offset {written.first}: {duplicate}"
        assert duplicate.last_offset == written.last
    assert log.producers.end_offset == log.log_end_offset


def check_transactions(log: Log) -> None:
    """Checks the open transactions, and the aborted ones in each segment's index, against the batches (LOG-12, IDE-10).

    A log that has lost its beginning is not checked, because it may know older transactions.
    """
    if log.log_start_offset:
        return
    opened: dict[int, int] = {}
    for segment in log.segments:
        expected = []
        for position, header in segment.headers(0):
            if header.is_control:
                marker = read_marker(segment.batch_at(position, header.size_bytes))
                first = opened.pop(header.producer_id, None)
                if marker is not None and marker.kind == ABORT and first is not None:
                    stable = min(opened.values(), default=header.next_offset)
                    expected.append((header.producer_id, first, header.base_offset, stable))
            elif header.is_transactional:
                opened.setdefault(header.producer_id, header.base_offset)
        index = segment.aborted
        listed_entries = [] if index is None else [tuple(index.entry(number)) for number in range(len(index))]
        assert listed_entries == expected, f"segment {segment.base_offset} lists {listed_entries}"
    transactions = log.producers.transactions
    assert {producer: transactions.first_offset_of(producer) for producer in opened} == opened
    assert len(transactions) == len(opened)


def check_lookups(log: Log, records: list[tuple[int, Record]]) -> None:
    """Checks look-ups by offset and by time against a scan of the files (LOG-11, LOG-26)."""
    for segment in log.segments:
        scan = list(segment.headers(0))
        times = [header.max_timestamp for _, header in scan]
        assert segment.max_timestamp == max(times, default=-1), f"segment {segment.base_offset} has another latest time"
        for position, header in scan:
            for offset in {header.base_offset, header.last_offset}:
                assert segment.offset_index.lookup(offset) <= position, f"the index passes offset {offset}"
                assert segment.locate(offset) == (position, header)
        positions = dict(scan)
        entries = segment.offset_index.entries
        for last_offset, position in segment.offset_index.layout.iter_unpack(entries):
            assert positions[position].last_offset == last_offset + segment.base_offset
        for timestamp_ms, relative in segment.time_index.layout.iter_unpack(segment.time_index.entries):
            reached = [header for _, header in scan if header.last_offset <= relative + segment.base_offset]
            assert max(header.max_timestamp for header in reached) == timestamp_ms
    if not records:
        return
    timestamps_ms = sorted({record.timestamp_ms for _, record in records})
    for timestamp_ms in {
        timestamps_ms[0],
        timestamps_ms[len(timestamps_ms) // 2],
        timestamps_ms[-1],
        timestamps_ms[-1] + 1,
    }:
        first = next((offset for offset, record in records if record.timestamp_ms >= timestamp_ms), None)
        answer = find_first_at_or_after(log, timestamp_ms)
        assert (answer.offset if answer else None) == first, f"time {timestamp_ms}"
    newest = find_greatest_timestamp(log)
    assert newest is not None


def check_files(directory: Path, log: Log) -> None:
    """Checks that no debris is left, and that all files belong to segments."""
    names = {path.name for path in directory.iterdir()}
    assert not [name for name in names if DEBRIS.search(name)], f"debris is left: {sorted(names)}"
    bases = {f"{segment.base_offset:020d}" for segment in log.segments}
    assert {name.split(".")[0] for name in names if name[:1].isdigit() and not name.endswith(".snapshot")} <= bases
