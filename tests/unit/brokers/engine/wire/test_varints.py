"""Variable-length integers (WIRE-4, WIRE-6)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.engine.wire.varints import (
    MalformedVarint,
    encode_signed,
    encode_unsigned,
    read_signed_int,
    read_signed_long,
    read_unsigned,
    signed_size,
    unsigned_size,
)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (-64, "7f"), (64, "8001"), (300, "d804")],
)
def test_the_published_zig_zag_vectors_hold(value: int, encoded: str) -> None:
    """WIRE-6."""
    data = bytes.fromhex(encoded)
    assert encode_signed(value) == data
    assert read_signed_int(data, 0, len(data)) == (value, len(data))
    assert read_signed_long(data, 0, len(data)) == (value, len(data))


@given(st.integers(0, (1 << 32) - 1), st.binary(max_size=3))
def test_unsigned_integers_survive(value: int, behind: bytes) -> None:
    data = encode_unsigned(value)
    assert len(data) == unsigned_size(value)
    assert read_unsigned(data + behind, 0, len(data)) == (value, len(data))


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_signed_integers_survive(value: int) -> None:
    data = encode_signed(value)
    assert len(data) == signed_size(value)
    assert read_signed_long(memoryview(data), 0, len(data)) == (value, len(data))
    if -(1 << 31) <= value < 1 << 31:
        assert read_signed_int(data, 0, len(data)) == (value, len(data))


@pytest.mark.parametrize("read", [read_unsigned, read_signed_int, read_signed_long])
def test_an_integer_that_the_end_cuts_is_refused(read: object) -> None:
    with pytest.raises(MalformedVarint):
        read(b"\x80\x80\x01", 0, 2)  # type: ignore[operator]


@pytest.mark.parametrize(("read", "bytes_max"), [(read_unsigned, 5), (read_signed_int, 5), (read_signed_long, 10)])
def test_an_integer_with_too_many_bytes_is_refused(read: object, bytes_max: int) -> None:
    data = b"\x80" * bytes_max + b"\x00"
    with pytest.raises(MalformedVarint):
        read(data, 0, len(data))  # type: ignore[operator]
