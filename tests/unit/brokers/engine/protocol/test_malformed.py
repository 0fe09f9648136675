"""Bad bytes: whatever arrives, decoding ends soon, takes little memory, and raises MalformedRequest or nothing."""

from __future__ import annotations

import contextlib
import time
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brokers.engine.protocol import codec, fast_codec
from brokers.engine.protocol.apis import APIS, ApiKey
from brokers.engine.protocol.errors import MalformedRequest, UnsupportedApi
from brokers.engine.protocol.fast_codec_produce import PARTITIONS_MAX
from brokers.engine.protocol.headers import decode_request_header
from brokers.engine.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from brokers.engine.wire.varints import encode_unsigned
from tests.testkit import depth

from .samples import Direction, every_message, name_of, sample

Message = tuple[int, int, Direction]
MESSAGES = list(every_message())
SECONDS_MAX = 1.0


def encode(message: Message, value: Any) -> bytes:
    api_key, version, direction = message
    write = codec.encode_request if direction == "request" else codec.encode_response
    return write(api_key, version, value)


def decode(message: Message, body: bytes | bytearray | memoryview, end: int | None = None) -> Any:
    api_key, version, direction = message
    end = len(body) if end is None else end
    if direction == "request":
        return codec.decode_request(api_key, version, body, 0, end)
    return codec.decode_response(api_key, version, body, 0, end)


@pytest.mark.parametrize("message", MESSAGES, ids=name_of)
def test_every_prefix_of_a_message_is_refused(message: Message) -> None:
    body = encode(message, sample(*message, "full"))
    for length in range(len(body)):
        with pytest.raises(MalformedRequest):
            decode(message, body[:length])


@pytest.mark.parametrize("message", MESSAGES, ids=name_of)
def test_a_message_cut_by_the_frame_is_refused_although_the_buffer_goes_on(message: Message) -> None:
    body = encode(message, sample(*message, "full"))
    for length in range(len(body)):
        with pytest.raises(MalformedRequest):
            decode(message, body + body, length)


@pytest.mark.parametrize("message", MESSAGES[::7], ids=name_of)
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_kind_of_buffer_is_read_at_any_offset(message: Message, kind: Any) -> None:
    api_key, version, direction = message
    value = sample(*message, "full")
    body = encode(message, value)
    buffer = kind(b"\xfe" * 5 + body + b"\xff" * 9)
    read = codec.decode_request if direction == "request" else codec.decode_response
    assert read(api_key, version, buffer, 5, 5 + len(body)) == value


def test_bytes_left_over_after_a_body_are_ignored() -> None:
    """Observed of 3.9.1 (WIRE-10)."""
    body = codec.encode_request(ApiKey.METADATA, 9, sample(ApiKey.METADATA, 9, "request", "full"))
    whole = body + b"left over"
    assert codec.decode_request(ApiKey.METADATA, 9, whole, 0, len(whole)) == codec.decode_request(
        ApiKey.METADATA, 9, body, 0, len(body)
    )


def test_an_array_of_length_minus_two_reads_as_null() -> None:
    """Observed of 3.9.1 (WIRE-10)."""
    assert codec.decode_request(ApiKey.METADATA, 1, b"\xff\xff\xff\xfe", 0, 4).topics is None


def test_an_array_that_may_not_be_null_is_refused() -> None:
    with pytest.raises(MalformedRequest, match="topics is null"):
        codec.decode_request(ApiKey.METADATA, 0, b"\xff\xff\xff\xff", 0, 4)


def test_text_that_is_not_utf_8_becomes_replacement_characters() -> None:
    body = b"\x00\x00\x00\x01\x00\x02\xff\xfe"
    (topic,) = codec.decode_request(ApiKey.METADATA, 1, body, 0, len(body)).topics
    assert topic.name == "��"


@pytest.mark.parametrize(
    "tags",
    ["01 05 00", "02 05 00 05 00", "02 09 01 61 03 00", "01 ff ff ff ff 0f 02 61 61"],
    ids=["unknown", "repeated", "descending", "largest"],
)
def test_unknown_tagged_fields_are_skipped(tags: str) -> None:
    """WIRE-5, with what 3.9.1 was seen to accept."""
    body = bytes.fromhex("01 01 00" + tags)  # no topics, create: yes, operations: no
    message = codec.decode_request(ApiKey.METADATA, 11, body, 0, len(body))
    assert message.topics == []
    assert message.allow_auto_topic_creation is True


def test_a_known_tagged_field_must_fill_its_size() -> None:
    value = sample(ApiKey.API_VERSIONS, 3, "response", "full")
    body = bytearray(codec.encode_response(ApiKey.API_VERSIONS, 3, value))
    position = body.rindex(b"\x03\x01")  # the last tag: zk_migration_ready, one byte
    body[position + 1] = 0
    with pytest.raises(MalformedRequest):
        codec.decode_response(ApiKey.API_VERSIONS, 3, bytes(body))


def test_a_varint_of_six_bytes_is_refused() -> None:
    with pytest.raises(MalformedRequest):
        codec.decode_request(ApiKey.METADATA, 9, b"\xff\xff\xff\xff\xff\x01" + bytes(20), 0, 26)


