"""The hand-written codec of a follower's Fetch against the compiled codec: the same bytes and the same values."""

from __future__ import annotations

import contextlib
from itertools import groupby
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brokers.engine.protocol import codec
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import MalformedRequest
from brokers.engine.protocol.fast_codec_replica_fetch import (
    VERSION,
    FetchedFrame,
    ReplicaFetchEncoder,
    decode_replica_fetch,
)
from brokers.engine.protocol.headers import encode_request_frame, encode_response_frame
from brokers.engine.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from tests.testkit import depth

from .strategies import messages

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
TOPIC_IDS = st.one_of(st.sampled_from([b"a" * 16, b"b" * 16]), st.binary(min_size=16, max_size=16))
WANTED = st.lists(st.tuples(TOPIC_IDS, INT32, INT32, INT64, INT32, INT64, INT32), max_size=6)
FORGOTTEN = st.dictionaries(TOPIC_IDS, st.lists(INT32, min_size=1, max_size=3), max_size=3)


@settings(max_examples=depth.examples(120))
@given(INT32, INT32, INT32, WANTED, FORGOTTEN, st.text(max_size=20), INT32, INT64)
def test_a_request_is_written_in_the_bytes_of_the_compiled_codec(
    correlation_id: int,
    session_id: int,
    session_epoch: int,
    lines: Any,
    forgotten: Any,
    client_id: str,
    replica_id: int,
    replica_epoch: int,
) -> None:
    request = FetchRequest(
        replica_state=ReplicaState(replica_id=replica_id, replica_epoch=replica_epoch),
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=10_485_760,
        isolation_level=0,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=[
            FetchTopic(
                topic_id=topic_id,
                partitions=[
                    FetchPartition(
                        partition=index,
                        current_leader_epoch=epoch,
                        fetch_offset=offset,
                        last_fetched_epoch=last_epoch,
                        log_start_offset=start_offset,
                        partition_max_bytes=bytes_max,
                    )
                    for _, index, epoch, offset, last_epoch, start_offset, bytes_max in of_topic
                ],
            )
            for topic_id, of_topic in groupby(lines, key=lambda line: line[0])
        ],
        forgotten_topics_data=[
            ForgottenTopic(topic_id=topic_id, partitions=indexes) for topic_id, indexes in forgotten.items()
        ],
        rack_id="",
    )
    if (replica_id, replica_epoch) == (-1, -1):
        return  # the compiled codec omits a tagged field with its default value
    body = codec.encode_request(ApiKey.FETCH, VERSION, request)
    expected = encode_request_frame(ApiKey.FETCH, VERSION, correlation_id, client_id, body)
    encoder = ReplicaFetchEncoder(
        client_id=client_id,
        replica_id=replica_id,
        replica_epoch=replica_epoch,
        min_bytes=1,
        response_bytes_max=10_485_760,
    )
    flat = [(topic_id, index) for topic_id, indexes in forgotten.items() for index in indexes]
    assert encoder.encode(correlation_id, 500, session_id, session_epoch, lines, flat) == expected


@settings(max_examples=depth.examples(120))
@given(messages(FetchResponse, VERSION), INT32)
def test_an_answer_is_read_as_the_compiled_codec_reads_it(response: Any, correlation_id: int) -> None:
    body = codec.encode_response(ApiKey.FETCH, VERSION, response)
    frame = encode_response_frame(ApiKey.FETCH, VERSION, correlation_id, body)[4:]
    buffer = memoryview(b"before" + frame + b"behind")
    read = decode_replica_fetch(buffer, 6, 6 + len(frame))
    assert read[:4] == (correlation_id, response.throttle_time_ms, response.error_code, response.session_id)
    expected = [
        (
            topic.topic_id,
            partition.partition_index,
            partition.error_code,
            partition.high_watermark,
            partition.log_start_offset,
            partition.diverging_epoch.epoch,
            partition.diverging_epoch.end_offset,
            partition.records or b"",
        )
        for topic in response.responses
        for partition in topic.partitions
    ]
    assert [(*line[:7], bytes(buffer[line[7] : line[8]])) for line in read.partitions] == expected


def test_tagged_fields_in_the_header_are_passed_over() -> None:
    body = codec.encode_response(ApiKey.FETCH, VERSION, FetchResponse(throttle_time_ms=7, error_code=70, session_id=9))
    tagged = b"\x00\x00\x00\x05" + b"\x02\x00\x01x\x01\x02yz"
    frame = tagged + body
    assert decode_replica_fetch(frame, 0, len(frame)) == FetchedFrame(5, 7, 70, 9, [])


@settings(max_examples=depth.examples(80))
@given(messages(FetchResponse, VERSION), st.data())
def test_a_cut_answer_is_malformed_and_nothing_worse(response: Any, data: st.DataObject) -> None:
    frame = encode_response_frame(ApiKey.FETCH, VERSION, 1, codec.encode_response(ApiKey.FETCH, VERSION, response))[4:]
    cut = data.draw(st.integers(0, len(frame) - 1))
    with pytest.raises(MalformedRequest):
        decode_replica_fetch(frame[:cut], 0, cut)


@settings(max_examples=depth.examples(120))
@given(messages(FetchResponse, VERSION), st.data())
def test_a_changed_byte_is_read_or_malformed_and_points_into_the_frame(response: Any, data: st.DataObject) -> None:
    frame = bytearray(
        encode_response_frame(ApiKey.FETCH, VERSION, 1, codec.encode_response(ApiKey.FETCH, VERSION, response))[4:]
    )
    at = data.draw(st.integers(0, len(frame) - 1))
    frame[at] = data.draw(st.integers(0, 255))
    with contextlib.suppress(MalformedRequest):
        for line in decode_replica_fetch(frame, 0, len(frame)).partitions:
            assert 0 <= line[7] <= line[8] <= len(frame)


def test_a_count_that_the_frame_cannot_hold_is_refused_before_it_is_believed() -> None:
    frame = bytes(4) + b"\x00" + bytes(10) + b"\xff\xff\xff\xff\x0f"
    with pytest.raises(MalformedRequest, match="too many"):
        decode_replica_fetch(frame, 0, len(frame))
