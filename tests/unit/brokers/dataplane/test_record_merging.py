"""Records of stored batches in new batches: the same ones, whatever their format, codec, gaps and transactions."""

from __future__ import annotations

import struct
from typing import Any

import crc32c
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.legacy_records import LegacyRecordBatchBuilder

from brokers.dataplane.record_batches import TRANSACTIONAL, Batch, batches, records
from brokers.dataplane.record_merging import StoredRecord, encode_varint, pack, unpack
from brokers.engine.records.builder import Record, build_batch
from brokers.engine.records.validation import BatchRules, check_batch, check_shape
from brokers.engine.wire.varints import encode_signed
from instances.copying.interfaces import CopiedBatch
from instances.copying.limits import COPY_BATCH_RECORDS_MAX

MANY = 1_000_000
FAR = 2**62
BYTES = st.none() | st.binary(max_size=40)
HEADERS = st.lists(st.tuples(st.text(max_size=8), BYTES), max_size=3)
RECORDS = st.lists(
    st.builds(Record, timestamp_ms=st.integers(0, 2**41), key=BYTES, value=BYTES, headers=HEADERS),
    min_size=1, max_size=12,
)  # fmt: skip
CODECS = st.integers(0, 4)


def content(raw: bytes, first: int = 0, stop: int = FAR) -> list[tuple[Any, ...]]:
    return [
        (record.timestamp_ms, record.key, record.value, list(record.headers))
        for batch in batches(raw)
        for record in records(0, batch, batch.body(MANY))
        if first <= record.offset < stop
    ]


def parsed(*raw: bytes | bytearray) -> list[Batch]:
    return [batch for part in raw for batch in batches(bytes(part))]


def repacked(stored: list[StoredRecord], batch_bytes_max: int = MANY) -> list[CopiedBatch]:
    made = list(pack(stored, batch_bytes_max))
    for batch in made:
        data = memoryview(bytearray(batch.data))
        check_batch(data, check_shape(data, 9), BatchRules(), now_ms=0)  # as brokers check what clients send
    return made


@given(groups=st.lists(st.tuples(RECORDS, CODECS), min_size=1, max_size=4), size=st.integers(1, 400))
def test_records_of_many_batches_are_the_same_in_new_ones(groups: list[Any], size: int) -> None:
    raw, base = b"", 100
    for group, codec in groups:
        raw += bytes(build_batch(group, base_offset=base, codec=codec))
        base += len(group)
    made = repacked(unpack(parsed(raw), (), 0, FAR).records, size)
    assert content(b"".join(batch.data for batch in made)) == content(raw)
    assert sum(batch.records for batch in made) == base - 100
    assert made[-1].next_offset == base
    assert [batch.next_offset for batch in made] == sorted(batch.next_offset for batch in made)


@given(group=RECORDS, codec=CODECS, data=st.data())
def test_only_offsets_that_are_asked_for_are_copied(group: list[Record], codec: int, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(group)))
    stop = data.draw(st.integers(first, len(group)))
    raw = bytes(build_batch(group, codec=codec))
    made = repacked(unpack(parsed(raw), (), first, stop).records)
    assert content(b"".join(batch.data for batch in made)) == content(raw, first, stop)


@given(messages=RECORDS, codec=st.integers(0, 3), magic=st.integers(0, 1))
def test_old_formats_become_new_batches(messages: list[Record], codec: int, magic: int) -> None:
    builder = LegacyRecordBatchBuilder(magic=magic, compression_type=codec, batch_size=1 << 20)
    for number, record in enumerate(messages):
        builder.append(number, timestamp=record.timestamp_ms, key=record.key, value=record.value)
    raw = bytes(builder.build())
    if codec:  # a broker gives the wrapper the offset of its last message
        raw = struct.pack(">q", len(messages) - 1) + raw[8:]
    made = repacked(unpack(parsed(raw), (), 0, FAR).records)
    assert content(b"".join(batch.data for batch in made)) == content(raw)


def test_gaps_aborted_transactions_and_markers_are_left_out_and_committed_ones_belong_to_no_producer() -> None:
    one, two, three = (Record(1_000 + number, b"k", b"v%d" % number) for number in range(3))
    kept = build_batch([one], base_offset=5, attributes=TRANSACTIONAL, producer_id=7, producer_epoch=1, base_sequence=0)
    lost = build_batch([two], base_offset=9, attributes=TRANSACTIONAL, producer_id=8, producer_epoch=1, base_sequence=0)
    plain = build_batch([three], base_offset=20)
    stored = unpack(parsed(kept, lost, plain), [(8, 9)], 0, FAR)
    assert [(record.offset, record.timestamp_ms) for record in stored.records] == [(5, 1_000), (20, 1_002)]
    assert stored.skipped_records == 0
    (made,) = repacked(stored.records)
    (batch,) = parsed(made.data)
    assert (batch.base_offset, batch.count, batch.producer_id, batch.is_transactional) == (0, 2, -1, False)


def test_names_of_headers_that_are_not_utf8_are_copied_byte_by_byte() -> None:
    fields = b"".join((
        encode_varint(-1), encode_varint(-1), encode_varint(1), encode_varint(2), b"\xff\xfe", encode_varint(-1),
    ))  # fmt: skip
    (made,) = pack([StoredRecord(0, 5, fields, False)], MANY)
    assert content(made.data) == [(5, None, None, [(b"\xff\xfe", None)])]


def test_a_damaged_batch_is_counted_and_the_others_are_copied() -> None:
    whole, damaged = build_batch([Record(1, b"a", b"b")]), build_batch([Record(2, b"c", b"d")] * 3, base_offset=1)
    damaged[-1] ^= 1
    stored = unpack(parsed(whole, damaged), (), 0, FAR)
    assert (len(stored.records), stored.skipped_records) == (1, 3)


def test_a_batch_with_a_right_checksum_and_wrong_lengths_is_counted_too() -> None:
    raw = build_batch([Record(1, b"a", b"b")])
    raw[61] = 0x7E
    raw[17:21] = crc32c.crc32c(bytes(raw[21:])).to_bytes(4, "big")
    assert unpack(parsed(raw), (), 0, FAR) == ([], 1)


def test_records_of_no_size_are_split_by_their_number() -> None:
    nothing = encode_varint(-1) * 2 + encode_varint(0)
    stored = [StoredRecord(number, 0, nothing, False) for number in range(COPY_BATCH_RECORDS_MAX + 1)]
    made = list(pack(stored, 2**30))
    assert all(batch.records <= COPY_BATCH_RECORDS_MAX for batch in made)
    assert sum(batch.records for batch in made) == len(stored)


@given(number=st.integers(-(2**63), 2**63 - 1))
def test_numbers_are_encoded_as_the_broker_encodes_them(number: int) -> None:
    assert encode_varint(number) == bytes(encode_signed(number))
