"""Offset deltas: the fast check against a slow one, on runs, mixtures and every integer width."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brokers.engine.records import batch as layout
from brokers.engine.records import error_codes
from brokers.engine.records.builder import Record, build_batch, encode_record
from brokers.engine.records.compression import ZSTD
from brokers.engine.records.numbering import has_consecutive_deltas, renumber
from brokers.engine.records.rejections import BatchRejected
from brokers.engine.records.validation import BatchRules, check_batch
from brokers.engine.records.walk import Malformed, check_lengths, record_deltas

# Value sizes of consecutive records, and timestamps, whose encoded width changes within runs too.
RUNS = st.lists(
    st.tuples(st.integers(1, 200), st.integers(0, 140), st.sampled_from([0, 1, 63, 64, 9_000, -5, 2**40])), max_size=6
)
OFF = st.one_of(st.none(), st.tuples(st.floats(0, 1, exclude_max=True), st.sampled_from([-1, 1, 64, 8192, -9, 2**30])))


def block_of(runs: list[tuple[int, int, int]], off: tuple[float, int] | None) -> tuple[bytes, int]:
    sizes = [(size, timestamp + at % 3) for count, size, timestamp in runs for at in range(count)]
    wrong = -1 if off is None or not sizes else int(off[0] * len(sizes))
    result = bytearray()
    for index, (size, timestamp) in enumerate(sizes):
        delta = index + (off[1] if off is not None and index == wrong else 0)
        result += encode_record(Record(timestamp, None, b"v" * size), delta, 0)
    return bytes(result), len(sizes)


@given(RUNS, OFF)
@settings(max_examples=300, deadline=None)
def test_the_fast_check_agrees_with_the_slow_one(runs: list[tuple[int, int, int]], off: tuple[float, int]) -> None:
    block, count = block_of(runs, off)
    check_lengths(block, count)
    deltas = [delta for delta, _ in record_deltas(block, count)]
    assert has_consecutive_deltas(block, count) == (deltas == list(range(count)))
    mended = renumber(block, count)
    check_lengths(mended, count)
    assert [delta for delta, _ in record_deltas(mended, count)] == list(range(count))


@pytest.mark.parametrize("wrong", [None, 0, 63, 64, 8_191, 8_192, 19_999])
@pytest.mark.parametrize("size", [20, 90])
def test_wrong_deltas_of_every_width_are_detected(wrong: int | None, size: int) -> None:
    block = b"".join(
        encode_record(Record(0, None, b"v" * size), index ^ (1 if index == wrong else 0), 0) for index in range(20_000)
    )
    check_lengths(block, 20_000)
    assert has_consecutive_deltas(block, 20_000) == (wrong is None)


@pytest.mark.parametrize("body", [b"\x00" + b"\xff" * 20, b"\x00\x00" + b"\xff" * 12])
def test_an_invalid_integer_is_malformed(body: bytes) -> None:
    block = bytes((2 * len(body),)) + body
    with pytest.raises(Malformed):
        has_consecutive_deltas(block * 6, 6)


@pytest.mark.parametrize(
    "body", [b"\x00\x80\x80\x80\x80\x00", b"\x00\x00\x80\x80\x80\x01", b"\x00\x00\x00\x01\x01\x02"]
)
def test_records_whose_fields_do_not_fill_them_are_not_numbered(body: bytes) -> None:
    """Their lengths are consistent, but rewritten records would not be."""
    misnumbered = encode_record(Record(0, None, b"v"), 1, 0)
    block = misnumbered + (bytes((2 * len(body),)) + body) * 5
    check_lengths(block, 6)
    assert not has_consecutive_deltas(block, 6)
    with pytest.raises(Malformed):
        renumber(block, 6)
    data = build_batch([Record(0, None, b"v")] * 6)[: layout.HEADER_BYTES] + block
    layout.OFFSET_AND_LENGTH.pack_into(data, 0, 0, len(data) - layout.LOG_OVERHEAD_BYTES)
    layout.write_crc(data)
    with pytest.raises(BatchRejected) as refused:
        check_batch(memoryview(data), len(data), BatchRules(codec=ZSTD), 0)
    assert refused.value.code == error_codes.INVALID_RECORD
