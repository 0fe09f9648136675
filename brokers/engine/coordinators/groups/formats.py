"""Record formats of `__consumer_offsets`, byte for byte as Kafka's own tools read them (GRP-24).

A key begins with its version: 0 and 1 are offsets, 2 is a group; values have versions of their own. Records are written
as Kafka 3.9 writes them (offsets v3, or v1 when the client gave a retention; groups v3). The versions of every Kafka up
to 3.9 are read.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from struct import error as struct_error
from typing import Final, NamedTuple, TypeVar

from brokers.engine.wire.varints import MalformedVarint, read_unsigned

OFFSET_KEY_VERSION: Final = 1
GROUP_KEY_VERSION: Final = 2
OFFSET_VALUE_VERSION: Final = 3
# The only version with an expiry time.
OFFSET_VALUE_VERSION_EXPIRING: Final = 1
GROUP_VALUE_VERSION: Final = 3
VALUE_VERSION_MAX: Final = 4
FLEXIBLE_FROM: Final = 4

NO_TIMESTAMP: Final = -1
# Longest string in a record; longer ids are refused before they are encoded.
TEXT_BYTES_MAX: Final = (1 << 15) - 1
NO_LEADER_EPOCH: Final = -1

T = TypeVar("T")

_SHORT = Struct(">h")
_INT = Struct(">i")
_LONG = Struct(">q")
_TWO_SHORTS = Struct(">hh")
_OFFSET_V3_HEAD = Struct(">hqih")
_OFFSET_V1_HEAD = Struct(">hqh")
_TWO_LONGS = Struct(">qq")
_TWO_INTS = Struct(">ii")
_OFFSET_KEY_HEADS: Final = (_SHORT.pack(OFFSET_KEY_VERSION), _SHORT.pack(0))
_OFFSET_VALUE_HEAD: Final = _SHORT.pack(OFFSET_VALUE_VERSION)


class UnknownFormat(ValueError):
    """The record has an unknown version: another program or a later release wrote it (GRP-25)."""


class UnreadableRecord(ValueError):
    """The record has a known version, and its bytes do not match that version's format."""


class OffsetKey(NamedTuple):
    group: str
    topic: str
    partition: int


class GroupKey(NamedTuple):
    group: str


class OffsetValue(NamedTuple):
    """Value of an offset's record; `expire_timestamp_ms` is -1 unless the client gave one (OffsetCommit v2-4)."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_TIMESTAMP


class MemberRecord(NamedTuple):
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupRecord(NamedTuple):
    """Value of a group's record.

    `protocol_type` is "" for a group that never had members; `state_timestamp_ms` is the time of the last state change.
    """

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp_ms: int
    members: tuple[MemberRecord, ...]


def encode_offset_key(group: str, topic: str, partition: int) -> bytes:
    return encode_offset_key_prefix(group) + _encode_text(topic) + _INT.pack(partition)


def encode_offset_key_prefix(group: str) -> bytes:
    """Returns the common prefix of the keys of a group's offsets."""
    return _SHORT.pack(OFFSET_KEY_VERSION) + _encode_text(group)


def encode_group_key(group: str) -> bytes:
    return _SHORT.pack(GROUP_KEY_VERSION) + _encode_text(group)


def encode_offset_value(value: OffsetValue) -> bytes:
    metadata = value.metadata.encode()
    if value.expire_timestamp_ms != NO_TIMESTAMP:
        head = _OFFSET_V1_HEAD.pack(OFFSET_VALUE_VERSION_EXPIRING, value.offset, len(metadata))
        return head + metadata + _TWO_LONGS.pack(value.commit_timestamp_ms, value.expire_timestamp_ms)
    head = _OFFSET_V3_HEAD.pack(OFFSET_VALUE_VERSION, value.offset, value.leader_epoch, len(metadata))
    return head + metadata + _LONG.pack(value.commit_timestamp_ms)


