"""Values of Protocol Buffers as JSON, decoded within limits. Fields keep the names that they have in the file. Pure."""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from instances.messages.exact_json import ExactNumber, Members
from instances.messages.schemas import limits
from instances.messages.schemas.protobuf_types import (
    ENUM,
    FIXED_32,
    FIXED_64,
    MESSAGE,
    WELL_KNOWN,
    Field,
    MessageType,
    Types,
)
from instances.messages.schemas.wire_format import varint, zigzag
from instances.messages.schemas.work import DAMAGED, TOO_LARGE, DecodeBudget, Undecodable

# Wire types.
VARINT, FIXED64, BYTES, GROUP, END_GROUP, FIXED32 = range(6)
_STRUCTS: Final = {
    "fixed32": struct.Struct("<I"), "sfixed32": struct.Struct("<i"), "float": struct.Struct("<f"),
    "fixed64": struct.Struct("<Q"), "sfixed64": struct.Struct("<q"), "double": struct.Struct("<d"),
}  # fmt: skip
_UNPACKED_KINDS: Final = ("string", "bytes", MESSAGE)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_WRAPPED_TYPES: Final = ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
_WRAPPERS: Final = frozenset(f"{WELL_KNOWN}{name}Value" for name in _WRAPPED_TYPES)
# Field numbers of the entries of a map. The only field of a wrapper has the number of KEY, too.
KEY, MAP_VALUE = 1, 2
NANOS_PER_S: Final = 1_000_000_000


def decode(types: Types, message: MessageType, payload: bytes, budget: DecodeBudget | None = None) -> Members:
    """Returns the message as parsed JSON. Raises `Undecodable`.

    Bytes without any known field are not of this schema, and raise it, too.
    """
    if len(payload) > limits.DECODED_BYTES_MAX:
        raise Undecodable(TOO_LARGE)
    decoder = _Decoder(types, budget or DecodeBudget())
    result = decoder.message(message, payload, 0)
    if payload and not result:
        raise Undecodable(DAMAGED)
    return result


class _Decoder:
    def __init__(self, types: Types, budget: DecodeBudget) -> None:
        self._types = types
        self._budget = budget

    def message(self, message: MessageType, data: bytes, depth: int) -> Members:
        self._budget.spend(1, depth)
        values_by_number: dict[int, list[Any]] = {}
        at = 0
        while at < len(data):
            tag, at = varint(data, at)
            field = message.fields.get(tag >> 3)
            if field is None:
                self._budget.spend(0, depth)
                at = _skip(data, at, tag)
                continue
            values, at = self._values(field, tag & 7, data, at, depth)
            earlier = values_by_number.setdefault(field.number, [])
            if not field.is_repeated and field.kind != MESSAGE:
                earlier.clear()
            earlier += values
        members = Members()
        for number in sorted(values_by_number):
            field = message.fields[number]
            self._budget.spend(len(field.name), depth)
            members.append((field.name, self._field_value(field, values_by_number[number], depth)))
        return members

    def _field_value(self, field: Field, values: list[Any], depth: int) -> Any:
        """Returns the value of one field. Several parts of a message field that is not repeated are merged, as the
        format demands.
        """
        if field.kind != MESSAGE:
            return values if field.is_repeated else values[-1]
        message = self._types.messages[field.type_name]
        if not field.is_repeated:
            return self._well_known_value(message, self.message(message, b"".join(values), depth + 1))
        if message.is_map_entry:
            entries = [dict(self.message(message, part, depth + 1)) for part in values]
            key, value = message.fields[KEY], message.fields[MAP_VALUE]
            return Members(
                (_map_key(entry.get("key", _default_value(key))), entry.get("value", _default_value(value)))
                for entry in entries
            )
        return [self._well_known_value(message, self.message(message, part, depth + 1)) for part in values]

    def _values(self, field: Field, wire: int, data: bytes, at: int, depth: int) -> tuple[list[Any], int]:
        """Returns the values, one or those of a packed list, and the position behind them. Raises `Undecodable` for a
        wire type that the field cannot have.
        """
        if wire == BYTES:
            length, at = varint(data, at)
            end = at + length
            if end > len(data):
                raise Undecodable(DAMAGED)
            part = data[at:end]
            if field.kind in _UNPACKED_KINDS:
                return [self._bytes(field, part, depth)], end
            return self._packed(field, part, depth), end
        value, at = self._scalar(field, wire, data, at, depth)
        return [value], at

    def _packed(self, field: Field, part: bytes, depth: int) -> list[Any]:
        wire = FIXED32 if field.kind in FIXED_32 else FIXED64 if field.kind in FIXED_64 else VARINT
        values = []
        at = 0
        while at < len(part):
            value, at = self._scalar(field, wire, part, at, depth)
            values.append(value)
        return values

    def _bytes(self, field: Field, part: bytes, depth: int) -> Any:
        if field.kind == MESSAGE:
            self._budget.spend(0, depth)
            return part
        self._budget.spend(len(part), depth)
        if field.kind == "bytes":
            return base64.b64encode(part).decode()
        try:
            return part.decode()
        except UnicodeDecodeError:
            raise Undecodable(DAMAGED) from None

    def _scalar(self, field: Field, wire: int, data: bytes, at: int, depth: int) -> tuple[Any, int]:
        self._budget.spend(1, depth)
        if wire == VARINT and (field.kind in _FROM_VARINT or field.kind == ENUM):
            value, at = varint(data, at)
            if field.kind == ENUM:
                return self._enum(field, value, depth), at
            return _FROM_VARINT[field.kind](value), at
        struct_ = _STRUCTS.get(field.kind)
        if struct_ is None or wire != (FIXED32 if struct_.size == 4 else FIXED64) or at + struct_.size > len(data):
            raise Undecodable(DAMAGED)
        (value,) = struct_.unpack_from(data, at)
        return _number(field.kind, value), at + struct_.size

    def _enum(self, field: Field, value: int, depth: int) -> Any:
        number = _signed(value, 32)
        name = self._types.enums[field.type_name].get(number)
        if name is None:
            return ExactNumber(str(number))
        self._budget.spend(len(name), depth)
        return name

    def _well_known_value(self, message: MessageType, members: Members) -> Any:
        """Returns timestamps, durations and wrapped values as the JSON mapping of Protocol Buffers writes them, and
        other messages unchanged.
        """
        if not message.name.startswith(WELL_KNOWN):
            return members
        values = dict(members)
        if message.name in _WRAPPERS:
            return values.get("value", _default_value(message.fields[KEY]))
        seconds, nanos = int(values.get("seconds", 0)), int(values.get("nanos", 0))
        if message.name == f"{WELL_KNOWN}Timestamp":
            return _timestamp(seconds, nanos) or members
        if message.name == f"{WELL_KNOWN}Duration" and 0 <= nanos < NANOS_PER_S:
            return f"{seconds}.{nanos:09}s" if nanos else f"{seconds}s"
        return members


