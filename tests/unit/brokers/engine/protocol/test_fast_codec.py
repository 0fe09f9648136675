"""The hand-written Produce and Fetch against the compiled codec: the same values read, the same bytes written."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brokers.engine.protocol import codec
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.fast_codec_fetch import FetchDecoder, FetchFrame, decode_fetch
from brokers.engine.protocol.fast_codec_fetch_response import (
    FetchExtras,
    encode_fetch_response,
    encode_full_fetch_response,
)
from brokers.engine.protocol.fast_codec_produce import ProduceDecoder, decode_produce, encode_produce_response
from brokers.engine.protocol.headers import decode_response_header, encode_response_frame
from brokers.engine.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchLeader,
    FetchNodeEndpoint,
    FetchPartitionData,
    FetchRequest,
    FetchResponse,
    ForgottenTopic,
)
from brokers.engine.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tests.testkit import depth

from .samples import sample
from .strategies import messages

PRODUCE_VERSIONS = range(3, 12)
FETCH_VERSIONS = range(4, 18)
ITEMS_MAX = 100_000
Frame = TypeVar("Frame")
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
ERRORS = st.integers(-1, 120)
NAMES = st.one_of(st.text(max_size=10), st.text(alphabet="abc", min_size=120, max_size=140))


def _produce_values(request: Any) -> Any:
    return [
        (topic.name.encode(), [(partition.index, partition.records) for partition in topic.partition_data])
        for topic in request.topic_data
    ]


@settings(max_examples=depth.examples(300))
@given(st.sampled_from(PRODUCE_VERSIONS), st.data())
def test_a_produce_is_read_as_the_compiled_codec_reads_it(version: int, data: st.DataObject) -> None:
    request = data.draw(messages(ProduceRequest, version))
    body = codec.encode_request(ApiKey.PRODUCE, version, request)
    buffer = memoryview(b"before" + body + b"behind")
    frame = decode_produce(buffer, 6, 6 + len(body), version)
    assert (frame.transactional_id, frame.acks, frame.timeout_ms) == (
        request.transactional_id,
        request.acks,
        request.timeout_ms,
    )
    read = [
        (name, [(index, None if start < 0 else bytes(buffer[start:end])) for index, start, end in partitions])
        for name, partitions in frame.topics
    ]
    assert read == _produce_values(request)


@settings(max_examples=depth.examples(200))
@given(st.sampled_from(PRODUCE_VERSIONS), st.integers(1, 5), st.data())
def test_a_produce_read_in_pieces_is_the_one_read_at_once(version: int, lines: int, data: st.DataObject) -> None:
    body = codec.encode_request(ApiKey.PRODUCE, version, data.draw(messages(ProduceRequest, version)))
    decoder = ProduceDecoder(body, 0, len(body), version, ITEMS_MAX)
    assert _pieces(decoder, lines, decoder.frame) == decode_produce(body, 0, len(body), version)


@settings(max_examples=depth.examples(200))
@given(st.sampled_from(FETCH_VERSIONS), st.integers(1, 5), st.data())
def test_a_fetch_read_in_pieces_is_the_one_read_at_once(version: int, lines: int, data: st.DataObject) -> None:
    body = codec.encode_request(ApiKey.FETCH, version, data.draw(messages(FetchRequest, version)))
    decoder = FetchDecoder(body, 0, len(body), version, ITEMS_MAX)
    assert _pieces(decoder, lines, decoder.frame) == decode_fetch(body, 0, len(body), version)


def test_topics_that_a_fetch_forgets_count_as_lines_of_a_piece() -> None:
    forgotten = [ForgottenTopic(topic=f"t-{number}", partitions=[0, 1]) for number in range(30)]
    for version in (7, 12):
        body = codec.encode_request(ApiKey.FETCH, version, FetchRequest(forgotten_topics_data=forgotten))
        decoder = FetchDecoder(body, 0, len(body), version, ITEMS_MAX)
        pieces = [decoder.advance(4) for _ in range(23)]
        assert pieces == [False] * 22 + [True]
        assert decoder.advance(4)
        assert decoder.frame().forgotten == [(each.topic.encode(), each.partitions) for each in forgotten]


def _pieces(decoder: Any, lines: int, frame: Callable[[], Frame]) -> Frame:
    """Decode in pieces and return the frame; check each piece's size, and that only the last one reports the end."""
    before = 0
    while True:
        is_over = decoder.advance(lines)
        read = sum(1 + len(partitions) for _, partitions in [*decoder._topics, *_forgotten(decoder)])
        assert read - before <= lines and (is_over or read > before)
        if is_over:
            return frame()
        before = read


