"""Produce by hand: the bytes of the compiled codec, at a fraction of its cost (PERFORMANCE.md, "Hot path").

Names stay `bytes` and record sets stay where they were received: a decoded produce names their positions in the frame's
buffer. Fetch is in `hot_fetch`. The tests hold both equal to the compiled codec in every version.
"""

from __future__ import annotations

from struct import Struct
from struct import error as struct_error
from typing import Final, NamedTuple

from brokers.engine.protocol.errors import MalformedRequest
from brokers.engine.protocol.lengths import rest_of_varint, skip_tagged_fields
from brokers.engine.wire.varints import SHORT_UNSIGNED, encode_unsigned

# Topics and partitions of one produce or fetch together; each costs more memory than it takes on the wire.
PARTITIONS_MAX: Final = 100_000

_FLEXIBLE_FROM: Final = 9

_HEAD: Final = Struct(">hii")  # acks, timeout, topic count
_HEAD_FLEXIBLE: Final = Struct(">hiB")
_SHORT: Final = Struct(">h")
_INT: Final = Struct(">i")
_TWO_INTS: Final = Struct(">ii")  # partition, records length
_INT_BYTE: Final = Struct(">iB")
# A named tuple's own constructor costs three times as much.
_new_tuple: Final = tuple.__new__

ProducePartition = tuple[int, int, int]
ProduceTopic = tuple[bytes, list[ProducePartition]]
ProducedPartition = tuple[int, int, int, int, int, str | None]
ProducedTopic = tuple[bytes, list[ProducedPartition]]