@pytest.mark.parametrize("version", [3, 8, 9, 11])
def test_a_huge_count_costs_no_memory(version: int) -> None:
    body = b"\x00\x00\xff\xff\x00\x00\x00\x01" + b"\xff\xff\xff\x7f" * 4
    tracemalloc.start()
    for read in (codec.decode_request, None):
        with pytest.raises(MalformedRequest):
            if read:
                read(ApiKey.PRODUCE, version, body, 0, len(body))
            else:
                fast_codec.decode_produce(body, 0, len(body), version)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 2_000_000


def test_a_frame_full_of_empty_items_is_refused_before_it_fills_the_memory() -> None:
    count = codec.REQUEST_ITEMS_MAX + 1
    crowded = count.to_bytes(4, "big") + b"\x00\x00" * count
    with pytest.raises(MalformedRequest, match="too many items"):
        codec.decode_request(ApiKey.METADATA, 1, crowded, 0, len(crowded))


@pytest.mark.parametrize("version", [3, 9])
def test_a_produce_full_of_empty_topics_is_refused_before_it_fills_the_memory(version: int) -> None:
    count = PARTITIONS_MAX + 1
    if version < 9:
        body = b"\xff\xff" + bytes(6) + count.to_bytes(4, "big") + b"\x00\x00\x00\x00\x00\x00" * count
    else:
        body = b"\x00" + bytes(6) + encode_unsigned(count + 1) + b"\x01\x01\x00" * count + b"\x00"
    with pytest.raises(MalformedRequest, match="too many"):
        fast_codec.decode_produce(body, 0, len(body), version)


def test_versions_outside_the_table_are_refused() -> None:
    for api_key, version in ((0, 12), (0, -1), (4, 0), (99, 0), (-1, 0)):
        with pytest.raises(UnsupportedApi):
            codec.decode_request(api_key, version, b"", 0, 0)


@st.composite
def mutated(draw: st.DrawFn) -> tuple[Message, bytes]:
    """A valid message with a few bytes changed, removed or inserted."""
    message = draw(st.sampled_from(MESSAGES))
    body = bytearray(encode(message, sample(*message, draw(st.sampled_from(("full", "nulls", "blank"))))))
    for _ in range(draw(st.integers(1, 4))):
        position = draw(st.integers(0, max(0, len(body) - 1)))
        match draw(st.sampled_from(("set", "cut", "insert", "length"))):
            case "set" if body:
                body[position] = draw(st.integers(0, 255))
            case "cut":
                del body[position : position + draw(st.integers(1, 5))]
            case "insert":
                body[position:position] = draw(st.binary(min_size=1, max_size=5))
            case "length":
                body[position : position + 4] = draw(
                    st.sampled_from(
                        (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\xff\xff\xff\xfe", b"\x80\x80\x80\x80")
                    )
                )
    return message, bytes(body)


@settings(max_examples=depth.examples(1500))
@given(mutated())
def test_a_mutated_message_is_read_or_refused_and_nothing_else(case: tuple[Message, bytes]) -> None:
    message, body = case
    api_key, version, direction = message
    readers = [lambda: decode(message, body)]
    if direction == "request":
        readers.append(lambda: decode_request_header(body, 0, len(body)))
        if api_key == ApiKey.PRODUCE and version >= 3:
            readers.append(lambda: fast_codec.decode_produce(body, 0, len(body), version))
        if api_key == ApiKey.FETCH and version >= 4:
            readers.append(lambda: fast_codec.decode_fetch(body, 0, len(body), version))
    for read in readers:
        started = time.thread_time()
        with contextlib.suppress(MalformedRequest):
            read()
        assert time.thread_time() - started < SECONDS_MAX


@settings(max_examples=depth.examples(500))
@given(st.binary(max_size=200), st.sampled_from(MESSAGES))
def test_noise_is_read_or_refused_and_nothing_else(body: bytes, message: Message) -> None:
    with contextlib.suppress(MalformedRequest):
        decode(message, body)


@settings(max_examples=depth.examples(500))
@given(st.sampled_from(sorted(APIS)), st.data())
def test_the_hand_written_decoders_refuse_what_the_compiled_ones_refuse(api_key: int, data: st.DataObject) -> None:
    version = data.draw(st.integers(3, 11))
    records = data.draw(st.one_of(st.none(), st.binary(max_size=40)))
    partition = PartitionProduceData(index=7, records=records)
    value = ProduceRequest(acks=-1, timeout_ms=5, topic_data=[TopicProduceData(name="t", partition_data=[partition])])
    body = bytearray(codec.encode_request(ApiKey.PRODUCE, version, value))
    position = data.draw(st.integers(0, len(body) - 1))
    body[position] = data.draw(st.integers(0, 255))
    outcomes = []
    for read in (
        lambda: codec.decode_request(ApiKey.PRODUCE, version, body, 0, len(body)),
        lambda: fast_codec.decode_produce(body, 0, len(body), version),
    ):
        try:
            read()
            outcomes.append("read")
        except MalformedRequest:
            outcomes.append("refused")
    assert outcomes[0] == outcomes[1]
