"""The end of a request in the received bytes, for any division into pieces, and refusals of large ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.web.framing import ChunkedBody, Refused, SizedBody, end_of_head
from config.web.limits import (
    BODY_BYTES_MAX,
    CHUNK_LINE_BYTES_MAX,
    HEAD_BYTES_MAX,
    REQUEST_LINE_BYTES_MAX,
    TRAILER_BYTES_MAX,
)

HEAD = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


def chunked(pieces: list[bytes], *, extension: bytes = b"", trailer: bytes = b"") -> bytes:
    sized = b"".join(b"%x%s\r\n%s\r\n" % (len(piece), extension, piece) for piece in pieces if piece)
    return sized + b"0\r\n" + trailer + b"\r\n"


def received(body: bytes, start: int = 0) -> int | None:
    """Returns the end that is found when `body` arrives byte by byte."""
    buffer, found = bytearray(b"x" * start), None
    reader = ChunkedBody(start)
    for byte in body:
        assert found is None, "an end before the end"
        buffer.append(byte)
        found = reader.end(buffer)
    return found


def test_the_end_of_a_header_is_found_however_it_is_cut() -> None:
    for cut in range(len(HEAD)):
        assert end_of_head(bytearray(HEAD[:cut]), 0) is None
        assert end_of_head(bytearray(HEAD + b"body"), cut) == len(HEAD)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET /" + b"x" * REQUEST_LINE_BYTES_MAX, 414),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * HEAD_BYTES_MAX, 431),
        (b"GET / HTTP/1.1\r\n" + b"X: x\r\n" * HEAD_BYTES_MAX, 431),
    ],
    ids=["line", "field", "fields"],
)
def test_a_header_without_an_end_is_refused(sent: bytes, status: int) -> None:
    with pytest.raises(Refused) as refused:
        end_of_head(bytearray(sent), 0)
    assert refused.value.status == status


def test_a_header_of_the_most_bytes_is_taken() -> None:
    sent = b"GET / HTTP/1.1\r\nX: " + b"x" * HEAD_BYTES_MAX
    assert end_of_head(bytearray(sent[: HEAD_BYTES_MAX - 4] + b"\r\n\r\n"), 0) == HEAD_BYTES_MAX


def test_a_body_is_refused_by_its_length_alone() -> None:
    assert SizedBody(10, BODY_BYTES_MAX).end(bytearray(10 + BODY_BYTES_MAX)) == 10 + BODY_BYTES_MAX
    with pytest.raises(Refused) as refused:
        SizedBody(10, BODY_BYTES_MAX + 1)
    assert refused.value.status == 413


@given(
    st.lists(st.binary(max_size=40)),
    st.sampled_from([b"", b";a=b", b' ; a="\xff"']),
    st.sampled_from([b"", b"A: b\r\n"]),
)
def test_the_end_of_a_chunked_body_is_found_byte_by_byte(pieces: list[bytes], extension: bytes, trailer: bytes) -> None:
    body = chunked(pieces, extension=extension, trailer=trailer)
    assert received(body) == len(body)
    assert ChunkedBody(7).end(bytearray(b"x" * 7 + body + HEAD)) == 7 + len(body)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"%x\r\n" % BODY_BYTES_MAX, 413),
        (b"ffffffff\r\n", 413),
        (b"fffffffff\r\n", 400),
        (b"1\r\na\r\n" * (BODY_BYTES_MAX // 6 + 1), 413),
        (b"-1\r\n", 400),
        (b"\r\n", 400),
        (b"1\r\nabc", 400),
        (b"1;" + b"x" * CHUNK_LINE_BYTES_MAX, 400),
        (b"0\r\n" + b"X: x\r\n" * TRAILER_BYTES_MAX, 431),
    ],
    ids=["chunk", "huge", "too many digits", "tiny ones", "sign", "nothing", "no end", "extension", "trailer"],
)
def test_a_chunked_body_is_cut_at_its_limits(sent: bytes, status: int) -> None:
    with pytest.raises(Refused) as refused:
        ChunkedBody(0).end(bytearray(sent))
    assert refused.value.status == status
