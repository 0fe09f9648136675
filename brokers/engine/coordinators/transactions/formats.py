"""Record formats of `__transaction_state`, byte for byte as Kafka's own tools read them (TXN-2).

Keys and values are written in version 0. Values are also read in version 1, which has compact lengths and trailing
tagged fields.
"""

from __future__ import annotations

from struct import Struct
from struct import error as struct_error
from typing import Final

from brokers.contract.partitions import PartitionKey
from brokers.engine.coordinators.transactions.metadata import TransactionMetadata
from brokers.engine.coordinators.transactions.states import STORED, TransactionState
from brokers.engine.wire.varints import MalformedVarint, read_unsigned

KEY_VERSION: Final = 0
VALUE_VERSION: Final = 0
_COMPACT_VALUE_VERSION: Final = 1
_NULL: Final = -1
STRING_BYTES_MAX: Final = 32_767

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
# version, producer id, producer epoch, timeout, status
_HEAD: Final = Struct(">hqhib")
# last update, start
_TAIL: Final = Struct(">qq")


class UndecodableRecord(Exception):
    """A record that this broker cannot decode: it is damaged, or another program or release wrote it."""


def encode_key(transactional_id: str) -> bytes:
    """Returns the key of a transactional id's record. Raises ValueError for an id longer than STRING_BYTES_MAX."""
    return _INT16.pack(KEY_VERSION) + _encode_string(transactional_id)


def decode_key(key: bytes) -> str:
    """Returns the transactional id in a key. Raises UndecodableRecord."""
    try:
        (version,) = _INT16.unpack_from(key)
        if version != KEY_VERSION:
            raise UndecodableRecord(f"unknown version {version} of a transaction's key")
        (length,) = _INT16.unpack_from(key, _INT16.size)
        if length < 0 or 2 * _INT16.size + length != len(key):
            raise UndecodableRecord("the length field of a transaction's key does not match its length")
        return bytes(key[2 * _INT16.size :]).decode()
    except (struct_error, UnicodeDecodeError) as error:
        raise UndecodableRecord(f"malformed key of a transaction: {error}") from error


def encode_value(metadata: TransactionMetadata) -> bytes:
    """Returns the value of a transactional id's record. Its partitions are null in state Empty only (TXN-2)."""
    parts = [
        _HEAD.pack(
            VALUE_VERSION, metadata.producer_id, metadata.producer_epoch, metadata.timeout_ms, int(metadata.state)
        )
    ]
    if metadata.state is TransactionState.EMPTY:
        parts.append(_INT32.pack(_NULL))
    else:
        by_topic: dict[str, list[int]] = {}
        for topic, index in sorted(metadata.partitions):
            by_topic.setdefault(topic, []).append(index)
        parts.append(_INT32.pack(len(by_topic)))
        for topic, indexes in by_topic.items():
            parts.append(_encode_string(topic))
            parts.append(Struct(f">i{len(indexes)}i").pack(len(indexes), *indexes))
    parts.append(_TAIL.pack(metadata.last_update_ms, metadata.start_ms))
    return b"".join(parts)


def decode_value(transactional_id: str, value: bytes) -> TransactionMetadata:
    """Returns the metadata in the value of a record. Raises UndecodableRecord."""
    try:
        version, producer_id, producer_epoch, timeout_ms, status = _HEAD.unpack_from(value)
        if version == VALUE_VERSION:
            partitions, position = _read_partitions(value, _HEAD.size)
        elif version == _COMPACT_VALUE_VERSION:
            partitions, position = _read_compact_partitions(value, _HEAD.size)
        else:
            raise UndecodableRecord(f"unknown version {version} of a transaction's value")
        if status not in STORED:
            raise UndecodableRecord(f"unknown status {status} in a transaction's value")
        last_update_ms, start_ms = _TAIL.unpack_from(value, position)
    except (struct_error, MalformedVarint, UnicodeDecodeError) as error:
        raise UndecodableRecord(f"malformed value of a transaction: {error}") from error
    return TransactionMetadata(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        timeout_ms=timeout_ms,
        state=TransactionState(status),
        partitions=partitions,
        last_update_ms=last_update_ms,
        start_ms=start_ms,
    )


def _encode_string(text: str) -> bytes:
    raw = text.encode()
    if len(raw) > STRING_BYTES_MAX:
        raise ValueError(f"{len(raw)} bytes do not fit into a string")
    return _INT16.pack(len(raw)) + raw


def _read_partitions(value: bytes, position: int) -> tuple[frozenset[PartitionKey], int]:
    (topics,) = _INT32.unpack_from(value, position)
    position += _INT32.size
    result: list[PartitionKey] = []
    for _ in range(topics):
        (length,) = _INT16.unpack_from(value, position)
        topic, position = _read_text(value, position + _INT16.size, length)
        (count,) = _INT32.unpack_from(value, position)
        position = _read_indexes(value, position + _INT32.size, topic, count, result)
    return frozenset(result), position


def _read_compact_partitions(value: bytes, position: int) -> tuple[frozenset[PartitionKey], int]:
    """Reads the partitions of a version 1 value.

    Lengths are stored plus one, so that 0 is null; tagged fields follow each topic.
    """
    topics, position = read_unsigned(value, position, len(value))
    result: list[PartitionKey] = []
    for _ in range(topics - 1):
        length, position = read_unsigned(value, position, len(value))
        topic, position = _read_text(value, position, length - 1)
        count, position = read_unsigned(value, position, len(value))
        position = _skip_tags(value, _read_indexes(value, position, topic, count - 1, result))
    return frozenset(result), position


def _read_text(value: bytes, position: int, length: int) -> tuple[str, int]:
    if not 0 <= length <= len(value) - position:
        raise UndecodableRecord(f"invalid length {length} of a topic name in a transaction's value")
    return value[position : position + length].decode(), position + length


def _read_indexes(value: bytes, position: int, topic: str, count: int, result: list[PartitionKey]) -> int:
    if not 0 <= count <= (len(value) - position) // _INT32.size:
        raise UndecodableRecord(f"invalid number of partitions ({count}) in a transaction's value")
    result += [(topic, index) for (index,) in _INT32.iter_unpack(value[position : position + count * _INT32.size])]
    return position + count * _INT32.size


def _skip_tags(value: bytes, position: int) -> int:
    tags, position = read_unsigned(value, position, len(value))
    for _ in range(tags):
        _, position = read_unsigned(value, position, len(value))
        length, position = read_unsigned(value, position, len(value))
        position += length
    return position
