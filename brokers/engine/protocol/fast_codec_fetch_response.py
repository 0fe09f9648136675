"""Hand-written encoder of Fetch responses: returns a list of bytes and, for record sets, of the caller's own objects.

Record sets are thus sent from the file to the socket without a copy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Final, NamedTuple, TypeVar, cast

from brokers.engine.wire.varints import SHORT_UNSIGNED, encode_unsigned

Slice = TypeVar("Slice")

# Partition, error, high watermark, last stable offset, log start offset, length of the records, the records.
PartitionResponse = tuple[int, int, int, int, int, int, Slice | None]
TopicResponse = tuple[bytes, Sequence[PartitionResponse[Slice]]]
# (topic, partition) → (producer id, first offset) of the aborted transactions in the records.
Aborted = Mapping[tuple[bytes, int], Sequence[tuple[int, int]]]
# (topic, partition) → (broker id, leader epoch) of the current leader, for requests to the wrong broker.
Leaders = Mapping[tuple[bytes, int], tuple[int, int]]
# (topic, partition) → (epoch, end offset) at which the reader's log diverges from the leader's (REP-15).
Diverging = Mapping[tuple[bytes, int], tuple[int, int]]
# (topic, partition) → broker that the client should read from (KIP-392).
Preferred = Mapping[tuple[bytes, int], int]

_FLEXIBLE_FROM: Final = 12
_TOPIC_IDS_FROM: Final = 13
_OFFSET_OUT_OF_RANGE: Final = 1
# Errors of partitions that were not read (unknown topic or partition, no access, unknown topic id). These have an empty
# list of aborted transactions in any isolation level; other failed partitions have null.
_NEVER_READ: Final = frozenset((3, 29, 100))
_NO_PREFERRED_REPLICA: Final = -1
_UNLISTED: Final = _NEVER_READ | {_OFFSET_OUT_OF_RANGE}
# (flexible, never read) → an empty list, or null.
_NO_LIST: Final = {
    (True, True): b"\x01",
    (True, False): b"\x00",
    (False, True): bytes(4),
    (False, False): b"\xff\xff\xff\xff",
}
_NO_ABORTED: Final[Aborted] = {}
_NO_LEADERS: Final[Leaders] = {}
_NO_DIVERGENCE: Final[Diverging] = {}

_SHORT: Final = Struct(">h")
_INT: Final = Struct(">i")
_ABORTED: Final = Struct(">qq")
_LEADER: Final = Struct(">BBBiiB")  # one tagged field, number 1, of 9 bytes: broker id, leader epoch, nothing tagged
_DIVERGING: Final = Struct(">BBBiqB")  # number 0, of 13 bytes: epoch, end offset, nothing tagged
_HEAD_V4: Final = Struct(">iii")  # correlation id, throttle, topic count
_HEAD_V7: Final = Struct(">iihii")  # … error, session id, topic count
_HEAD_V12: Final = Struct(">ixihi")
_PARTITION_V4: Final = Struct(">ihqq")
_PARTITION_V5: Final = Struct(">ihqqq")
# Whole frame heads for one topic with one partition, the answer to most fetches.
_ONE_HEAD_V12: Final = Struct(">iixihiBB")
_ONE_PARTITION_V12: Final = Struct(">BihqqqBi")
_ONE_V13: Final = Struct(">iixihiB16sBihqqqBi")
_ONE_HEAD_V7: Final = Struct(">iiihiih")
_ONE_PARTITION_V11: Final = Struct(">iihqqqiii")
_ONE_PARTITION_V7: Final = Struct(">iihqqqii")
_ENDS: Final = b"\x00\x00\x00"  # no tagged fields of the partition, the topic and the response
# Size that such a frame announces, without topic names, variable lengths and records.
_ONE_BYTES_V12: Final = _ONE_HEAD_V12.size - 1 + _ONE_PARTITION_V12.size + len(_ENDS) - 4
_ONE_BYTES_V13: Final = _ONE_V13.size + len(_ENDS) - 4
_ONE_HEAD_BYTES_V7: Final = _ONE_HEAD_V7.size - 4


def _encode_unsigned(value: int) -> bytes:
    if value < 128:
        return SHORT_UNSIGNED[value]
    if value < 1 << 14:
        return bytes((value & 127 | 128, value >> 7))
    if value < 1 << 21:
        return bytes((value & 127 | 128, value >> 7 & 127 | 128, value >> 14))
    return encode_unsigned(value)


def encode_fetch_response(
    version: int,
    correlation_id: int,
    throttle_time_ms: int,
    error: int,
    session_id: int,
    topics: Sequence[TopicResponse[Slice]],
    read_committed: bool = False,
) -> list[bytes | Slice]:
    """Returns a fetch response frame (versions 4 to 17) as pieces to send one after the other.

    `topics` holds `(name or id, [(partition, error, high watermark, last stable offset, log start offset, records
    length in bytes, slice or None)])`. A slice is returned as it is and must send exactly this number of bytes; None
    sends an empty record set. Lists of aborted transactions are empty for `read_committed`, null otherwise.
    """
    if len(topics) == 1 and version >= 7:
        partitions = topics[0][1]
        if len(partitions) == 1 and partitions[0][1] == 0:
            return _encode_one_partition(
                version, correlation_id, throttle_time_ms, error, session_id, topics[0], read_committed
            )
    extras = _COMMITTED if read_committed else NO_EXTRAS
    return encode_full_fetch_response(version, correlation_id, throttle_time_ms, error, session_id, topics, extras)


class FetchExtras(NamedTuple):
    """Parts of a fetch response that most responses do not have.

    `leaders` and `diverging` (from version 12 on) are tagged fields of their partition; with `diverging` no records are
    sent. `preferred` (from version 11 on) names the replica to read from for partitions without records. `tagged` are
    the tagged fields of the whole response.
    """

    read_committed: bool = False
    aborted: Aborted = _NO_ABORTED
    leaders: Leaders = _NO_LEADERS
    diverging: Diverging = _NO_DIVERGENCE
    tagged: bytes = b"\x00"
    preferred: Preferred | None = None


NO_EXTRAS: Final = FetchExtras()
_COMMITTED: Final = FetchExtras(read_committed=True)


def encode_full_fetch_response(
    version: int,
    correlation_id: int,
    throttle_time_ms: int,
    error: int,
    session_id: int,
    topics: Sequence[TopicResponse[Slice]],
    extras: FetchExtras,
) -> list[bytes | Slice]:
    """Returns the frame as `encode_fetch_response` does, with the optional parts in `extras`."""
    read_committed, aborted, leaders, diverging, tagged, preferred = extras
    encoder = FetchResponseEncoder(version, read_committed, aborted, leaders, diverging, preferred)
    for topic, partitions in topics:
        encoder.begin_topic(topic, len(partitions))
        encoder.add(topic, partitions)
        encoder.end_topic()
    head = fetch_response_head(version, correlation_id, throttle_time_ms, error, session_id, len(topics))
    return cast("list[bytes | Slice]", encoder.finish(head, tagged))


class FetchResponseEncoder:
    """Encoder of a Fetch response to which topics and partitions are added one after the other."""

    def __init__(
        self,
        version: int,
        read_committed: bool,
        aborted: Aborted,
        leaders: Leaders,
        diverging: Diverging,
        preferred: Preferred | None = None,
    ) -> None:
        self._version = version
        self._read_committed = read_committed
        self._aborted = aborted
        self._leaders = leaders
        self._diverging = diverging
        self._preferred = preferred
        self._chunks: list[object] = []
        self._chunk: list[bytes] = []
        # Bytes before `_chunk` that are already joined.
        self._joined: list[bytes] = []
        self._total_bytes = 0

    def begin_topic(self, topic: bytes, count: int) -> None:
        """Begins a topic; its `count` partitions must be added next."""
        if self._version < _FLEXIBLE_FROM:
            self._chunk += (_SHORT.pack(len(topic)), topic, _INT.pack(count))
        elif self._version >= _TOPIC_IDS_FROM:
            self._chunk += (topic, _encode_unsigned(count + 1))
        else:
            self._chunk += (_encode_unsigned(len(topic) + 1), topic, _encode_unsigned(count + 1))

    def add(self, topic: bytes, partitions: Sequence[PartitionResponse[Slice]]) -> None:
        version, read_committed, chunk = self._version, self._read_committed, self._chunk
        is_flexible, diverging, preferred = version >= _FLEXIBLE_FROM, self._diverging, self._preferred
        for index, code, high_watermark, stable_offset, start_offset, length, records in partitions:
            if version >= 5:
                chunk.append(_PARTITION_V5.pack(index, code, high_watermark, stable_offset, start_offset))
            else:
                chunk.append(_PARTITION_V4.pack(index, code, high_watermark, stable_offset))
            replica = _NO_PREFERRED_REPLICA
            if preferred is not None and not code:
                replica = preferred.get((topic, index), _NO_PREFERRED_REPLICA)
            # A partition whose reader is directed to another replica has null, too.
            if read_committed and code not in _UNLISTED and replica == _NO_PREFERRED_REPLICA:
                chunk.append(_encode_aborted(self._aborted.get((topic, index), ()), is_flexible))
            else:
                chunk.append(_NO_LIST[is_flexible, code in _NEVER_READ])
            if version >= 11:
                chunk.append(_INT.pack(replica))
            if records is None or diverging:
                chunk.append(b"\x01" if is_flexible else _INT.pack(0))
            else:
                chunk.append(_encode_unsigned(length + 1) if is_flexible else _INT.pack(length))
                piece = b"".join(chunk) if not self._joined else b"".join([*self._joined, *chunk])
                self._chunks += (piece, records)
                self._total_bytes += len(piece) + length
                chunk = self._chunk = []
                self._joined = []
            if is_flexible:
                chunk.append(self._encode_tagged(topic, index))

    def _encode_tagged(self, topic: bytes, index: int) -> bytes:
        """Returns the tagged fields of a partition."""
        if self._diverging:
            epoch_end = self._diverging.get((topic, index))
            if epoch_end is not None:
                return _DIVERGING.pack(1, 0, 13, epoch_end[0], epoch_end[1], 0)
        if self._leaders:
            leader = self._leaders.get((topic, index))
            if leader is not None:
                return _LEADER.pack(1, 1, 9, leader[0], leader[1], 0)
        return b"\x00"

    def end_topic(self) -> None:
        if self._version >= _FLEXIBLE_FROM:
            self._chunk.append(b"\x00")

    def compact(self) -> None:
        """Joins the parts added so far, because joining a long response at its end would take long."""
        self._joined.append(b"".join(self._chunk))
        self._chunk = []

    def finish(self, head: bytes, tagged: bytes) -> list[object]:
        """Returns the frame as bytes and the added slices; `head` is from `fetch_response_head`."""
        chunks, chunk = self._chunks, self._chunk
        if self._version >= _FLEXIBLE_FROM:
            chunk.append(tagged)
        last_piece = b"".join(chunk) if not self._joined else b"".join([*self._joined, *chunk])
        if last_piece or not chunks:
            chunks.append(last_piece)
        size = _INT.pack(self._total_bytes + len(last_piece) + len(head))
        chunks[0] = size + head + cast(bytes, chunks[0])  # the first piece is never a slice
        return chunks


def fetch_response_head(
    version: int, correlation_id: int, throttle_time_ms: int, error: int, session_id: int, topic_count: int
) -> bytes:
    """Returns the part of a frame before the topics, without the size."""
    if version >= _FLEXIBLE_FROM:
        return _HEAD_V12.pack(correlation_id, throttle_time_ms, error, session_id) + _encode_unsigned(topic_count + 1)
    if version >= 7:
        return _HEAD_V7.pack(correlation_id, throttle_time_ms, error, session_id, topic_count)
    return _HEAD_V4.pack(correlation_id, throttle_time_ms, topic_count)


def _encode_aborted(transactions: Sequence[tuple[int, int]], is_flexible: bool) -> bytes:
    if is_flexible:
        return _encode_unsigned(len(transactions) + 1) + b"".join(
            _ABORTED.pack(*entry) + b"\x00" for entry in transactions
        )
    return _INT.pack(len(transactions)) + b"".join(_ABORTED.pack(*entry) for entry in transactions)


def _encode_one_partition(
    version: int,
    correlation_id: int,
    throttle_time_ms: int,
    error: int,
    session_id: int,
    topic_response: TopicResponse[Slice],
    read_committed: bool,
) -> list[bytes | Slice]:
    """Returns the frame for one topic with one partition (versions 7 to 17), read without error and without an aborted
    transaction.
    """
    topic, partitions = topic_response
    index, code, high_watermark, stable_offset, start_offset, length, records = partitions[0]
    # An empty list of aborted transactions, or null; in flexible versions the number is one more.
    aborted_count = 0 if read_committed else -1
    if records is None:
        length = 0
    if version >= _FLEXIBLE_FROM:
        size = _encode_unsigned(length + 1)
        if version >= _TOPIC_IDS_FROM:
            head = _ONE_V13.pack(
                _ONE_BYTES_V13 + len(size) + length, correlation_id, throttle_time_ms, error, session_id, 2, topic,
                2, index, code, high_watermark, stable_offset, start_offset, aborted_count + 1,
                _NO_PREFERRED_REPLICA,
            )  # fmt: skip
        else:
            name_length = _encode_unsigned(len(topic) + 1)
            head = (
                _ONE_HEAD_V12.pack(
                    _ONE_BYTES_V12 + len(name_length) + len(topic) + len(size) + length,
                    correlation_id, throttle_time_ms, error, session_id, 2, name_length[0],
                )
                + name_length[1:] + topic
                + _ONE_PARTITION_V12.pack(
                    2, index, code, high_watermark, stable_offset, start_offset, aborted_count + 1,
                    _NO_PREFERRED_REPLICA,
                )
            )  # fmt: skip
        return [head + size + _ENDS] if records is None else [head + size, records, _ENDS]
    name_bytes = len(topic)
    if version >= 11:
        tail = _ONE_PARTITION_V11.pack(
            1, index, code, high_watermark, stable_offset, start_offset, aborted_count, _NO_PREFERRED_REPLICA, length
        )
    else:
        tail = _ONE_PARTITION_V7.pack(
            1, index, code, high_watermark, stable_offset, start_offset, aborted_count, length
        )
    head = _ONE_HEAD_V7.pack(
        _ONE_HEAD_BYTES_V7 + name_bytes + len(tail) + length,
        correlation_id,
        throttle_time_ms,
        error,
        session_id,
        1,
        name_bytes,
    )
    return [head + topic + tail] if records is None else [head + topic + tail, records]
