"""Fetch by hand: the bytes of the compiled codec, at a fraction of its cost.

Topics stay `bytes`: a name up to version 12, the 16 bytes of an id from 13 on. A response is answered in pieces, with
the caller's own objects where record sets belong, so that those go from the file to the socket without passing here.
"""

from __future__ import annotations

from struct import Struct
from struct import error as struct_error
from typing import Final, NamedTuple

from brokers.engine.protocol.errors import MalformedRequest
from brokers.engine.protocol.fast_codec_produce import PARTITIONS_MAX
from brokers.engine.protocol.lengths import Buffer, read_varint, rest_of_varint, skip_tagged_fields

_FLEXIBLE_FROM: Final = 12
_TOPIC_IDS_FROM: Final = 13
_REPLICA_STATE_FROM: Final = 15
_REPLICA_STATE_TAG: Final = 1

PartitionWanted = tuple[int, int, int, int, int, int]
TopicWanted = tuple[bytes, list[PartitionWanted]]


class FetchFrame(NamedTuple):
    """A fetch request. What its version lacks is -1 (limits: the largest integer).

    `topics` holds `(name or id, [(partition, current leader epoch, fetch offset, last fetched epoch, log start offset,
    partition max bytes)])`, `forgotten` holds `(name or id, [partition])`.
    """

    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation: int
    session_id: int
    session_epoch: int
    topics: list[TopicWanted]
    forgotten: list[tuple[bytes, list[int]]]
    rack_id: str
    replica_epoch: int = -1


# Replica, wait, minimum, maximum, isolation, (session id and epoch,) topic count.
_HEAD_V4: Final = Struct(">iiiibi")
_HEAD_V7: Final = Struct(">iiiibiii")
_HEAD_V12: Final = Struct(">iiiibiiB")
_HEAD_V15: Final = Struct(">iiibiiB")
_PARTITION_V4: Final = Struct(">iqi")
_PARTITION_V5: Final = Struct(">iqqi")
_PARTITION_V9: Final = Struct(">iiqqi")
_PARTITION_V12: Final = Struct(">iiqiqiB")
_SHORT: Final = Struct(">h")
_INT: Final = Struct(">i")
_REPLICA_STATE: Final = Struct(">iq")
# How most fetches end: nothing forgotten, no rack, no tagged fields.
_NOTHING_MORE: Final = b"\x01\x01\x00"
# A named tuple's own constructor costs three times as much.
_new_tuple: Final = tuple.__new__


def decode_fetch(buffer: Buffer, offset: int, end: int, version: int, items_max: int = PARTITIONS_MAX) -> FetchFrame:
    """A fetch request body (versions 4 to 17) in `buffer[offset:end]`, of so many topics and partitions at most. Raises
    MalformedRequest.

    As in the compiled codec, fixed-width fields may be read past `end`; the next length or the last line notices.
    """
    try:
        frame, position = (_decode_flexible if version >= _FLEXIBLE_FROM else _decode_classic)(
            buffer, offset, end, version, items_max
        )
    except (IndexError, struct_error) as error:
        raise MalformedRequest("a fetch request ends too early") from error
    if position > end:
        raise MalformedRequest("a fetch request ends too early")
    return frame


def _decode_flexible(b: Buffer, p: int, end: int, version: int, items_max: int) -> tuple[FetchFrame, int]:
    if version >= _REPLICA_STATE_FROM:
        replica_id = -1
        max_wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch, count = _HEAD_V15.unpack_from(b, p)
        p += 22
    else:
        (replica_id, max_wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch, count) = (
            _HEAD_V12.unpack_from(b, p)
        )
        p += 26
    by_id = version >= _TOPIC_IDS_FROM
    topic_bytes_min = 18 if by_id else 3
    if count > 127:
        count, p = rest_of_varint(b, p, count)
    left = items_max - count + 1
    if not count or count - 1 > (end - p) // topic_bytes_min or left < 0:
        raise MalformedRequest("the topics of a fetch request are null or too many")
    topics: list[TopicWanted] = []
    for _ in range(count - 1):
        if by_id:
            topic = bytes(b[p : p + 16])
            p += 16
        else:
            topic, p = _compact_bytes(b, p, end)
        count = b[p]
        p += 1
        if count > 127:
            count, p = rest_of_varint(b, p, count)
        left -= count - 1
        if not count or count - 1 > (end - p) // 33 or left < 0:
            raise MalformedRequest("the partitions of a topic are null or too many")
        partitions: list[PartitionWanted] = []
        for _ in range(count - 1):
            partition = _PARTITION_V12.unpack_from(b, p)
            p = skip_tagged_fields(b, p + 32, end) if partition[6] else p + 33
            partitions.append(partition[:6])
        topics.append((topic, partitions))
        p = skip_tagged_fields(b, p, end) if b[p] else p + 1
    if b[p : p + 3] == _NOTHING_MORE:
        head = (replica_id, max_wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch)
        return _new_tuple(FetchFrame, (*head, topics, [], "", -1)), p + 3
    forgotten, p = _forgotten(b, p, end, by_id, left)
    rack_id = ""
    if b[p] == 1:
        p += 1
    else:
        rack, p = _compact_bytes(b, p, end)
        rack_id = str(rack, "utf-8", "replace")
    replica_epoch = -1
    if b[p] == 0:
        p += 1
    else:
        replica_id, replica_epoch, p = _message_tags(b, p, end, version, replica_id)
    head = (replica_id, max_wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch)
    return _new_tuple(FetchFrame, (*head, topics, forgotten, rack_id, replica_epoch)), p