def encode_group_value(group: GroupRecord) -> bytes:
    parts = [
        _SHORT.pack(GROUP_VALUE_VERSION),
        _encode_text(group.protocol_type),
        _INT.pack(group.generation),
        _encode_nullable_text(group.protocol),
        _encode_nullable_text(group.leader),
        _LONG.pack(group.state_timestamp_ms),
        _INT.pack(len(group.members)),
    ]
    for member in group.members:
        parts += (
            _encode_text(member.member_id),
            _encode_nullable_text(member.group_instance_id),
            _encode_text(member.client_id),
            _encode_text(member.client_host),
            _TWO_INTS.pack(member.rebalance_timeout_ms, member.session_timeout_ms),
            _INT.pack(len(member.subscription)),
            member.subscription,
            _INT.pack(len(member.assignment)),
            member.assignment,
        )
    return b"".join(parts)


def read_key(key: bytes) -> OffsetKey | GroupKey:
    """Decodes a key. Raises UnknownFormat for an unknown version, UnreadableRecord for a truncated or overlong key."""
    if key[:2] in _OFFSET_KEY_HEADS:
        return _read_offset_key(key)
    version = _read_version(key)
    if version == GROUP_KEY_VERSION:
        return _decode(key, lambda reader: GroupKey(reader.text()))
    raise UnknownFormat(f"unknown key version {version}")


def _read_offset_key(key: bytes) -> OffsetKey:
    """Decodes an offset's key without a `_Reader`, for speed: a group may have a hundred thousand of them."""
    try:
        _, group_bytes = _TWO_SHORTS.unpack_from(key, 0)
        topic_begin = 6 + group_bytes
        (topic_bytes,) = _SHORT.unpack_from(key, topic_begin - 2)
        end = topic_begin + topic_bytes
        (partition,) = _INT.unpack_from(key, end)
        if group_bytes < 0 or topic_bytes < 0 or len(key) != end + 4:
            raise UnreadableRecord("the lengths in an offset's key do not match its size")
        return OffsetKey(str(key[4 : topic_begin - 2], "utf-8"), str(key[topic_begin:end], "utf-8"), partition)
    except (struct_error, UnicodeDecodeError) as error:
        raise UnreadableRecord("an offset's key is truncated or not UTF-8") from error


def read_offset_value(value: bytes) -> OffsetValue:
    """Decodes the value of an offset's record. Raises UnknownFormat, UnreadableRecord."""
    if value[:2] == _OFFSET_VALUE_HEAD:
        return _read_offset_v3(value)
    version = _read_known_version(value, "offsets")

    def read(reader: _Reader) -> OffsetValue:
        offset = reader.int64()
        leader_epoch = reader.int32() if version >= 3 else NO_LEADER_EPOCH
        metadata = reader.text()
        commit_ms = reader.int64()
        expire_ms = reader.int64() if version == OFFSET_VALUE_VERSION_EXPIRING else NO_TIMESTAMP
        reader.skip_tagged_fields()
        return OffsetValue(offset, leader_epoch, metadata, commit_ms, expire_ms)

    return _decode(value, read, flexible=version >= FLEXIBLE_FROM)


def _read_offset_v3(value: bytes) -> OffsetValue:
    try:
        _, offset, leader_epoch, metadata_bytes = _OFFSET_V3_HEAD.unpack_from(value, 0)
        end = _OFFSET_V3_HEAD.size + metadata_bytes
        if metadata_bytes < 0 or len(value) != end + 8:
            raise UnreadableRecord("the lengths in an offset's value do not match its size")
        metadata = str(value[_OFFSET_V3_HEAD.size : end], "utf-8") if metadata_bytes else ""
        return OffsetValue(offset, leader_epoch, metadata, _LONG.unpack_from(value, end)[0])
    except (struct_error, UnicodeDecodeError) as error:
        raise UnreadableRecord("an offset's value is truncated or not UTF-8") from error


