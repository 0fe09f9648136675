"""Checksums of records (VEC-1)."""

from __future__ import annotations

import pytest

from brokers.engine.wire.checksum import crc32, crc32c


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_the_published_checksums_hold_for_any_buffer(kind: type) -> None:
    """VEC-1."""
    assert crc32c(kind(b"123456789")) == 0xE3069283
    assert crc32(kind(b"123456789")) == 0xCBF43926


def test_a_part_of_a_buffer_is_checked_in_place() -> None:
    buffer = memoryview(bytearray(b"xx123456789xx"))
    assert crc32c(buffer[2:11]) == 0xE3069283
