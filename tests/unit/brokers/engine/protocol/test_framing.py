"""Limits on the length of a frame (WIRE-1)."""

from __future__ import annotations

import pytest

from brokers.engine.protocol.errors import FrameTooLarge, MalformedRequest
from brokers.engine.protocol.framing import (
    FRAME_BYTES_MAX,
    FRAME_BYTES_MIN,
    UNAUTHENTICATED_FRAME_BYTES_MAX,
    check_frame_size,
)


@pytest.mark.parametrize("size_bytes", [-1, -(1 << 31), 0, FRAME_BYTES_MIN - 1])
def test_a_size_that_cannot_hold_a_header_is_refused(size_bytes: int) -> None:
    with pytest.raises(MalformedRequest):
        check_frame_size(size_bytes, FRAME_BYTES_MAX)


@pytest.mark.parametrize("bytes_max", [100, UNAUTHENTICATED_FRAME_BYTES_MAX, FRAME_BYTES_MAX])
def test_a_size_over_the_limit_is_refused(bytes_max: int) -> None:
    check_frame_size(bytes_max, bytes_max)
    with pytest.raises(FrameTooLarge):
        check_frame_size(bytes_max + 1, bytes_max)


@pytest.mark.parametrize("greeting", [b"GET / HTTP/1.1\r\n", b"POST", b"\x16\x03\x01\x02\x00\x01", b"SSH-2.0-x"])
def test_greetings_of_other_protocols_are_refused(greeting: bytes) -> None:
    with pytest.raises(FrameTooLarge):
        check_frame_size(int.from_bytes(greeting[:4], "big", signed=True), FRAME_BYTES_MAX)
