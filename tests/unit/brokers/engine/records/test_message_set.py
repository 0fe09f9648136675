"""Message formats 0 and 1 against test vectors and against readers and writers of two clients (REC-5 to REC-12)."""

from __future__ import annotations

import pytest
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder as AioBuilder
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.legacy_records import LegacyRecordBatchBuilder as KafkaPythonBuilder
from kafka.record.memory_records import MemoryRecords

from brokers.engine.records.builder import Record, build_batch
from brokers.engine.records.compression import GZIP, LZ4, NONE, SNAPPY, Undecodable, compress
from brokers.engine.records.message_set import (
    Corrupt,
    Invalid,
    Message,
    compress_old,
    decompress_old,
    encode_message,
    read_entries,
    read_set,
)
from tests.unit.brokers.engine.records.test_vectors import VEC_2, VEC_3, VEC_4

TIME_MS = 1_600_000_000_000
OLD_CODECS = [NONE, GZIP, SNAPPY, LZ4]
FORMATS = [(magic, codec) for magic in (0, 1) for codec in OLD_CODECS]
# aiokafka writes no LZ4 in format 0.
WRITERS = [(builder, *kind) for kind in FORMATS for builder in (KafkaPythonBuilder, AioBuilder)]
WRITERS.remove((AioBuilder, 0, LZ4))
fields = st.none() | st.binary(max_size=60)
pairs = st.lists(st.tuples(st.integers(0, 2**41), fields, fields), min_size=1, max_size=20)


def wrapped(magic: int, codec: int, inner: bytes, *, offset: int = 0, time_ms: int = TIME_MS, flags: int = 0) -> bytes:
    return encode_message(magic, offset, time_ms, None, compress_old(codec, inner, magic), flags | codec)


def test_messages_are_written_and_read_bit_by_bit() -> None:
    """VEC-2, VEC-3."""
    assert encode_message(0, 0, -1, b"k", b"v") == VEC_2
    assert encode_message(1, 0, TIME_MS, b"k", b"v") == VEC_3
    assert list(read_set(VEC_2 + VEC_3)) == [Message(0, -1, b"k", b"v"), Message(0, TIME_MS, b"k", b"v")]


def test_entries_of_every_format_follow_each_other_and_name_it_in_the_same_byte() -> None:
    """REC-1: offset, size and format come before any field that differs between formats."""
    written = [
        encode_message(0, 5, -1, b"k", b"v" * 9),
        encode_message(1, 2**40, TIME_MS, None, b"v"),
        bytes(build_batch([Record(TIME_MS, b"k", b"v")] * 3, base_offset=2**41)),
        encode_message(0, 2**42, -1, None, None),
    ]
    data = b"".join(written)

    result = list(read_entries(data))

    assert [(entry.offset, entry.magic) for entry in result] == [(5, 0), (2**40, 1), (2**41, 2), (2**42, 0)]
    assert [data[entry.start : entry.end] for entry in result] == written
    assert [data[entry.start + 16] for entry in result] == [0, 1, 2, 0]
    assert [int.from_bytes(data[8:12], "big") for data in written] == [entry.size_bytes - 12 for entry in result]
    assert list(read_entries(data[:-1])) == result[:-1], "a cut entry at the end is left out"


@given(pairs, st.sampled_from([0, 1]), st.sampled_from(OLD_CODECS), st.integers(0, 2**40))
def test_a_set_reads_back_what_was_written(
    wanted: list[tuple[int, bytes | None, bytes | None]], magic: int, codec: int, base: int
) -> None:
    relative = 0 if magic and codec else base
    block = b"".join(encode_message(magic, relative + at, *record) for at, record in enumerate(wanted))
    last = base + len(wanted) - 1
    # Offset 0 means "unknown" for a wrapper of format 1, and then its messages begin at 0.
    data = wrapped(magic, codec, block, offset=last) if codec else block
    result = [(m.offset, m.timestamp_ms, m.key, m.value) for m in read_set(data)]
    assert result == [(base + at, time_ms if magic else -1, *rest) for at, (time_ms, *rest) in enumerate(wanted)]


@pytest.mark.parametrize(("builder", "magic", "codec"), WRITERS)
@pytest.mark.parametrize("count", [1, 3, 700])
def test_sets_of_other_clients_are_read(builder: type, magic: int, codec: int, count: int) -> None:
    made = builder(magic=magic, compression_type=codec, batch_size=10**7)
    for at in range(count):
        made.append(at, timestamp=TIME_MS + at, key=b"k%d" % at, value=b"v" * 100)
    result = list(read_set(bytes(made.build())))
    assert [m.offset for m in result] == list(range(count))
    assert [m.key for m in result] == [b"k%d" % at for at in range(count)]
    assert [m.timestamp_ms for m in result] == [TIME_MS + at if magic else -1 for at in range(count)]


