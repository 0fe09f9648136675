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
_WANTED: Final = Struct(">iiqiqix")
_ONE_WANTED: Final = Struct(">B16sBiiqiqixx")  # one topic with one partition
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
            topics = _ONE_WANTED.pack(2, topic_id, 2, index, epoch, offset, last_epoch, start_offset, bytes_max)
        else:
            topics = _topics(partitions)
        body = b"".join(
            (
                self._name,
                _LIMITS.pack(wait_ms, self._min_bytes, self._response_bytes_max, 0, session_id, session_epoch),
                topics,
                _forgotten(forgotten) if forgotten else _NOTHING_FORGOTTEN,
                self._end,
            )
        )
        size_bytes = _START.size - _INT.size + len(body)
        return _START.pack(size_bytes, API_KEY, VERSION, correlation_id, self._name_bytes) + body


def _topics(partitions: Sequence[ReplicaPartitionRequest]) -> bytes:
    chunks: list[bytes] = []
    count = 0
    at = 0
    while at < len(partitions):
        topic_id = partitions[at][0]
        until = at + 1
        while until < len(partitions) and partitions[until][0] == topic_id:
            until += 1
        chunks.append(topic_id + encode_unsigned(until - at + 1))
        for _, index, epoch, offset, last_epoch, start_offset, bytes_max in partitions[at:until]:
            chunks.append(_WANTED.pack(index, epoch, offset, last_epoch, start_offset, bytes_max))
        chunks.append(_NO_TAGS)
        count += 1
        at = until
    return encode_unsigned(count + 1) + b"".join(chunks)


def _forgotten(partitions: Sequence[ForgottenPartition]) -> bytes:
    by_topic: dict[bytes, list[int]] = {}
    for topic_id, index in partitions:
        by_topic.setdefault(topic_id, []).append(index)
    chunks = [encode_unsigned(len(by_topic) + 1)]
    for topic_id, indexes in by_topic.items():
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


def _decode(b: Buffer, p: int, end: int) -> tuple[FetchedFrame, int]:
    correlation_id, tags, throttle_ms, error, session_id = _HEAD.unpack_from(b, p)
    if tags:
        after = skip_tagged_fields(b, p + 4, end)
        throttle_ms, error, session_id = _HEAD.unpack_from(b, after - 5)[2:]
        p = after - 5
    p += _HEAD.size
    topics, p = read_varint(b, p)
    if not topics or topics - 1 > (end - p) // _TOPIC_BYTES_MIN:
        raise MalformedRequest("the topics of a fetch response are null or too many")
    partitions_left = PARTITIONS_MAX
    fetched_partitions: list[FetchedPartition] = []
    for _ in range(topics - 1):
        topic_id = bytes(b[p : p + 16])
        partition_count, p = read_varint(b, p + 16)
        partitions_left -= partition_count
        if not partition_count or partition_count - 1 > (end - p) // _PARTITION_BYTES_MIN or partitions_left < 0:
            raise MalformedRequest("the partitions of a topic are null or too many")
        for _ in range(partition_count - 1):
            index, code, high_watermark, _, start_offset, aborted = _FETCHED.unpack_from(b, p)
            p += _FETCHED.size
            if aborted > 1:
                p = _skip_aborted(b, p - 1, end)
            p += 4  # the preferred replica is for consumers
            length = b[p]
            p += 1
            if length > 127:
                length, p = rest_of_varint(b, p, length)
            records_start = p
            if length:
                p += length - 1
            if p > end:
                raise MalformedRequest("records run past the frame")
            records_end = p
            epoch = end_offset = -1
            if b[p]:
                epoch, end_offset, p = _partition_tags(b, p, end)
            else:
                p += 1
            fetched_partitions.append(
                (topic_id, index, code, high_watermark, start_offset, epoch, end_offset, records_start, records_end)
            )
        p = skip_tagged_fields(b, p, end) if b[p] else p + 1
    p = skip_tagged_fields(b, p, end) if b[p] else p + 1
    return FetchedFrame(correlation_id, throttle_ms, error, session_id, fetched_partitions), p


def _skip_aborted(b: Buffer, p: int, end: int) -> int:
    """Skips the aborted transactions, which are for consumers; a follower finds them in the records."""
    count, p = read_varint(b, p)
    if count - 1 > (end - p) // _ABORTED_BYTES:
        raise MalformedRequest("more aborted transactions than the frame can hold")
    for _ in range(count - 1):
        p = skip_tagged_fields(b, p + _ABORTED_BYTES - 1, end)
    return p


def _partition_tags(b: Buffer, p: int, end: int) -> tuple[int, int, int]:
    """Returns the diverging epoch and its end offset (-1 for none), and the position after the tagged fields."""
    stop = skip_tagged_fields(b, p, end)
    epoch = end_offset = -1
    count, p = read_varint(b, p)
    for _ in range(count):
        tag, p = read_varint(b, p)
        size_bytes, p = read_varint(b, p)
        if tag == _DIVERGING_TAG:
            epoch, end_offset = _EPOCH_END.unpack_from(b, p)
            if skip_tagged_fields(b, p + _EPOCH_END.size, end) != p + size_bytes:
                raise MalformedRequest("a diverging epoch does not fill its tagged field")
        p += size_bytes
    return epoch, end_offset, stop