def _skip(data: bytes, at: int, tag: int) -> int:
    """Returns the position behind the value of an unknown field."""
    wire = tag & 7
    if wire == VARINT:
        return varint(data, at)[1]
    if wire == BYTES:
        length, at = varint(data, at)
        end = at + length
    elif wire in (FIXED64, FIXED32):
        end = at + (8 if wire == FIXED64 else 4)
    else:
        raise Undecodable(DAMAGED)
    if end > len(data):
        raise Undecodable(DAMAGED)
    return end


def _signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


_FROM_VARINT: Final[dict[str, Callable[[int], Any]]] = {
    "int32": lambda value: ExactNumber(str(_signed(value, 32))),
    "int64": lambda value: ExactNumber(str(_signed(value, 64))),
    "uint32": lambda value: ExactNumber(str(value & 0xFFFFFFFF)),
    "uint64": lambda value: ExactNumber(str(value)),
    "sint32": lambda value: ExactNumber(str(zigzag(value & 0xFFFFFFFF))),
    "sint64": lambda value: ExactNumber(str(zigzag(value))),
    "bool": bool,
}


def _number(kind: str, value: Any) -> Any:
    if isinstance(value, int):
        return ExactNumber(str(value))
    if not math.isfinite(value):
        return str(value)
    if kind == "double":
        return ExactNumber(repr(value))
    struct_ = _STRUCTS["float"]
    texts = (f"{value:.{digits}g}" for digits in range(6, 10))
    return ExactNumber(
        next((text for text in texts if struct_.unpack(struct_.pack(float(text)))[0] == value), repr(value))
    )


def _default_value(field: Field) -> Any:
    """Returns the default of a field, which is shown if a map entry or a wrapper does not contain it."""
    if field.kind in ("string", "bytes"):
        return ""
    if field.kind == MESSAGE:
        return Members()
    return False if field.kind == "bool" else ExactNumber("0")


def _map_key(key: Any) -> str:
    """Returns a map key as text, since member names of JSON objects are texts."""
    if isinstance(key, bool):
        return "true" if key else "false"
    return str(key)


def _timestamp(seconds: int, nanos: int) -> str | None:
    try:
        instant = _EPOCH + timedelta(seconds=seconds)
    except OverflowError:
        return None
    if instant.year < 1000 or not 0 <= nanos < NANOS_PER_S:
        return None
    return f"{instant:%Y-%m-%dT%H:%M:%S}" + (f".{nanos:09}Z" if nanos else "Z")