@pytest.mark.parametrize(("magic", "codec"), FORMATS)
def test_kafka_python_reads_what_is_written(magic: int, codec: int) -> None:
    relative = 0 if magic and codec else 40
    block = b"".join(encode_message(magic, relative + at, TIME_MS + at, b"k", b"v%d" % at) for at in range(3))
    data = wrapped(magic, codec, block, offset=42) if codec else block
    batches = MemoryRecords(data)
    result = []
    while (theirs := batches.next_batch()) is not None:
        assert theirs.validate_crc()
        result += [(record.offset, record.value) for record in theirs]
    assert result == [(40 + at, b"v%d" % at) for at in range(3)]


def test_a_wrapper_at_offset_zero_counts_from_zero() -> None:
    """REC-10: old versions of librdkafka send offset 0 for any content."""
    block = b"".join(encode_message(1, at, TIME_MS, None, b"v") for at in range(3))
    assert [m.offset for m in read_set(wrapped(1, GZIP, block, offset=0))] == [0, 1, 2]


def test_log_append_time_of_a_wrapper_applies_to_all_inner_messages() -> None:
    """REC-11."""
    block = b"".join(encode_message(1, at, at, None, b"v") for at in range(3))
    result = read_set(wrapped(1, SNAPPY, block, offset=2, flags=0x08))
    assert [m.timestamp_ms for m in result] == [TIME_MS] * 3


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (encode_message(1, 0, 0, None, None, GZIP), Invalid),
        (wrapped(1, GZIP, b""), Invalid),
        (wrapped(1, GZIP, VEC_2), Invalid),
        (wrapped(0, GZIP, VEC_3), Invalid),
        (wrapped(1, GZIP, wrapped(1, GZIP, VEC_3)), Invalid),
        (wrapped(1, GZIP, VEC_3.replace(b"k", b"j")), Corrupt),
        (wrapped(1, GZIP, encode_message(1, 7, 0, None, b"v"), offset=3), Invalid),
        (encode_message(1, 0, 0, None, b"no gzip", GZIP), Corrupt),
        (encode_message(1, 0, 0, None, compress(4, VEC_3), 4), Corrupt),
        (VEC_2[:-1] + b"w", Corrupt),
        (VEC_4, Invalid),
        (VEC_2[:8] + b"\0\0\0\x0d" + VEC_2[12:], Corrupt),
        (VEC_2[:16] + b"\x03" + VEC_2[17:], Corrupt),
    ],
    ids=[
        "a wrapper of nothing",
        "an empty wrapper",
        "format 0 inside 1",
        "format 1 inside 0",
        "a wrapper inside a wrapper",
        "an inner checksum",
        "an offset below the last inside",
        "no gzip",
        "zstd",
        "a checksum",
        "a batch",
        "too short",
        "an unknown format",
    ],
)
def test_each_fault_raises_its_error(data: bytes, fault: type[Exception]) -> None:
    with pytest.raises(fault):
        list(read_set(data))


def test_an_incomplete_entry_at_the_end_is_omitted() -> None:
    """REC-60."""
    for cut in range(1, len(VEC_3)):
        assert [entry.end for entry in read_entries(VEC_2 + VEC_3[:cut])] == [len(VEC_2)]


@given(st.binary(max_size=200))
def test_random_bytes_raise_only_the_declared_errors(data: bytes) -> None:
    try:
        list(read_set(data))
    except (Corrupt, Invalid):
        return


@given(pairs, st.integers(0, 400), st.integers(0, 255), st.sampled_from([GZIP, SNAPPY, LZ4]))
def test_a_flipped_byte_is_never_read_as_good(
    wanted: list[tuple[int, bytes | None, bytes | None]], at: int, by: int, codec: int
) -> None:
    block = b"".join(encode_message(1, index, *record) for index, record in enumerate(wanted))
    data = bytearray(wrapped(1, codec, block, offset=len(wanted) - 1))
    at = 16 + at % (len(data) - 16)
    data[at] ^= by or 1
    with pytest.raises((Corrupt, Invalid)):
        list(read_set(bytes(data)))


def test_format_0_takes_lz4_with_either_checksum_and_format_1_only_with_the_right_one() -> None:
    data = b"abc" * 100
    right, wrong = compress_old(LZ4, data, 1), compress_old(LZ4, data, 0)
    assert right != wrong
    assert decompress_old(LZ4, right, 0) == decompress_old(LZ4, wrong, 0) == decompress_old(LZ4, right, 1) == data
    assert decompress_old(LZ4, compress(LZ4, data), 0) == data
    with pytest.raises(Undecodable):
        decompress_old(LZ4, wrong, 1)
    for cut in range(7):
        with pytest.raises(Undecodable):
            decompress_old(LZ4, right[:cut], 0)