def _forgotten(b: Buffer, p: int, end: int, by_id: bool, left: int) -> tuple[list[tuple[bytes, list[int]]], int]:
    """The topics that an incremental fetch takes out of its session; `left` more items may come."""
    count, p = read_varint(b, p)
    left -= count - 1
    if not count or count - 1 > (end - p) // (18 if by_id else 3) or left < 0:
        raise MalformedRequest("the forgotten topics are null or too many")
    forgotten: list[tuple[bytes, list[int]]] = []
    for _ in range(count - 1):
        if by_id:
            topic = bytes(b[p : p + 16])
            p += 16
        else:
            topic, p = _compact_bytes(b, p, end)
        count, p = read_varint(b, p)
        left -= count - 1
        if not count or count - 1 > (end - p) // 4 or left < 0:
            raise MalformedRequest("the forgotten partitions are null or too many")
        forgotten.append((topic, [_INT.unpack_from(b, p + 4 * i)[0] for i in range(count - 1)]))
        p = skip_tagged_fields(b, p + 4 * (count - 1), end)
    return forgotten, p


def _compact_bytes(b: Buffer, p: int, end: int) -> tuple[bytes, int]:
    """A compact string that may not be null, as bytes."""
    length, p = read_varint(b, p)
    stop = p + length - 1
    if not length or stop > end:
        raise MalformedRequest("a name is null or runs past the frame")
    return bytes(b[p:stop]), stop


def _message_tags(b: Buffer, p: int, end: int, version: int, replica_id: int) -> tuple[int, int, int]:
    """The tagged fields of the whole request: the replica's id and epoch are one of them from version 15 on."""
    replica_epoch = -1
    stop = skip_tagged_fields(b, p, end)
    count, p = read_varint(b, p)
    for _ in range(count):
        tag, p = read_varint(b, p)
        size_bytes, p = read_varint(b, p)
        if tag == _REPLICA_STATE_TAG and version >= _REPLICA_STATE_FROM:
            replica_id, replica_epoch = _REPLICA_STATE.unpack_from(b, p)
            inner = skip_tagged_fields(b, p + _REPLICA_STATE.size, end)
            if inner != p + size_bytes:
                raise MalformedRequest("the replica state does not fill its tagged field")
        elif tag == 0 and (_compact_string_end(b, p, end)) != p + size_bytes:
            raise MalformedRequest("the cluster id does not fill its tagged field")
        p += size_bytes
    return replica_id, replica_epoch, stop


def _compact_string_end(b: Buffer, p: int, end: int) -> int:
    length, p = read_varint(b, p)
    stop = p + max(length - 1, 0)
    if stop > end:
        raise MalformedRequest("the cluster id runs past the frame")
    return stop


def _decode_classic(b: Buffer, p: int, end: int, version: int, items_max: int) -> tuple[FetchFrame, int]:
    session_id, session_epoch = 0, -1
    if version >= 7:
        (replica_id, max_wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch, count) = (
            _HEAD_V7.unpack_from(b, p)
        )
        p += 29
    else:
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation, count = _HEAD_V4.unpack_from(b, p)
        p += 21
    left = items_max - count
    if count < 0 or count > (end - p) // 6 or left < 0:
        raise MalformedRequest("the topics of a fetch request are null or too many")
    partition_bytes = 28 if version >= 9 else 24 if version >= 5 else 16
    topics: list[TopicWanted] = []
    for _ in range(count):
        topic, p = _classic_bytes(b, p, end)
        (partition_count,) = _INT.unpack_from(b, p)
        p += 4
        left -= partition_count
        if partition_count < 0 or partition_count > (end - p) // partition_bytes or left < 0:
            raise MalformedRequest("the partitions of a topic are null or too many")
        partitions: list[PartitionWanted] = []
        for _ in range(partition_count):
            if version >= 9:
                index, epoch, fetch_offset, start_offset, bytes_max = _PARTITION_V9.unpack_from(b, p)
                partitions.append((index, epoch, fetch_offset, -1, start_offset, bytes_max))
            elif version >= 5:
                index, fetch_offset, start_offset, bytes_max = _PARTITION_V5.unpack_from(b, p)
                partitions.append((index, -1, fetch_offset, -1, start_offset, bytes_max))
            else:
                index, fetch_offset, bytes_max = _PARTITION_V4.unpack_from(b, p)
                partitions.append((index, -1, fetch_offset, -1, -1, bytes_max))
            p += partition_bytes
        topics.append((topic, partitions))
    forgotten: list[tuple[bytes, list[int]]] = []
    if version >= 7:
        (count,) = _INT.unpack_from(b, p)
        p += 4
        left -= count
        if count < 0 or count > (end - p) // 6 or left < 0:
            raise MalformedRequest("the forgotten topics are null or too many")
        for _ in range(count):
            topic, p = _classic_bytes(b, p, end)
            (partition_count,) = _INT.unpack_from(b, p)
            p += 4
            left -= partition_count
            if partition_count < 0 or partition_count > (end - p) // 4 or left < 0:
                raise MalformedRequest("the forgotten partitions are null or too many")
            forgotten.append((topic, [_INT.unpack_from(b, p + 4 * i)[0] for i in range(partition_count)]))
            p += 4 * partition_count
    rack_id = ""
    if version >= 11:
        rack, p = _classic_bytes(b, p, end)
        rack_id = str(rack, "utf-8", "replace")
    head = (replica_id, max_wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch)
    return _new_tuple(FetchFrame, (*head, topics, forgotten, rack_id, -1)), p


def _classic_bytes(b: Buffer, p: int, end: int) -> tuple[bytes, int]:
    """A classic string that may not be null, as bytes."""
    (length,) = _SHORT.unpack_from(b, p)
    stop = p + 2 + length
    if length < 0 or stop > end:
        raise MalformedRequest("a name is null or runs past the frame")
    return bytes(b[p + 2 : stop]), stop
