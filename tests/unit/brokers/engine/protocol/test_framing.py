"""Cutting a byte stream into frames (WIRE-1)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.engine.protocol.errors import FrameTooLarge, MalformedRequest
from brokers.engine.protocol.framing import (
    FRAME_BYTES_MAX,
    UNAUTHENTICATED_FRAME_BYTES_MAX,
    FrameSplitter,
    check_frame_size,
)


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big", signed=True) + body


FRAMES = st.lists(st.binary(min_size=8, max_size=40), max_size=6)


@given(FRAMES)
def test_frames_that_arrive_one_byte_at_a_time_come_out_whole(bodies: list[bytes]) -> None:
    splitter = FrameSplitter()
    found = []
    for byte in b"".join(map(framed, bodies)):
        splitter.receive(bytes((byte,)))
        while (frame := splitter.next_frame()) is not None:
            found.append(frame)
    assert found == bodies
    assert splitter.buffered_bytes == 0


@given(FRAMES, st.data())
def test_frames_come_out_whole_however_the_stream_is_cut(bodies: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(map(framed, bodies))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    splitter = FrameSplitter()
    found = []
    for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        splitter.receive(memoryview(stream)[start:stop])
        while (frame := splitter.next_frame()) is not None:
            found.append(frame)
    assert found == bodies


@pytest.mark.parametrize("size_bytes", [-1, -(1 << 31), 0, 7])
def test_a_size_that_cannot_hold_a_header_is_refused(size_bytes: int) -> None:
    splitter = FrameSplitter()
    splitter.receive(size_bytes.to_bytes(4, "big", signed=True))
    with pytest.raises(MalformedRequest):
        splitter.next_frame()


def test_a_size_over_the_limit_is_refused_before_its_bytes_arrive() -> None:
    splitter = FrameSplitter(bytes_max=100)
    splitter.receive((100).to_bytes(4, "big"))
    assert splitter.next_frame() is None
    splitter = FrameSplitter(bytes_max=100)
    splitter.receive((101).to_bytes(4, "big"))
    with pytest.raises(FrameTooLarge):
        splitter.next_frame()


def test_a_peer_that_has_not_proved_who_it_is_may_send_little() -> None:
    splitter = FrameSplitter(UNAUTHENTICATED_FRAME_BYTES_MAX)
    splitter.receive((UNAUTHENTICATED_FRAME_BYTES_MAX + 1).to_bytes(4, "big"))
    with pytest.raises(FrameTooLarge):
        splitter.next_frame()
    splitter.bytes_max = FRAME_BYTES_MAX
    assert splitter.next_frame() is None


@pytest.mark.parametrize("greeting", [b"GET / HTTP/1.1\r\n", b"POST", b"\x16\x03\x01\x02\x00\x01", b"SSH-2.0-x"])
def test_greetings_of_other_protocols_are_refused(greeting: bytes) -> None:
    with pytest.raises(FrameTooLarge):
        check_frame_size(int.from_bytes(greeting[:4], "big", signed=True), FRAME_BYTES_MAX)