def read_group_value(value: bytes) -> GroupRecord:
    """Decodes the value of a group's record. Raises UnknownFormat, UnreadableRecord."""
    version = _read_known_version(value, "groups")

    def read_member(reader: _Reader) -> MemberRecord:
        member_id = reader.text()
        group_instance_id = reader.nullable_text() if version >= 3 else None
        client_id, client_host = reader.text(), reader.text()
        rebalance_timeout_ms = reader.int32() if version >= 1 else None
        session_timeout_ms = reader.int32()
        subscription, assignment = reader.blob(), reader.blob()
        reader.skip_tagged_fields()
        if rebalance_timeout_ms is None:
            # Version 0 has a single time-out for both (GRP-9).
            rebalance_timeout_ms = session_timeout_ms
        return MemberRecord(
            member_id,
            group_instance_id,
            client_id,
            client_host,
            rebalance_timeout_ms,
            session_timeout_ms,
            subscription,
            assignment,
        )

    def read(reader: _Reader) -> GroupRecord:
        protocol_type, generation = reader.text(), reader.int32()
        protocol, leader = reader.nullable_text(), reader.nullable_text()
        state_timestamp_ms = reader.int64() if version >= 2 else NO_TIMESTAMP
        members = tuple(read_member(reader) for _ in range(reader.count()))
        reader.skip_tagged_fields()
        return GroupRecord(protocol_type, generation, protocol, leader, state_timestamp_ms, members)

    return _decode(value, read, flexible=version >= FLEXIBLE_FROM)


class _Reader:
    """Reader of a record's fields in order. Truncated data raises struct_error, IndexError, MalformedVarint or
    UnreadableRecord.
    """

    def __init__(self, data: bytes, flexible: bool) -> None:
        self.data = data
        self.position = _SHORT.size
        self.flexible = flexible

    def int32(self) -> int:
        self.position += 4
        value: int = _INT.unpack_from(self.data, self.position - 4)[0]
        return value

    def int64(self) -> int:
        self.position += 8
        value: int = _LONG.unpack_from(self.data, self.position - 8)[0]
        return value

    def count(self) -> int:
        """Reads the length of an array; more elements than bytes left are an error."""
        count = self._length(_INT)
        if not 0 <= count <= len(self.data) - self.position:
            raise UnreadableRecord("an array has more elements than bytes")
        return count

    def text(self) -> str:
        result = self.nullable_text()
        if result is None:
            raise UnreadableRecord("a required string is null")
        return result

    def nullable_text(self) -> str | None:
        length = self._length(_SHORT)
        return None if length < 0 else str(self._take(length), "utf-8")

    def blob(self) -> bytes:
        return self._take(self._length(_INT))

    def skip_tagged_fields(self) -> None:
        """Skips the tagged fields: this release knows none, and readers may ignore those of later releases."""
        if not self.flexible:
            return
        for _ in range(self._varint()):
            self._varint()
            self._take(self._varint())

    def _length(self, classic: Struct) -> int:
        if self.flexible:
            return self._varint() - 1
        self.position += classic.size
        length: int = classic.unpack_from(self.data, self.position - classic.size)[0]
        return length

    def _varint(self) -> int:
        value, self.position = read_unsigned(self.data, self.position, len(self.data))
        return value

    def _take(self, length: int) -> bytes:
        start = self.position
        if not 0 <= length <= len(self.data) - start:
            raise UnreadableRecord("a field reaches past the end of the record")
        self.position += length
        return self.data[start : self.position]


def _decode(data: bytes, read: Callable[[_Reader], T], flexible: bool = False) -> T:
    reader = _Reader(data, flexible)
    try:
        result = read(reader)
    except (struct_error, IndexError, MalformedVarint, UnicodeDecodeError) as error:
        raise UnreadableRecord("a record of the offsets topic is truncated or malformed") from error
    if reader.position != len(data):
        raise UnreadableRecord("there are bytes after a record's last field")
    return result


def _read_version(data: bytes) -> int:
    if len(data) < _SHORT.size:
        raise UnreadableRecord("the record is too short to have a version")
    version: int = _SHORT.unpack_from(data, 0)[0]
    return version


def _read_known_version(value: bytes, record_kind: str) -> int:
    version = _read_version(value)
    if not 0 <= version <= VALUE_VERSION_MAX:
        raise UnknownFormat(f"unknown value version {version} of {record_kind}")
    return version


def _encode_text(text: str) -> bytes:
    data = text.encode()
    return _SHORT.pack(len(data)) + data


def _encode_nullable_text(text: str | None) -> bytes:
    return _SHORT.pack(-1) if text is None else _encode_text(text)