def _forgotten(decoder: Any) -> list[Any]:
    forgotten = getattr(decoder, "_forgotten", None)
    return [] if forgotten is None else forgotten.topics


PRODUCED = st.lists(
    st.tuples(
        NAMES,
        st.lists(st.tuples(INT32, ERRORS, INT64, INT64, INT64, st.one_of(st.none(), NAMES)), min_size=0, max_size=3),
    ),
    max_size=3,
)


@settings(max_examples=depth.examples(400))
@given(st.sampled_from(PRODUCE_VERSIONS), INT32, PRODUCED, INT32)
def test_a_produce_is_answered_in_the_bytes_of_the_compiled_codec(
    version: int, correlation_id: int, topics: Any, throttle_time_ms: int
) -> None:
    response = ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=name,
                partition_responses=[
                    PartitionProduceResponse(
                        index=index,
                        error_code=error,
                        base_offset=base_offset,
                        log_append_time_ms=append_time_ms,
                        log_start_offset=start_offset,
                        error_message=message,
                    )
                    for index, error, base_offset, append_time_ms, start_offset, message in partitions
                ],
            )
            for name, partitions in topics
        ],
        throttle_time_ms=throttle_time_ms,
    )
    expected = encode_response_frame(
        ApiKey.PRODUCE, version, correlation_id, codec.encode_response(ApiKey.PRODUCE, version, response)
    )
    written = encode_produce_response(
        version, correlation_id, [(name.encode(), partitions) for name, partitions in topics], throttle_time_ms
    )
    assert written == expected


