"""Record batches of every format and codec, and malformed ones."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.legacy_records import LegacyRecordBatchBuilder
from kafka.record.memory_records import MemoryRecords, MemoryRecordsBuilder

from brokers.dataplane.inflating import DamagedBatch, TooLarge, inflate
from brokers.dataplane.record_batches import batches, parse_varint, records
from instances.messages.interfaces import Record

MANY = 1_000_000
BYTES = st.none() | st.binary(max_size=40)
HEADERS = st.lists(st.tuples(st.text(max_size=8), BYTES), max_size=3)
MESSAGES = st.lists(st.tuples(st.integers(0, 2**41), BYTES, BYTES, HEADERS), min_size=1, max_size=12)


def read(raw: bytes, *, newest_first: bool = False, bytes_max: int = MANY) -> list[Record]:
    found: list[Record] = []
    for batch in batches(raw):
        found += records(0, batch, batch.body(bytes_max), newest_first=newest_first)
    return found


def built(messages: list[Any], codec: int) -> bytes:
    builder = MemoryRecordsBuilder(2, codec, 1 << 20)
    for timestamp_ms, key, value, headers in messages:
        builder.append(timestamp=timestamp_ms, key=key, value=value, headers=headers)
    builder.close()
    return bytes(builder.buffer())


@given(messages=MESSAGES, codec=st.integers(0, 4))
def test_a_batch_is_read_as_kafka_python_reads_it_in_both_directions(messages: list[Any], codec: int) -> None:
    raw = built(messages, codec)
    expected = [
        (record.offset, record.timestamp, record.key, record.value, record.headers)
        for record in MemoryRecords(raw).next_batch()
    ]
    found = read(raw)
    assert [
        (r.offset, r.timestamp_ms, r.key, r.value, [(name.decode(), value) for name, value in r.headers]) for r in found
    ] == expected
    assert read(raw, newest_first=True) == found[::-1]


@given(messages=MESSAGES, codec=st.integers(0, 3), magic=st.integers(0, 1))
def test_old_formats_are_read_as_kafka_python_reads_them(messages: list[Any], codec: int, magic: int) -> None:
    builder = LegacyRecordBatchBuilder(magic=magic, compression_type=codec, batch_size=1 << 20)
    for number, (timestamp_ms, key, value, _) in enumerate(messages):
        builder.append(number, timestamp=timestamp_ms, key=key, value=value)
    raw = bytes(builder.build())
    if codec:  # a broker gives the wrapper the offset of its last message
        raw = struct.pack(">q", len(messages) - 1) + raw[8:]
    expected = []
    known = MemoryRecords(raw)
    while known.has_next():
        expected += [(record.offset, record.key, record.value) for record in known.next_batch()]
    found = read(raw)
    assert [(record.offset, record.key, record.value) for record in found] == expected
    assert read(raw, newest_first=True) == found[::-1] or not codec


@given(messages=MESSAGES, codec=st.integers(0, 4), data=st.data())
def test_a_damaged_batch_is_damaged_and_nothing_else(messages: list[Any], codec: int, data: st.DataObject) -> None:
    raw = bytearray(built(messages, codec))
    at = data.draw(st.integers(21, len(raw) - 1))
    raw[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises((DamagedBatch, TooLarge)):
        read(bytes(raw))


@given(raw=st.binary(max_size=300))
def test_any_bytes_are_batches_or_none(raw: bytes) -> None:
    for batch in batches(raw):
        try:
            list(records(0, batch, batch.body(MANY)))
        except (DamagedBatch, TooLarge):
            continue


@given(count=st.integers(-1, 2**31 - 1), body=st.binary(max_size=200))
def test_a_batch_that_promises_more_than_it_has_is_damaged(count: int, body: bytes) -> None:
    (batch,) = batches(built([(1, b"k", b"v", [])], 0))
    batch.count = count
    try:
        found = list(records(0, batch, body))
    except DamagedBatch:
        return
    assert len(found) <= max(count, 0)


@given(codec=st.integers(1, 4), data=st.binary(max_size=300))
def test_bytes_that_no_codec_wrote_are_damaged(codec: int, data: bytes) -> None:
    try:
        inflate(codec, memoryview(data), 10_000)
    except (DamagedBatch, TooLarge):
        return


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_batch_that_inflates_beyond_the_limit_is_not_inflated(codec: int) -> None:
    (batch,) = batches(built([(1, b"k", bytes(100_000), [])], codec))
    assert len(batch.body(100_100)) > 100_000
    with pytest.raises(TooLarge):
        batch.body(100_000)


def test_a_last_batch_that_was_cut_off_is_left_out() -> None:
    raw = built([(1, b"k", b"v", [])], 0)
    assert len(list(batches(raw + raw[:-1]))) == 1
    assert not list(batches(raw[: struct.calcsize(">qi")]))


def test_a_number_without_an_end_is_damaged() -> None:
    with pytest.raises(DamagedBatch):
        parse_varint(b"\xff" * 20, 0)
