"""Hand-written codec of a follower's fetches (version 17): encodes requests and decodes responses.

Records are not copied: a response has their positions in the buffer. Partitions are plain tuples. A fetch of one
partition, the usual case under load, packs one struct and unpacks two.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from struct import error as struct_error
from typing import Final, NamedTuple

from brokers.engine.protocol.errors import MalformedRequest
from brokers.engine.protocol.lengths import Buffer, read_varint, rest_of_varint, skip_tagged_fields
from brokers.engine.wire.varints import encode_unsigned

VERSION: Final = 17
API_KEY: Final = 1
NO_OFFSET: Final = -1

# Maximum number of partitions in one response; a broker fetches all partitions that it follows.
PARTITIONS_MAX: Final = 1_000_000

# Topic id, partition, leader epoch, fetch offset, epoch of the follower's last batch, log start offset, max bytes.
ReplicaPartitionRequest = tuple[bytes, int, int, int, int, int, int]
# Topic id, partition.
ForgottenPartition = tuple[bytes, int]
# Topic id, partition, error, high watermark, log start offset, diverging epoch and its end offset (-1 for none), start
# and end of the records in the buffer.
FetchedPartition = tuple[bytes, int, int, int, int, int, int, int, int]


class FetchedFrame(NamedTuple):
    """A decoded response; `error` is that of the whole request, and the records are in the buffer."""

    correlation_id: int
    throttle_ms: int
    error: int
    session_id: int
    partitions: list[FetchedPartition]


_START: Final = Struct(">ihhih")  # size, api key, version, correlation id, length of the client id
_LIMITS: Final = Struct(">iiibii")  # wait, minimum, maximum, isolation, session id and epoch
_REQUESTED_PARTITION: Final = Struct(">iiqiqix")
_ONE_REQUESTED_PARTITION: Final = Struct(">B16sBiiqiqixx")  # one topic with one partition
_INT: Final = Struct(">i")
_REPLICA_STATE: Final = Struct(">BBBiqx")  # one tagged field: its tag and size, then id and epoch without tags
_REPLICA_STATE_TAG: Final = 1
_REPLICA_STATE_BYTES: Final = 13
_NO_RACK: Final = b"\x01"
_NOTHING_FORGOTTEN: Final = b"\x01"
_NO_TAGS: Final = b"\x00"

_HEAD: Final = Struct(">iBihi")  # correlation id, tags of the header, throttle, error, session id
_FETCHED: Final = Struct(
    ">ihqqqB"
)  # partition, error, high watermark, stable offset, start offset, aborted (first byte)
_EPOCH_END: Final = Struct(">iq")
_DIVERGING_TAG: Final = 0
_ABORTED_BYTES: Final = 17
_TOPIC_BYTES_MIN: Final = 18
_PARTITION_BYTES_MIN: Final = 37


class ReplicaFetchEncoder:
    """Encoder of the requests of one follower incarnation; the caller chooses the correlation ids."""

    def __init__(
        self,
        *,
        client_id: str,
        replica_id: int,
        replica_epoch: int,
        min_bytes: int,
        response_bytes_max: int,
    ) -> None:
        name = client_id.encode()
        self._name_bytes = len(name)
        self._name = name + _NO_TAGS
        self._min_bytes = min_bytes
        self._response_bytes_max = response_bytes_max
        self._end = _NO_RACK + _REPLICA_STATE.pack(
            1, _REPLICA_STATE_TAG, _REPLICA_STATE_BYTES, replica_id, replica_epoch
        )

    def encode(
        self,
        correlation_id: int,
        wait_ms: int,
        session_id: int,
        session_epoch: int,
        partitions: Sequence[ReplicaPartitionRequest],
        forgotten: Sequence[ForgottenPartition] = (),
    ) -> bytes:
        """Encodes a whole request frame. Adjacent `partitions` of one topic are written as one topic."""
        if len(partitions) == 1:
            topic_id, index, epoch, offset, last_epoch, start_offset, bytes_max = partitions[0]
            topics = _ONE_REQUESTED_PARTITION.pack(
                2, topic_id, 2, index, epoch, offset, last_epoch, start_offset, bytes_max
            )
        else:
            topics = _encode_topics(partitions)
        body = b"".join(
            (
                self._name,
                _LIMITS.pack(wait_ms, self._min_bytes, self._response_bytes_max, 0, session_id, session_epoch),
                topics,
                _encode_forgotten(forgotten) if forgotten else _NOTHING_FORGOTTEN,
                self._end,
            )
        )
        size_bytes = _START.size - _INT.size + len(body)
        return _START.pack(size_bytes, API_KEY, VERSION, correlation_id, self._name_bytes) + body


def _encode_topics(partitions: Sequence[ReplicaPartitionRequest]) -> bytes:
    chunks: list[bytes] = []
    count = 0
    topic_start = 0
    while topic_start < len(partitions):
        topic_id = partitions[topic_start][0]
        topic_end = topic_start + 1
        while topic_end < len(partitions) and partitions[topic_end][0] == topic_id:
            topic_end += 1
        chunks.append(topic_id + encode_unsigned(topic_end - topic_start + 1))
        for _, index, epoch, offset, last_epoch, start_offset, bytes_max in partitions[topic_start:topic_end]:
            chunks.append(_REQUESTED_PARTITION.pack(index, epoch, offset, last_epoch, start_offset, bytes_max))
        chunks.append(_NO_TAGS)
        count += 1
        topic_start = topic_end
    return encode_unsigned(count + 1) + b"".join(chunks)


def _encode_forgotten(partitions: Sequence[ForgottenPartition]) -> bytes:
    indexes_by_topic: dict[bytes, list[int]] = {}
    for topic_id, index in partitions:
        indexes_by_topic.setdefault(topic_id, []).append(index)
    chunks = [encode_unsigned(len(indexes_by_topic) + 1)]
    for topic_id, indexes in indexes_by_topic.items():
        chunks.append(topic_id + encode_unsigned(len(indexes) + 1))
        chunks += [_INT.pack(index) for index in indexes]
        chunks.append(_NO_TAGS)
    return b"".join(chunks)


def decode_replica_fetch(buffer: Buffer, start: int, end: int) -> FetchedFrame:
    """Decodes a response frame without its size in `buffer[start:end]`. Raises MalformedRequest.

    As in the compiled codec, fixed-width fields may be read past `end`, which the next length or the last check
    detects.
    """
    try:
        frame, position = _decode(buffer, start, end)
    except (IndexError, struct_error) as error:
        raise MalformedRequest("a fetch response ends too early") from error
    if position > end:
        raise MalformedRequest("a fetch response ends too early")
    return frame


def _decode(buffer: Buffer, position: int, end: int) -> tuple[FetchedFrame, int]:
    correlation_id, tags, throttle_ms, error, session_id = _HEAD.unpack_from(buffer, position)
    if tags:
        header_end = skip_tagged_fields(buffer, position + 4, end)
        throttle_ms, error, session_id = _HEAD.unpack_from(buffer, header_end - 5)[2:]
        position = header_end - 5
    position += _HEAD.size
    topic_count, position = read_varint(buffer, position)
    if not topic_count or topic_count - 1 > (end - position) // _TOPIC_BYTES_MIN:
        raise MalformedRequest("the topics of a fetch response are null or too many")
    partitions_left = PARTITIONS_MAX
    fetched_partitions: list[FetchedPartition] = []
    for _ in range(topic_count - 1):
        topic_id = bytes(buffer[position : position + 16])
        partition_count, position = read_varint(buffer, position + 16)
        partitions_left -= partition_count
        if not partition_count or partition_count - 1 > (end - position) // _PARTITION_BYTES_MIN or partitions_left < 0:
            raise MalformedRequest("the partitions of a topic are null or too many")
        for _ in range(partition_count - 1):
            index, code, high_watermark, _, start_offset, aborted_count = _FETCHED.unpack_from(buffer, position)
            position += _FETCHED.size
            if aborted_count > 1:
                position = _skip_aborted(buffer, position - 1, end)
            position += 4  # the preferred replica is for consumers
            length = buffer[position]
            position += 1
            if length > 127:
                length, position = rest_of_varint(buffer, position, length)
            records_start = position
            if length:
                position += length - 1
            if position > end:
                raise MalformedRequest("records run past the frame")
            records_end = position
            epoch = end_offset = -1
            if buffer[position]:
                epoch, end_offset, position = _read_partition_tags(buffer, position, end)
            else:
                position += 1
            fetched_partitions.append(
                (topic_id, index, code, high_watermark, start_offset, epoch, end_offset, records_start, records_end)
            )
        position = skip_tagged_fields(buffer, position, end) if buffer[position] else position + 1
    position = skip_tagged_fields(buffer, position, end) if buffer[position] else position + 1
    return FetchedFrame(correlation_id, throttle_ms, error, session_id, fetched_partitions), position


def _skip_aborted(buffer: Buffer, position: int, end: int) -> int:
    """Skips the aborted transactions, which are for consumers; a follower finds them in the records."""
    count, position = read_varint(buffer, position)
    if count - 1 > (end - position) // _ABORTED_BYTES:
        raise MalformedRequest("more aborted transactions than the frame can hold")
    for _ in range(count - 1):
        position = skip_tagged_fields(buffer, position + _ABORTED_BYTES - 1, end)
    return position


def _read_partition_tags(buffer: Buffer, position: int, end: int) -> tuple[int, int, int]:
    """Returns the diverging epoch and its end offset (-1 for none), and the position after the tagged fields."""
    field_end = skip_tagged_fields(buffer, position, end)
    epoch = end_offset = -1
    count, position = read_varint(buffer, position)
    for _ in range(count):
        tag, position = read_varint(buffer, position)
        size_bytes, position = read_varint(buffer, position)
        if tag == _DIVERGING_TAG:
            epoch, end_offset = _EPOCH_END.unpack_from(buffer, position)
            if skip_tagged_fields(buffer, position + _EPOCH_END.size, end) != position + size_bytes:
                raise MalformedRequest("a diverging epoch does not fill its tagged field")
        position += size_bytes
    return epoch, end_offset, field_end
