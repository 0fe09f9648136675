"""The check of lengths agrees with the full walk, for records of equal size, of few sizes and of random sizes."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.engine.records.builder import Record, encode_record
from brokers.engine.records.walk import Malformed, check_fields, check_lengths, walk

sizes = st.lists(st.sampled_from([0, 1, 50, 57, 58, 100, 9_000]) | st.integers(0, 300), min_size=1, max_size=60)
runs = st.lists(st.tuples(st.integers(0, 120), st.integers(1, 90)), min_size=1, max_size=12)


def block_of(value_sizes: list[int]) -> bytes:
    return b"".join(encode_record(Record(0, None, b"x" * size), at, at // 3) for at, size in enumerate(value_sizes))


@given(sizes)
def test_the_declared_count_and_no_other_is_accepted(value_sizes: list[int]) -> None:
    block = block_of(value_sizes)
    check_lengths(block, len(value_sizes))
    assert sum(1 for _ in walk(block, len(value_sizes))) == len(value_sizes)
    check_fields(block, len(value_sizes))
    for wrong in (len(value_sizes) - 1, len(value_sizes) + 1):
        for checker in (check_lengths, check_fields):
            with pytest.raises(Malformed):
                checker(block, wrong)


@given(runs)
def test_runs_of_equal_records_are_counted_exactly(shape: list[tuple[int, int]]) -> None:
    value_sizes = [size for size, count in shape for _ in range(count)]
    block = block_of(value_sizes)
    check_lengths(block, len(value_sizes))
    with pytest.raises(Malformed):
        check_lengths(block, len(value_sizes) + 1)


@given(sizes, st.data())
def test_a_cut_block_is_refused(value_sizes: list[int], data: st.DataObject) -> None:
    block = block_of(value_sizes)
    cut = data.draw(st.integers(0, len(block) - 1))
    for checker in (check_lengths, check_fields):
        with pytest.raises(Malformed):
            checker(block[:cut], len(value_sizes))


@given(st.binary(max_size=200), st.integers(1, 40))
def test_random_bytes_raise_only_malformed(rubbish: bytes, count: int) -> None:
    with contextlib.suppress(Malformed):
        check_lengths(rubbish, count)
    results = set()
    for checker in (check_fields, lambda data, number: list(walk(data, number))):
        try:
            checker(rubbish, count)
            results.add("accepted")
        except Malformed:
            results.add("refused")
    assert len(results) == 1, "the two full walks disagree"


@given(sizes, st.data())
def test_the_hop_accepts_everything_that_the_full_walk_accepts(value_sizes: list[int], data: st.DataObject) -> None:
    block = bytearray(block_of(value_sizes))
    at = data.draw(st.integers(0, len(block) - 1))
    block[at] ^= 1 << data.draw(st.integers(0, 7))
    with contextlib.suppress(Malformed):
        check_fields(bytes(block), len(value_sizes))
        check_lengths(bytes(block), len(value_sizes))


@given(sizes, st.data())
def test_the_two_full_walks_agree_on_any_flipped_bit(value_sizes: list[int], data: st.DataObject) -> None:
    block = bytearray(block_of(value_sizes))
    for _ in range(data.draw(st.integers(1, 3))):
        block[data.draw(st.integers(0, len(block) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        keyless = [at for at, record in enumerate(walk(bytes(block), len(value_sizes))) if record.key is None]
    except Malformed:
        with pytest.raises(Malformed):
            check_fields(bytes(block), len(value_sizes))
    else:
        assert check_fields(bytes(block), len(value_sizes))[2] == keyless


def test_check_fields_returns_the_extreme_deltas_and_the_records_without_a_key() -> None:
    rows = [(5, b"a"), (-3, None), (4_000, b""), (7, None)]
    block = b"".join(encode_record(Record(0, key, b"v"), at, delta) for at, (delta, key) in enumerate(rows))
    assert check_fields(block, 4) == (-3, 4_000, [1, 3], True)
