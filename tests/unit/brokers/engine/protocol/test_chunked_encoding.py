"""Encoding in pieces gives the same bytes as encoding at once, and a long message takes many pieces."""

from __future__ import annotations

import pytest

from brokers.engine.protocol.apis import APIS, ApiKey
from brokers.engine.protocol.codec import EncodedResponse, encode_response, encode_response_in_pieces
from brokers.engine.protocol.compile_encode import LONG_BYTES_PER_PIECE, WRITES_PER_PIECE
from brokers.engine.protocol.messages.offsets import (
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)

from .samples import VARIANTS, sample

# With nested arrays, and with tagged fields.
KEYS = (ApiKey.OFFSET_FETCH, ApiKey.METADATA, ApiKey.PRODUCE, ApiKey.ADD_PARTITIONS_TO_TXN)


def whole(api_key: int, version: int, message: object) -> tuple[int, bytes]:
    """Encode in pieces; return the number of stops and the body."""
    pieces = encode_response_in_pieces(api_key, version, message)
    stops = 0
    while True:
        try:
            next(pieces)
        except StopIteration as end:
            return stops, end.value
        stops += 1


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.name.lower())
def test_pieces_make_the_same_body(key: ApiKey) -> None:
    for version in range(APIS[key].version_max + 1):
        for variant in VARIANTS:
            message = sample(key, version, "response", variant)
            assert whole(key, version, message) == (0, encode_response(key, version, message))


def test_a_long_message_takes_many_pieces() -> None:
    lines = [OffsetFetchResponsePartition(partition_index=at, committed_offset=at, metadata="m") for at in range(9_000)]
    topic = OffsetFetchResponseTopic(name="t", partitions=lines)
    message = OffsetFetchResponse(topics=[topic, topic], groups=[])

    stops, body = whole(ApiKey.OFFSET_FETCH, 5, message)

    # A partition takes three writes: the fields before its metadata, the metadata, and the fields after it.
    assert abs(stops - 2 * 9_000 * 3 // (WRITES_PER_PIECE + 3)) <= 1
    assert body == encode_response(ApiKey.OFFSET_FETCH, 5, message)


def test_a_message_of_few_long_texts_takes_many_pieces_too() -> None:
    lines = [OffsetFetchResponsePartition(partition_index=at, metadata="m" * 30_000) for at in range(200)]
    message = OffsetFetchResponse(topics=[OffsetFetchResponseTopic(name="t", partitions=lines)], groups=[])

    stops, body = whole(ApiKey.OFFSET_FETCH, 5, message)

    assert stops == 200 // (LONG_BYTES_PER_PIECE // 30_000 + 1)
    assert body == encode_response(ApiKey.OFFSET_FETCH, 5, message)


def test_an_encoded_body_is_left_as_it_is() -> None:
    assert encode_response(ApiKey.OFFSET_FETCH, 5, EncodedResponse(b"body")) == b"body"