@settings(max_examples=depth.examples(400))
@given(st.sampled_from(FETCH_VERSIONS), st.data())
def test_a_fetch_is_read_as_the_compiled_codec_reads_it(version: int, data: st.DataObject) -> None:
    request = data.draw(messages(FetchRequest, version))
    body = codec.encode_request(ApiKey.FETCH, version, request)
    buffer = b"before" + body + b"behind"
    frame = decode_fetch(buffer, 6, 6 + len(body), version)

    def key(topic: Any) -> bytes:
        return topic.topic_id if version >= 13 else topic.topic.encode()

    assert frame == FetchFrame(
        replica_id=request.replica_state.replica_id if version >= 15 else request.replica_id,
        max_wait_ms=request.max_wait_ms,
        min_bytes=request.min_bytes,
        max_bytes=request.max_bytes,
        isolation=request.isolation_level,
        session_id=request.session_id,
        session_epoch=request.session_epoch,
        topics=[
            (
                key(topic),
                [
                    (
                        partition.partition,
                        partition.current_leader_epoch,
                        partition.fetch_offset,
                        partition.last_fetched_epoch,
                        partition.log_start_offset,
                        partition.partition_max_bytes,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
        forgotten=[(key(topic), topic.partitions) for topic in request.forgotten_topics_data],
        rack_id=request.rack_id,
        replica_epoch=request.replica_state.replica_epoch if version >= 15 else -1,
    )


RECORDS = st.one_of(st.none(), st.binary(max_size=20), st.integers(100, 40_000).map(bytes))
FETCHED = st.lists(
    st.tuples(
        st.one_of(st.text(max_size=10), st.text(alphabet="abc", min_size=120, max_size=140)),
        st.lists(st.tuples(INT32, ERRORS, INT64, INT64, INT64, RECORDS), max_size=3),
    ),
    max_size=3,
)


def _partition_data(partition: Any, aborted: list[tuple[int, int]], read_committed: bool) -> FetchPartitionData:
    """Return the compiled codec's partition. Aborted transactions are empty for partitions that were not read, and null
    for others unless `read_committed`.
    """
    index, code, high_watermark, stable_offset, start_offset, records = partition
    listed = [AbortedTransaction(producer_id=producer, first_offset=offset) for producer, offset in aborted]
    if code in (3, 29, 100):
        listed = []
    return FetchPartitionData(
        partition_index=index,
        error_code=code,
        high_watermark=high_watermark,
        last_stable_offset=stable_offset,
        log_start_offset=start_offset,
        aborted_transactions=listed if code in (3, 29, 100) or (read_committed and code != 1) else None,
        records=records or b"",
    )


@settings(max_examples=depth.examples(600))
@given(st.sampled_from(FETCH_VERSIONS), INT32, FETCHED, ERRORS, INT32, st.booleans(), st.data())
def test_a_fetch_is_answered_in_the_bytes_of_the_compiled_codec(
    version: int,
    correlation_id: int,
    topics: Any,
    error: int,
    session_id: int,
    read_committed: bool,
    data: st.DataObject,
) -> None:
    topics = [
        (name.encode().ljust(16, b".")[:16] if version >= 13 else name.encode(), partitions)
        for name, partitions in topics
    ]
    aborted = {
        (name, partition[0]): data.draw(st.lists(st.tuples(INT64, INT64), max_size=2))
        for name, partitions in topics
        for partition in partitions
        if read_committed
    }
    response = FetchResponse(
        throttle_time_ms=77,
        error_code=error,
        session_id=session_id,
        responses=[
            FetchableTopicResponse(
                topic="" if version >= 13 else name.decode(),
                topic_id=name if version >= 13 else bytes(16),
                partitions=[
                    _partition_data(partition, aborted.get((name, partition[0]), []), read_committed)
                    for partition in partitions
                ],
            )
            for name, partitions in topics
        ],
    )
    expected = encode_response_frame(
        ApiKey.FETCH, version, correlation_id, codec.encode_response(ApiKey.FETCH, version, response)
    )
    extras = FetchExtras(read_committed, aborted)
    encode = partial(encode_full_fetch_response, extras=extras)
    pieces = (encode if aborted else partial(encode_fetch_response, read_committed=read_committed))(
        version,
        correlation_id,
        77,
        error,
        session_id,
        [
            (
                name,
                [
                    (index, code, high, stable, start, len(records or b""), None if records is None else [records])
                    for index, code, high, stable, start, records in partitions
                ],
            )
            for name, partitions in topics
        ],
    )
    assert b"".join(piece[0] if isinstance(piece, list) else piece for piece in pieces) == expected


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_the_records_of_a_fetch_go_out_as_the_callers_own_object(version: int) -> None:
    slice_object = object()
    name = bytes(16) if version >= 13 else b"orders"
    pieces = encode_fetch_response(version, 1, 0, 0, 0, [(name, [(0, 0, 9, 9, 0, 70_000, slice_object)])])
    assert pieces.count(slice_object) == 1
    around = [piece for piece in pieces if isinstance(piece, bytes)]
    frame_bytes = int.from_bytes(around[0][:4], "big")
    assert frame_bytes == sum(map(len, around)) - 4 + 70_000


@pytest.mark.parametrize("version", [16, 17])
def test_a_current_leader_elsewhere_is_encoded_beside_the_records(version: int) -> None:
    here, elsewhere = bytes(16), bytes(range(16))
    endpoints = [FetchNodeEndpoint(node_id=7, host="h", port=9092, rack=None)]
    tagged = codec.encode_response(ApiKey.FETCH, version, FetchResponse(node_endpoints=endpoints))[11:]
    topics = [(here, [(0, 0, 9, 9, 0, 4, [b"data"])]), (elsewhere, [(2, 6, -1, -1, -1, 0, None)])]
    extras = FetchExtras(leaders={(elsewhere, 2): (7, 3)}, tagged=tagged)
    pieces = encode_full_fetch_response(version, 1, 0, 0, 0, topics, extras)
    frame = b"".join(piece[0] if isinstance(piece, list) else piece for piece in pieces)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    _, position = decode_response_header(ApiKey.FETCH, version, frame, 4, len(frame))
    answer = codec.decode_response(ApiKey.FETCH, version, frame, position, len(frame))
    read, misled = (topic.partitions[0] for topic in answer.responses)
    assert (read.records, read.current_leader.leader_id) == (b"data", -1)
    assert (misled.error_code, misled.current_leader) == (6, FetchLeader(leader_id=7, leader_epoch=3))
    assert answer.node_endpoints == endpoints


@pytest.mark.parametrize("read_committed", [False, True])
@pytest.mark.parametrize("version", [11, 12, 13, 17])
def test_the_replica_to_read_from_stands_beside_its_partition(version: int, read_committed: bool) -> None:
    """A partition with an error names none. In the others' lists of aborted transactions nothing changes."""
    key = bytes(range(16)) if version >= 13 else b"orders"
    topics = [(key, [(0, 0, 9, 9, 0, 4, [b"data"]), (1, 0, 9, 9, 0, 0, None), (2, 6, -1, -1, -1, 0, None)])]
    extras = FetchExtras(read_committed, preferred={(key, 1): 7, (key, 2): 7})
    pieces = encode_full_fetch_response(version, 1, 0, 0, 0, topics, extras)
    frame = b"".join(piece[0] if isinstance(piece, list) else piece for piece in pieces)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    _, position = decode_response_header(ApiKey.FETCH, version, frame, 4, len(frame))
    (topic,) = codec.decode_response(ApiKey.FETCH, version, frame, position, len(frame)).responses
    assert [line.preferred_read_replica for line in topic.partitions] == [-1, 7, -1]
    assert [line.records for line in topic.partitions] == [b"data", b"", b""]
    listed = [] if read_committed else None
    assert [line.aborted_transactions for line in topic.partitions] == [listed, None, listed]


@pytest.mark.parametrize("version", [12, 13, 17])
def test_where_logs_part_stands_beside_the_partition_and_no_records_go_out(version: int) -> None:
    key = bytes(range(16)) if version >= 13 else b"orders"
    topics = [(key, [(0, 0, 9, 9, 0, 4, [b"data"]), (1, 0, 9, 9, 0, 0, None)]), (key, [(5, 3, -1, -1, -1, 0, None)])]
    extras = FetchExtras(diverging={(key, 1): (3, 2**40)})
    pieces = encode_full_fetch_response(version, 1, 0, 0, 7, topics, extras)
    frame = b"".join(cast("list[bytes]", pieces))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    _, position = decode_response_header(ApiKey.FETCH, version, frame, 4, len(frame))
    answer = codec.decode_response(ApiKey.FETCH, version, frame, position, len(frame))
    lines = [line for topic in answer.responses for line in topic.partitions]
    assert [line.records for line in lines] == [b"", b"", b""]
    nowhere = EpochEndOffset(epoch=-1, end_offset=-1)
    assert [line.diverging_epoch for line in lines] == [nowhere, EpochEndOffset(epoch=3, end_offset=2**40), nowhere]
    assert answer.session_id == 7


@pytest.mark.parametrize("version", range(9, 12))
def test_tagged_fields_in_a_produce_are_skipped(version: int) -> None:
    value = sample(ApiKey.PRODUCE, version, "request", "full")
    body = codec.encode_request(ApiKey.PRODUCE, version, value)
    tagged = body[:-1] + b"\x01\x07\x03abc"
    assert decode_produce(tagged, 0, len(tagged), version) == decode_produce(body, 0, len(body), version)


@pytest.mark.parametrize("version", [9, 11])
def test_a_produce_answer_is_read_back_by_the_codec(version: int) -> None:
    frame = encode_produce_response(version, 5, [(b"t", [(0, 0, 10, -1, 0, None)])], 3)
    correlation_id, position = decode_response_header(ApiKey.PRODUCE, version, frame, 4, len(frame))
    answer = codec.decode_response(ApiKey.PRODUCE, version, frame, position, len(frame))
    assert correlation_id == 5
    assert answer.throttle_time_ms == 3
    assert answer.responses[0].partition_responses[0].base_offset == 10
