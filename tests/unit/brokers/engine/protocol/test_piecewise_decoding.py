"""Decoding in pieces gives the same result as decoding at once, for any input, and a long message takes many pieces."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.engine.protocol.apis import APIS, ApiKey
from brokers.engine.protocol.codec import (
    DECODED_AT_ONCE_BYTES_MAX,
    DECODED_AT_ONCE_ITEMS_MAX,
    decode_request,
    decode_request_in_pieces,
    decoded_at_once_bytes_max,
    encode_request,
)
from brokers.engine.protocol.compile_decode import ITEMS_PER_PIECE, TEXT_BYTES_PER_ITEM
from brokers.engine.protocol.errors import MalformedRequest
from brokers.engine.protocol.fields import message_class
from brokers.engine.protocol.layout import item_bytes_min
from brokers.engine.protocol.lengths import TEXT_BYTES_MAX
from brokers.engine.protocol.messages.topics import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)

from .samples import every_message, name_of, sample

REQUESTS = [message for message in every_message() if message[2] == "request"]


def whole(api_key: int, version: int, body: bytes, items_max: int = 500_000) -> tuple[int, Any]:
    """Decode in pieces; return the number of stops and the request."""
    pieces = decode_request_in_pieces(api_key, version, body, 0, len(body), items_max)
    stops = 0
    while True:
        try:
            next(pieces)
        except StopIteration as end:
            return stops, end.value
        stops += 1


@pytest.mark.parametrize("message", REQUESTS, ids=name_of)
def test_pieces_make_the_same_request(message: tuple[int, int, Any]) -> None:
    api_key, version, _ = message
    body = encode_request(api_key, version, sample(*message, "full"))
    assert whole(api_key, version, body) == (0, decode_request(api_key, version, body, 0, len(body)))


@pytest.mark.parametrize("message", REQUESTS[::7], ids=name_of)
@given(data=st.data())
def test_a_malformed_request_is_refused_in_pieces_as_at_once(
    message: tuple[int, int, Any], data: st.DataObject
) -> None:
    api_key, version, _ = message
    body = bytearray(encode_request(api_key, version, sample(*message, "full")))
    for _ in range(data.draw(st.integers(0, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(body[: data.draw(st.integers(0, len(body)))])
    try:
        expected = decode_request(api_key, version, cut, 0, len(cut))
    except MalformedRequest as error:
        with pytest.raises(type(error)):
            whole(api_key, version, cut)
    else:
        assert whole(api_key, version, cut)[1] == expected


def long_request(lines: int) -> bytes:
    partitions = [DeleteRecordsPartition(partition_index=at, offset=at) for at in range(lines)]
    topics = [DeleteRecordsTopic(name=name, partitions=partitions) for name in ("a", "b")]
    return encode_request(21, 2, DeleteRecordsRequest(topics=topics, timeout_ms=1))


def test_a_long_request_takes_many_pieces() -> None:
    body = long_request(5_000)
    stops, request = whole(21, 2, body)
    assert stops == (2 * 5_000 + 2) // ITEMS_PER_PIECE
    assert request == decode_request(21, 2, body, 0, len(body))


def test_long_text_takes_many_pieces_too() -> None:
    topics = [DeleteRecordsTopic(name="x" * TEXT_BYTES_MAX, partitions=[]) for _ in range(100)]
    body = encode_request(21, 2, DeleteRecordsRequest(topics=topics, timeout_ms=1))
    stops, request = whole(21, 2, body)
    assert stops == 100 // (-(-ITEMS_PER_PIECE // (1 + TEXT_BYTES_MAX // TEXT_BYTES_PER_ITEM)))
    assert request.topics == topics


def test_more_items_than_there_may_be_are_refused_before_they_are_made() -> None:
    with pytest.raises(MalformedRequest, match="too many items"):
        whole(21, 2, long_request(5_000), items_max=9_000)


@pytest.mark.parametrize("message", REQUESTS, ids=name_of)
def test_requests_decoded_at_once_hold_few_items_of_any_kind(message: tuple[int, int, Any]) -> None:
    api_key, version, _ = message
    bytes_max = decoded_at_once_bytes_max(api_key, version)
    assert 0 < bytes_max <= DECODED_AT_ONCE_BYTES_MAX
    width_bytes = item_bytes_min(message_class(api_key, "request"), version, version >= APIS[api_key].flexible_from)
    assert width_bytes is None or bytes_max // width_bytes <= DECODED_AT_ONCE_ITEMS_MAX


def test_an_assignment_without_brokers_takes_two_bytes() -> None:
    assert decoded_at_once_bytes_max(ApiKey.CREATE_PARTITIONS, 3) == 2 * DECODED_AT_ONCE_ITEMS_MAX
    assert decoded_at_once_bytes_max(ApiKey.HEARTBEAT, 4) == DECODED_AT_ONCE_BYTES_MAX
