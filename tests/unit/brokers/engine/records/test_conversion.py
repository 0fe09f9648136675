"""Conversion of old message sets to batches and back (REC-30, REC-31, B.7)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.engine.records import batch as layout
from brokers.engine.records import error_codes
from brokers.engine.records.builder import Record, build_batch, read_records
from brokers.engine.records.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, Oversized, Undecodable, compress
from brokers.engine.records.conversion import (
    ConversionBudget,
    UnsupportedCodec,
    check_message_set,
    convert_to_messages,
    to_batch,
)
from brokers.engine.records.message_set import compress_old, encode_message, read_set
from brokers.engine.records.rejections import BatchRejected
from brokers.engine.records.validation import BatchRules, check_batch
from brokers.engine.records.walk import Malformed
from brokers.engine.wire.checksum import crc32

TIME_MS = 1_600_000_000_000
OLD_CODECS = [NONE, GZIP, SNAPPY, LZ4]
LARGE = 1 << 20
fields = st.none() | st.binary(max_size=60)
records = st.lists(st.builds(Record, st.integers(0, 2**41), fields, fields, st.just(())), min_size=1, max_size=20)


def old_set(magic: int, codec: int, wanted: list[Record]) -> bytes:
    block = b"".join(encode_message(magic, at, r.timestamp_ms, r.key, r.value) for at, r in enumerate(wanted))
    if codec == NONE:
        return block
    return encode_message(magic, len(wanted) - 1, 0, None, compress_old(codec, block, magic), codec)


def batch_of(data: bytes, *, log_append_time: bool = False, bytes_max: int = LARGE) -> bytearray:
    return to_batch(data, check_message_set(data, bytes_max), log_append_time=log_append_time)


def one(value: bytes = b"v", magic: int = 1, time_ms: int = TIME_MS, flags: int = 0, offset: int = 0) -> bytes:
    return encode_message(magic, offset, time_ms, b"k", value, flags)


@given(records, st.sampled_from([0, 1]), st.sampled_from(OLD_CODECS))
def test_a_set_becomes_one_batch_with_its_codec(wanted: list[Record], magic: int, codec: int) -> None:
    data = batch_of(old_set(magic, codec, wanted))
    header = layout.read_header(data)
    assert (header.codec, header.crc, header.size_bytes) == (codec, layout.checksum(data), len(data))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
    stored = [record if magic else record._replace(timestamp_ms=-1) for record in wanted]
    assert read_records(data) == list(enumerate(stored))
    assert header.max_timestamp == max(record.timestamp_ms for record in stored)


@given(records, st.sampled_from([0, 1]), st.sampled_from(OLD_CODECS), st.integers(0, 2**40), st.integers(0, 19))
def test_a_batch_becomes_messages_from_the_offset_that_was_asked_for(
    wanted: list[Record], magic: int, codec: int, base: int, ahead: int
) -> None:
    data = bytes(build_batch(wanted, codec=codec, base_offset=base))
    result = list(read_set(convert_to_messages(data, magic, base + ahead)))
    skipped = ahead if codec == NONE else 0
    assert [(m.offset, m.timestamp_ms, m.key, m.value) for m in result] == [
        (base + at, record.timestamp_ms if magic else -1, record.key, record.value)
        for at, record in enumerate(wanted)
        if at >= skipped
    ]


@given(records, st.sampled_from([0, 1]), st.sampled_from(OLD_CODECS))
def test_there_and_back_is_the_same(wanted: list[Record], magic: int, codec: int) -> None:
    there = old_set(magic, codec, wanted)
    back = convert_to_messages(bytes(batch_of(there)), magic, 0)
    assert [m[:4] for m in read_set(back)] == [m[:4] for m in read_set(there)]


def test_old_readers_get_the_log_append_time() -> None:
    """REC-11."""
    data = build_batch([Record(5, None, b"a"), Record(6, None, b"b")], codec=GZIP)
    layout.set_attributes_and_timestamp(data, layout.read_header(data).attributes | layout.LOG_APPEND_TIME, TIME_MS)
    (entry,) = [convert_to_messages(bytes(data), 1, 0)]
    assert entry[17] == GZIP | layout.LOG_APPEND_TIME
    assert [m.timestamp_ms for m in read_set(entry)] == [TIME_MS, TIME_MS]


def test_control_batches_are_omitted() -> None:
    control = build_batch([Record(0, b"\0\0\0\1", b"")], attributes=layout.CONTROL | layout.TRANSACTIONAL)
    data = bytes(build_batch([Record(0, None, b"a")], base_offset=0)) + bytes(control)
    assert [m.value for m in read_set(convert_to_messages(data, 1, 0))] == [b"a"]
    assert convert_to_messages(bytes(control), 0, 0) == b""


def test_old_readers_get_the_batches_before_a_zstd_batch() -> None:
    readable = bytes(build_batch([Record(0, None, b"a")]))
    zstd = bytes(build_batch([Record(0, None, b"b")], codec=ZSTD))
    assert [m.value for m in read_set(convert_to_messages(readable + zstd + readable, 1, 0))] == [b"a"]
    with pytest.raises(UnsupportedCodec):
        convert_to_messages(zstd + readable, 1, 0)


@pytest.mark.parametrize("codec", [NONE, GZIP])
def test_no_flipped_bit_of_a_stored_batch_reaches_an_old_reader_under_a_good_checksum(codec: int) -> None:
    good = bytes(build_batch([Record(TIME_MS, b"k", b"good")], codec=codec))
    stored = build_batch([Record(TIME_MS, b"k", b"good"), Record(TIME_MS, None, b"also")], base_offset=1, codec=codec)
    for at in range(layout.CRC_AT, len(stored)):
        damaged = bytearray(stored)
        damaged[at] ^= 1 << at % 8
        for magic in (0, 1):
            with pytest.raises((Malformed, Undecodable)):
                convert_to_messages(bytes(damaged), magic, 1)
            assert convert_to_messages(good + bytes(damaged), magic, 0) == convert_to_messages(good, magic, 0)


def test_a_conversion_does_not_grow_far_beyond_its_input() -> None:
    piece = bytes(build_batch([Record(0, None, b"")] * 2_000))
    data = b"".join(bytes(build_batch([Record(0, None, b"")] * 2_000, base_offset=2_000 * at)) for at in range(30))
    out = convert_to_messages(data, 1, 0)
    assert len(data) <= len(out) <= 5 * max(len(data), 128 * 1024 + len(piece))


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (one(b"v" * 300), error_codes.MESSAGE_TOO_LARGE),
        (one()[:-1] + b"w", error_codes.CORRUPT_MESSAGE),
        (one()[:16] + b"\x03" + one()[17:], error_codes.CORRUPT_MESSAGE),
        (one() + one(magic=0), error_codes.INVALID_RECORD),
        (one() + bytes(build_batch([Record(0, None, b"")])), error_codes.INVALID_RECORD),
        (one() + old_set(1, GZIP, [Record(0, None, b"")]), error_codes.INVALID_RECORD),
        (old_set(1, GZIP, [Record(0, None, b"")]) * 2, error_codes.INVALID_RECORD),
        (encode_message(1, 0, 0, None, b"x", 5), error_codes.INVALID_RECORD),
    ],
    ids=["large", "checksum", "format 3", "mixed", "with a batch", "with a wrapper", "two wrappers", "codec 5"],
)
def test_an_invalid_set_is_refused_before_decompression(data: bytes, code: int) -> None:
    with pytest.raises(BatchRejected) as refused:
        check_message_set(data, 250)
    assert refused.value.code == code


@pytest.mark.parametrize(
    ("data", "log_append_time", "code"),
    [
        (encode_message(1, 0, 0, None, None, GZIP), False, error_codes.INVALID_RECORD),
        (encode_message(1, 0, 0, None, b"no gzip", GZIP), False, error_codes.CORRUPT_MESSAGE),
        (one(time_ms=-2), False, error_codes.INVALID_TIMESTAMP),
        (one(time_ms=2**63 - 1), False, error_codes.INVALID_TIMESTAMP),
        (one(flags=layout.LOG_APPEND_TIME), True, error_codes.INVALID_TIMESTAMP),
        (one(flags=layout.LOG_APPEND_TIME, time_ms=-1), False, error_codes.INVALID_TIMESTAMP),
    ],
    ids=[
        "null wrapper",
        "no gzip",
        "before 1970",
        "the end of time",
        "claim under the broker's time",
        "claim without a time",
    ],
)
def test_invalid_inner_messages_are_refused(data: bytes, log_append_time: bool, code: int) -> None:
    with pytest.raises(BatchRejected) as refused:
        batch_of(data, log_append_time=log_append_time)
    assert refused.value.code == code


def test_a_claim_of_log_append_time_is_dropped() -> None:
    """REC-57, as in Kafka 3.9.1."""
    header = layout.read_header(batch_of(one(flags=layout.LOG_APPEND_TIME)))
    assert (header.attributes, header.max_timestamp) == (0, TIME_MS)


def test_a_set_without_a_complete_message_is_empty() -> None:
    assert check_message_set(b"", LARGE).magic == -1
    assert check_message_set(one()[:-1], LARGE).magic == -1


def test_a_bomb_is_refused() -> None:
    block = one(b"\0" * 1_000_000) * 40
    with pytest.raises(BatchRejected) as refused:
        batch_of(encode_message(1, 39, 0, None, compress_old(GZIP, block, 1), GZIP))
    assert refused.value.code == error_codes.MESSAGE_TOO_LARGE


@given(st.binary(max_size=120), st.sampled_from([0, 1]), st.sampled_from(OLD_CODECS), st.integers(-(2**63), 2**63 - 1))
def test_no_stored_bytes_make_a_reader_fail_in_another_way(
    payload: bytes, magic: int, codec: int, time_ms: int
) -> None:
    record = bytes(build_batch([Record(0, None, payload)], codec=NONE))[layout.HEADER_BYTES :]
    for block in (payload, record, record[:-1] + payload[:1]):
        data = bytearray(layout.HEADER_BYTES) + compress(codec, block)
        length = len(data) - layout.LOG_OVERHEAD_BYTES
        fields = (0, length, 0, layout.MAGIC, 0, codec, 0, time_ms, time_ms, -1, -1, -1, 1)
        layout.HEADER.pack_into(data, 0, *fields)
        layout.write_crc(data)
        try:
            convert_to_messages(bytes(data), magic, 0)
        except (Malformed, Undecodable, Oversized):
            continue


def test_overflowing_timestamps_are_converted_like_other_readers_do() -> None:
    data = bytearray(build_batch([Record(0, None, b"a"), Record(5, None, b"b")]))
    layout.HEADER.pack_into(data, 0, *layout.read_header(data)._replace(base_timestamp=2**63 - 2))
    layout.write_crc(data)
    assert [m.timestamp_ms for m in read_set(convert_to_messages(bytes(data), 1, 0))] == [2**63 - 2, -(2**63) + 3]


@given(records, st.sampled_from([0, 1]), st.sampled_from(OLD_CODECS), st.integers(0, 2**20), st.binary(max_size=6))
def test_any_set_becomes_a_valid_batch_or_is_refused(
    wanted: list[Record], magic: int, codec: int, at: int, over: bytes
) -> None:
    data = bytearray(old_set(magic, codec, wanted))
    at %= len(data)
    data[at : at + len(over)] = over
    entry_end = layout.LOG_OVERHEAD_BYTES + int.from_bytes(data[8:12], "big")
    for checksum in (None, crc32(bytes(data[16:entry_end]))):
        if checksum is not None and entry_end <= len(data):
            data[12:16] = checksum.to_bytes(4, "big")
        try:
            result = check_message_set(bytes(data), LARGE)
            if result.magic not in (0, 1):
                continue
            batch = memoryview(to_batch(bytes(data), result, log_append_time=False))
        except BatchRejected:
            continue
        checked = check_batch(batch, len(batch), BatchRules(), TIME_MS)
        assert len(read_records(checked[0])) == checked[1] + 1


def test_every_size_of_set_up_to_a_thousand_passes_the_check_of_a_batch() -> None:
    for count in (1, 2, 4, 5, 64, 65, 1_000):
        for codec in OLD_CODECS:
            data = batch_of(old_set(1, codec, [Record(at, b"k" * (at % 200), b"v") for at in range(count)]))
            assert check_batch(memoryview(data), len(data), BatchRules(), TIME_MS)[1] == count - 1


def test_the_conversion_work_of_one_request_is_bounded() -> None:
    """REC-30: seven kilobytes can have a quarter of a million messages, and a request ten thousand such sets."""
    small = old_set(1, GZIP, [Record(0, None, b"")] * 1_000)
    work = ConversionBudget(100_000)
    assert len(to_batch(small, check_message_set(small, LARGE), work, log_append_time=False)) > 0
    for data in (small, old_set(1, LZ4, [Record(0, None, b"")])):
        with pytest.raises(BatchRejected) as refused:
            to_batch(data, check_message_set(data, LARGE), work, log_append_time=False)
        assert refused.value.code == error_codes.MESSAGE_TOO_LARGE
    assert len(to_batch(one(), check_message_set(one(), LARGE), work, log_append_time=False)) > 0


def test_a_response_ends_when_the_conversion_work_is_used_up() -> None:
    """REC-31."""
    batches = [
        bytes(build_batch([Record(0, None, b"")] * 1_000, codec=GZIP, base_offset=1_000 * at)) for at in range(3)
    ]
    headers = [("", None)] * 1_000
    batches[1] = bytes(build_batch([Record(0, None, b"", headers)], codec=GZIP, base_offset=1_000))
    data = b"".join(batches)
    assert convert_to_messages(data, 1, 0, ConversionBudget(10_000)) == convert_to_messages(batches[0], 1, 0)
    work = ConversionBudget(200_000)
    assert convert_to_messages(data, 1, 0, work) == convert_to_messages(data[: len(batches[0]) + len(batches[1])], 1, 0)
    assert work.is_used_up


def test_batches_before_an_inconvertible_one_are_returned() -> None:
    """REC-31: a batch with an error in fields that are not checked at produce must not hide the valid one before it."""
    good = bytes(build_batch([Record(0, None, b"a")]))
    rotten = build_batch([Record(0, None, b"b")], base_offset=1)
    rotten[-1] = 1  # a missing header
    layout.write_crc(rotten)
    assert convert_to_messages(good + bytes(rotten), 1, 0) == convert_to_messages(good, 1, 0)
    with pytest.raises(Malformed):
        convert_to_messages(bytes(rotten) + good, 1, 1)