class ProduceFrame(NamedTuple):
    """A produce request. `topics` holds `(name, [(partition, start, end)])`, positions in the buffer; -1: null."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[ProduceTopic]


def decode_produce(
    buffer: bytes | bytearray | memoryview, offset: int, end: int, version: int, items_max: int = PARTITIONS_MAX
) -> ProduceFrame:
    """A produce request body (versions 3 to 11) in `buffer[offset:end]`, of so many topics and partitions at most.
    Raises MalformedRequest.

    As in the compiled codec, fixed-width fields may be read past `end`; the next length or the last line notices.
    """
    try:
        frame, position = (_decode_flexible if version >= _FLEXIBLE_FROM else _decode_classic)(
            buffer, offset, end, items_max
        )
    except (IndexError, struct_error) as error:
        raise MalformedRequest("a produce request ends too early") from error
    if position > end:
        raise MalformedRequest("a produce request ends too early")
    return frame


def _decode_flexible(b: bytes | bytearray | memoryview, p: int, end: int, items_max: int) -> tuple[ProduceFrame, int]:
    length = b[p]
    p += 1
    transactional_id = None
    if length:
        if length > 127:
            length, p = rest_of_varint(b, p, length)
        stop = p + length - 1
        if stop > end:
            raise MalformedRequest("the transactional id runs past the frame")
        transactional_id = str(b[p:stop], "utf-8", "replace")
        p = stop
    acks, timeout_ms, topic_count = _HEAD_FLEXIBLE.unpack_from(b, p)
    p += 7
    if topic_count > 127:
        topic_count, p = rest_of_varint(b, p, topic_count)
    if not topic_count:
        raise MalformedRequest("the topics of a produce request are null")
    left = items_max - topic_count + 1
    if topic_count - 1 > (end - p) // 3 or left < 0:
        raise MalformedRequest("too many topics in a produce request")
    topics: list[ProduceTopic] = []
    for _ in range(topic_count - 1):
        length = b[p]
        p += 1
        if length > 127:
            length, p = rest_of_varint(b, p, length)
        stop = p + length - 1
        if stop > end or not length:
            raise MalformedRequest("a topic name is null or runs past the frame")
        name = bytes(b[p:stop])
        count = b[stop]
        p = stop + 1
        if count > 127:
            count, p = rest_of_varint(b, p, count)
        left -= count - 1
        if not count or count - 1 > (end - p) // 6 or left < 0:
            raise MalformedRequest("the partitions of a topic are null or too many")
        partitions: list[ProducePartition] = []
        for _ in range(count - 1):
            index, length = _INT_BYTE.unpack_from(b, p)
            p += 5
            if length > 127:
                length, p = rest_of_varint(b, p, length)
            if length:
                stop = p + length - 1
                if stop > end:
                    raise MalformedRequest("records run past the frame")
                partitions.append((index, p, stop))
                p = stop
            else:
                partitions.append((index, -1, -1))
            p = skip_tagged_fields(b, p, end) if b[p] else p + 1
        topics.append((name, partitions))
        p = skip_tagged_fields(b, p, end) if b[p] else p + 1
    p = skip_tagged_fields(b, p, end) if b[p] else p + 1
    return _new_tuple(ProduceFrame, (transactional_id, acks, timeout_ms, topics)), p


def _decode_classic(b: bytes | bytearray | memoryview, p: int, end: int, items_max: int) -> tuple[ProduceFrame, int]:
    (length,) = _SHORT.unpack_from(b, p)
    p += 2
    transactional_id = None
    if length >= 0:
        stop = p + length
        if stop > end:
            raise MalformedRequest("the transactional id runs past the frame")
        transactional_id = str(b[p:stop], "utf-8", "replace")
        p = stop
    acks, timeout_ms, topic_count = _HEAD.unpack_from(b, p)
    p += 10
    left = items_max - topic_count
    if topic_count < 0 or topic_count > (end - p) // 6 or left < 0:
        raise MalformedRequest("the topics of a produce request are null or too many")
    topics: list[ProduceTopic] = []
    for _ in range(topic_count):
        (length,) = _SHORT.unpack_from(b, p)
        p += 2
        stop = p + length
        if length < 0 or stop > end:
            raise MalformedRequest("a topic name is null or runs past the frame")
        name = bytes(b[p:stop])
        (count,) = _INT.unpack_from(b, stop)
        p = stop + 4
        left -= count
        if count < 0 or count > (end - p) // 8 or left < 0:
            raise MalformedRequest("the partitions of a topic are null or too many")
        partitions: list[ProducePartition] = []
        for _ in range(count):
            index, length = _TWO_INTS.unpack_from(b, p)
            p += 8
            if length >= 0:
                stop = p + length
                if stop > end:
                    raise MalformedRequest("records run past the frame")
                partitions.append((index, p, stop))
                p = stop
            else:
                partitions.append((index, -1, -1))
        topics.append((name, partitions))
    return _new_tuple(ProduceFrame, (transactional_id, acks, timeout_ms, topics)), p


# One partition's answer without its errors of single records, by version.
_PARTITION_V3: Final = Struct(">ihqq")
_PARTITION_V5: Final = Struct(">ihqqq")
_PARTITION_V8: Final = Struct(">ihqqqih")  # … no record errors, error message length
_PARTITION_V9: Final = Struct(">ihqqqBB")
# Whole frames for one topic with one partition and no error message, the answer to nearly every produce.
_ONE_HEAD_V9: Final = Struct(">iixBB")  # size, correlation id, one topic, name length
_ONE_TAIL_V9: Final = Struct(">BihqqqBBxxix")
_ONE_HEAD: Final = Struct(">iiih")
_ONE_TAIL_V3: Final = Struct(">iihqqi")
_ONE_TAIL_V5: Final = Struct(">iihqqqi")
_ONE_TAIL_V8: Final = Struct(">iihqqqihi")
# What such a frame announces as its size, the name aside.
_ONE_BYTES_V3: Final = _ONE_HEAD.size + _ONE_TAIL_V3.size - 4
_ONE_BYTES_V5: Final = _ONE_HEAD.size + _ONE_TAIL_V5.size - 4
_ONE_BYTES_V8: Final = _ONE_HEAD.size + _ONE_TAIL_V8.size - 4
_ONE_BYTES_V9: Final = _ONE_HEAD_V9.size + _ONE_TAIL_V9.size - 4


def encode_produce_response(
    version: int, correlation_id: int, topics: list[ProducedTopic], throttle_time_ms: int
) -> bytes:
    """A whole produce response frame (versions 3 to 11).

    `topics` holds `(name, [(partition, error, base offset, log append time ms, log start offset, message or None)])`.
    """
    if len(topics) == 1:
        name, partitions = topics[0]
        if len(partitions) == 1 and len(name) < 127:
            index, error, base_offset, append_time_ms, log_start_offset, message = partitions[0]
            if message is None:
                length = len(name)
                if version >= _FLEXIBLE_FROM:
                    return (
                        _ONE_HEAD_V9.pack(length + _ONE_BYTES_V9, correlation_id, 2, length + 1)
                        + name
                        + _ONE_TAIL_V9.pack(
                            2, index, error, base_offset, append_time_ms, log_start_offset, 1, 0, throttle_time_ms
                        )
                    )
                if version >= 8:
                    return (
                        _ONE_HEAD.pack(length + _ONE_BYTES_V8, correlation_id, 1, length)
                        + name
                        + _ONE_TAIL_V8.pack(
                            1, index, error, base_offset, append_time_ms, log_start_offset, 0, -1, throttle_time_ms
                        )
                    )
                if version >= 5:
                    return (
                        _ONE_HEAD.pack(length + _ONE_BYTES_V5, correlation_id, 1, length)
                        + name
                        + _ONE_TAIL_V5.pack(
                            1, index, error, base_offset, append_time_ms, log_start_offset, throttle_time_ms
                        )
                    )
                return (
                    _ONE_HEAD.pack(length + _ONE_BYTES_V3, correlation_id, 1, length)
                    + name
                    + _ONE_TAIL_V3.pack(1, index, error, base_offset, append_time_ms, throttle_time_ms)
                )
    encode = _encode_flexible if version >= _FLEXIBLE_FROM else _encode_classic
    return encode(version, correlation_id, topics, throttle_time_ms)


def _unsigned(value: int) -> bytes:
    return SHORT_UNSIGNED[value] if value < 128 else encode_unsigned(value)


def _encode_flexible(version: int, correlation_id: int, topics: list[ProducedTopic], throttle_time_ms: int) -> bytes:
    out = [b"", _INT.pack(correlation_id), b"\x00", _unsigned(len(topics) + 1)]
    for name, partitions in topics:
        out += (_unsigned(len(name) + 1), name, _unsigned(len(partitions) + 1))
        for index, error, base_offset, append_time_ms, log_start_offset, message in partitions:
            if message is None:
                out.append(
                    _PARTITION_V9.pack(index, error, base_offset, append_time_ms, log_start_offset, 1, 0) + b"\x00"
                )
            else:
                text = message.encode()
                out += (
                    _PARTITION_V5.pack(index, error, base_offset, append_time_ms, log_start_offset),
                    b"\x01",
                    _unsigned(len(text) + 1),
                    text,
                    b"\x00",
                )
        out.append(b"\x00")
    out.append(_INT.pack(throttle_time_ms) + b"\x00")
    out[0] = _INT.pack(sum(map(len, out)))
    return b"".join(out)


def _encode_classic(version: int, correlation_id: int, topics: list[ProducedTopic], throttle_time_ms: int) -> bytes:
    out = [b"", _TWO_INTS.pack(correlation_id, len(topics))]
    for name, partitions in topics:
        out += (_SHORT.pack(len(name)), name, _INT.pack(len(partitions)))
        for index, error, base_offset, append_time_ms, log_start_offset, message in partitions:
            if version >= 8:
                text = b"" if message is None else message.encode()
                length = -1 if message is None else len(text)
                out += (
                    _PARTITION_V8.pack(index, error, base_offset, append_time_ms, log_start_offset, 0, length),
                    text,
                )
            elif version >= 5:
                out.append(_PARTITION_V5.pack(index, error, base_offset, append_time_ms, log_start_offset))
            else:
                out.append(_PARTITION_V3.pack(index, error, base_offset, append_time_ms))
    out.append(_INT.pack(throttle_time_ms))
    out[0] = _INT.pack(sum(map(len, out)))
    return b"".join(out)
