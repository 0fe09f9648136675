"""Confluent's wire format: a zero byte, the id of a schema in a registry, and the value. Pure."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from instances.messages.schemas.limits import SCHEMA_DEPTH_MAX
from instances.messages.schemas.work import DAMAGED, Undecodable

_HEADER = struct.Struct(">bI")
MAGIC: Final = 0
VARINT_BYTES_MAX: Final = 10


@dataclass(frozen=True, slots=True)
class Framed:
    """Schema id in the header of a value, and the bytes behind the header."""

    schema_id: int
    payload: bytes


def split(raw: bytes) -> Framed | None:
    """Returns the parts of a framed value; None for bytes that do not begin like one."""
    if len(raw) < _HEADER.size or raw[0] != MAGIC:
        return None
    _, schema_id = _HEADER.unpack_from(raw)
    return Framed(schema_id, raw[_HEADER.size :])


def message_indexes(payload: bytes) -> tuple[tuple[int, ...], bytes]:
    """Returns the position of a message's type in the Protobuf file, each index inside the message before, and the
    bytes of the message. Raises `Undecodable`.

    A single zero byte stands for the first type of the file.
    """
    count, at = _zigzag(payload, 0)
    if count == 0:
        return (0,), payload[at:]
    if not 0 < count <= SCHEMA_DEPTH_MAX:
        raise Undecodable(DAMAGED)
    indexes = []
    for _ in range(count):
        index, at = _zigzag(payload, at)
        indexes.append(index)
    return tuple(indexes), payload[at:]


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Returns an unsigned varint and the position behind it. Raises `Undecodable`."""
    value = shift = 0
    first = at
    while at < len(data) and at - first < VARINT_BYTES_MAX:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
    raise Undecodable(DAMAGED)


def zigzag(value: int) -> int:
    """Returns the signed number that a varint in ZigZag encoding stands for."""
    return (value >> 1) ^ -(value & 1)


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    value, at = varint(data, at)
    return zigzag(value), at
