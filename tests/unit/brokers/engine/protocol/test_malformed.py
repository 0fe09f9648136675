"""Malformed input: decoding ends soon, takes little memory, and raises MalformedRequest or nothing."""

from __future__ import annotations

import contextlib
import time
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brokers.engine.protocol import codec
from brokers.engine.protocol.apis import APIS, ApiKey
from brokers.engine.protocol.errors import MalformedRequest, UnsupportedApi
from brokers.engine.protocol.fast_codec_fetch import decode_fetch
from brokers.engine.protocol.fast_codec_produce import ITEMS_MAX, decode_produce
from brokers.engine.protocol.headers import decode_request_header
from brokers.engine.protocol.lengths import TAGGED_FIELDS_MAX, TEXT_BYTES_MAX
from brokers.engine.protocol.messages.fetch import FetchRequest, FetchTopic, ForgottenTopic
from brokers.engine.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
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
    """WIRE-5; the cases were observed to be accepted by Kafka 3.9.1."""
    body = bytes.fromhex("01 01 00" + tags)  # no topics, create: yes, operations: no
    message = codec.decode_request(ApiKey.METADATA, 11, body, 0, len(body))
    assert message.topics == []
    assert message.allow_auto_topic_creation is True


READERS = {
    "a body": lambda tags, text: codec.decode_request(ApiKey.METADATA, 9, *_whole(_metadata(tags, text))),
    "a header": lambda tags, _: decode_request_header(
        *_whole(bytes.fromhex("0003 0009 00000001 0001 63") + tags + bytes(9))
    ),
    "the end of a produce": lambda tags, text: decode_produce(*_whole(_produce(text, tags=tags)), 9),
    "an id in a produce": lambda _, text: decode_produce(*_whole(_produce("t", transactional_id=text)), 9),
    "a topic of a fetch": lambda tags, text: decode_fetch(*_whole(_fetch(text, tags=tags)), 12),
    "what a fetch forgets": lambda tags, text: decode_fetch(*_whole(_fetch("t", text, tags=tags)), 12),
    "the rack of a fetch": lambda tags, text: decode_fetch(*_whole(_fetch("t", rack_id=text, tags=tags)), 12),
}


def _whole(body: bytes) -> tuple[bytes, int, int]:
    return body, 0, len(body)


def _metadata(tags: bytes, text: str) -> bytes:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=text)])
    return codec.encode_request(ApiKey.METADATA, 9, request)[:-1] + tags


def _produce(topic: str, *, transactional_id: str | None = None, tags: bytes = b"\0") -> bytes:
    request = ProduceRequest(
        transactional_id=transactional_id, topic_data=[TopicProduceData(name=topic, partition_data=[])]
    )
    return codec.encode_request(ApiKey.PRODUCE, 9, request)[:-1] + tags


def _fetch(topic: str, forgotten: str = "f", *, rack_id: str = "", tags: bytes = b"\0") -> bytes:
    request = FetchRequest(
        topics=[FetchTopic(topic=topic, partitions=[])],
        forgotten_topics_data=[ForgottenTopic(topic=forgotten, partitions=[1])],
        rack_id=rack_id,
    )
    return codec.encode_request(ApiKey.FETCH, 12, request)[:-1] + tags


@pytest.mark.parametrize("where", [where for where in READERS if where != "an id in a produce"])
def test_tagged_fields_of_a_struct_are_limited(where: str) -> None:
    """A frame of 100 MB could hold fifty million tagged fields, all skipped in one turn of the loop."""
    for count, refused in ((TAGGED_FIELDS_MAX, False), (TAGGED_FIELDS_MAX + 1, True)):
        tags = bytes([count]) + b"\x63\x00" * count
        with pytest.raises(MalformedRequest, match="16 tagged fields") if refused else contextlib.nullcontext():
            READERS[where](tags, "t")


@pytest.mark.parametrize("where", [where for where in READERS if where != "a header"])
def test_text_is_not_longer_than_in_kafka(where: str) -> None:
    """A compact length allows longer text; Kafka 3.9.1 was observed to refuse it."""
    READERS[where](b"\0", "x" * TEXT_BYTES_MAX)
    with pytest.raises(MalformedRequest, match="long"):
        READERS[where](b"\0", "x" * (TEXT_BYTES_MAX + 1))


def test_text_that_could_not_be_answered_once_it_is_utf_8_is_refused() -> None:
    """The replacement character of an invalid byte takes three bytes; Kafka cannot answer such text, and neither can
    we.
    """
    for length in (TEXT_BYTES_MAX // 3, TEXT_BYTES_MAX // 3 + 1):
        body = b"\0\0\0\1" + length.to_bytes(2, "big") + b"\xff" * length
        refused = pytest.raises(MalformedRequest, match="once it is UTF-8")
        with refused if 3 * length > TEXT_BYTES_MAX else contextlib.nullcontext():
            codec.decode_request(ApiKey.METADATA, 0, *_whole(body))


@pytest.mark.parametrize("version", [8, 9])
def test_long_names_count_as_items_of_a_produce_and_of_a_fetch(version: int) -> None:
    """The response repeats the names, and no topic has names of that length."""
    topics = [TopicProduceData(name="x" * 30_000, partition_data=[]) for _ in range(220)]
    produced = codec.encode_request(ApiKey.PRODUCE, version, ProduceRequest(topic_data=topics))
    wanted = FetchRequest(topics=[FetchTopic(topic=topic.name, partitions=[]) for topic in topics])
    fetched = codec.encode_request(ApiKey.FETCH, version + 3, wanted)
    for read in (
        lambda: decode_produce(*_whole(produced), version, 25_000),
        lambda: decode_fetch(*_whole(fetched), version + 3, 25_000),
    ):
        with pytest.raises(MalformedRequest, match="names too long"):
            read()
    assert len(decode_produce(*_whole(produced), version, 26_000).topics) == 220


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
                decode_produce(body, 0, len(body), version)
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
    count = ITEMS_MAX + 1
    if version < 9:
        body = b"\xff\xff" + bytes(6) + count.to_bytes(4, "big") + b"\x00\x00\x00\x00\x00\x00" * count
    else:
        body = b"\x00" + bytes(6) + encode_unsigned(count + 1) + b"\x01\x01\x00" * count + b"\x00"
    with pytest.raises(MalformedRequest, match="too many"):
        decode_produce(body, 0, len(body), version)


def test_versions_outside_the_table_are_refused() -> None:
    for api_key, version in ((0, 12), (0, -1), (4, 0), (99, 0), (-1, 0)):
        with pytest.raises(UnsupportedApi):
            codec.decode_request(api_key, version, b"", 0, 0)


@st.composite
def mutated(draw: st.DrawFn) -> tuple[Message, bytes]:
    """Draw a valid message with a few bytes changed, removed or inserted."""
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
            readers.append(lambda: decode_produce(body, 0, len(body), version))
        if api_key == ApiKey.FETCH and version >= 4:
            readers.append(lambda: decode_fetch(body, 0, len(body), version))
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
        lambda: decode_produce(body, 0, len(body), version),
    ):
        try:
            read()
            outcomes.append("read")
        except MalformedRequest:
            outcomes.append("refused")
    assert outcomes[0] == outcomes[1]
