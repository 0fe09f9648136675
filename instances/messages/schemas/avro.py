"""Avro: schemas checked by fastavro, and values decoded within limits. Pure.

fastavro decodes values in C and without a bound: a few bytes can encode a list of millions of nulls, and a record that
contains itself crashes the process. So values are decoded here.
"""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal
from typing import Any, Final

from instances.messages.exact_json import ExactNumber, Members
from instances.messages.schemas import limits
from instances.messages.schemas.wire_format import varint, zigzag
from instances.messages.schemas.work import DAMAGED, TOO_LARGE, DecodeBudget, Undecodable, WrongSchema

_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_INT_MIN, _INT_MAX = -(2**31), 2**31 - 1
PRIMITIVES: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
UNITS_PER_S: Final = {"timestamp-millis": 1_000, "timestamp-micros": 1_000_000, "timestamp-nanos": 1_000_000_000}
DECIMAL_BYTES_MAX: Final = 256
DECIMAL_SCALE_MAX: Final = 1_000


@dataclass(slots=True)
class AvroType:
    """One type. `fields` and `branches` are filled in after its creation, because types may contain themselves."""

    kind: str
    logical: str = ""
    size: int = 0
    scale: int = 0
    symbols: tuple[str, ...] = ()
    fields: list[tuple[str, AvroType]] = field(default_factory=list)
    branches: list[AvroType] = field(default_factory=list)


class AvroSchema:
    """Decodes values of one schema."""

    def __init__(self, root: AvroType) -> None:
        self._root = root

    def decode(self, payload: bytes) -> Any:
        """Returns the value as parsed JSON. Raises `Undecodable`, also if there are bytes behind the value."""
        reader = _Reader(payload)
        value = reader.read(self._root, 0)
        if reader.at != len(payload):
            raise Undecodable(DAMAGED)
        return value


def parse(text: str) -> AvroSchema:
    """Returns the schema. Raises `WrongSchema`."""
    if len(text) > limits.SCHEMA_CHARS_MAX:
        raise WrongSchema(f"A schema has at most {limits.SCHEMA_CHARS_MAX} characters.")
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError):
        raise WrongSchema("A schema of Avro is JSON.") from None
    if not isinstance(schema, dict | list | str):
        raise WrongSchema("A schema of Avro is an object, a list or the name of a type.")
    _require_small(schema)
    return AvroSchema(_Compiler().compile(_checked(schema)))


def _checked(schema: Any) -> Any:
    from fastavro import parse_schema
    from fastavro.schema import SchemaParseException, UnknownType

    try:
        return parse_schema(schema)
    except UnknownType as refusal:
        raise WrongSchema(f"There is no type {str(refusal.name)[:200]}.") from None
    except (SchemaParseException, ValueError, TypeError, KeyError, AttributeError, RecursionError) as refusal:
        raise WrongSchema(f"That is no schema of Avro: {str(refusal)[:200]}") from None


def _require_small(schema: Any) -> None:
    """Raises `WrongSchema` for too many or too deeply nested values, before the schema is traversed by recursion."""
    count = 0
    level = [schema]
    for _ in range(2 * limits.SCHEMA_DEPTH_MAX):
        count += len(level)
        level = [
            inner
            for value in level
            for inner in (value.values() if isinstance(value, dict) else value if isinstance(value, list) else ())
        ]
        if count > 4 * limits.SCHEMA_TYPES_MAX:
            raise WrongSchema(f"A schema has at most {limits.SCHEMA_TYPES_MAX} types and fields.")
        if not level:
            return
    raise WrongSchema(f"A schema is nested at most {limits.SCHEMA_DEPTH_MAX} times.")


class _Compiler:
    """Compiles a schema parsed by fastavro, in which names are full names, into types."""

    def __init__(self) -> None:
        self._named_types: dict[str, AvroType] = {}
        self._count = 0

    def compile(self, schema: Any) -> AvroType:
        self._count += 1
        if self._count > limits.SCHEMA_TYPES_MAX:
            raise WrongSchema(f"A schema has at most {limits.SCHEMA_TYPES_MAX} types and fields.")
        if isinstance(schema, list):
            return AvroType("union", branches=[self.compile(branch) for branch in schema])
        if isinstance(schema, str):
            return self._named_types[schema] if schema in self._named_types else self._primitive(schema, {})
        kind = schema["type"]
        if isinstance(kind, dict | list):
            return self.compile(kind)
        if kind in ("array", "map"):
            return AvroType(kind, branches=[self.compile(schema["items" if kind == "array" else "values"])])
        if kind in ("record", "error"):
            record = self._named_types[schema["name"]] = AvroType("record")
            record.fields = [(entry["name"], self.compile(entry["type"])) for entry in schema["fields"]]
            return record
        if kind == "enum":
            self._named_types[schema["name"]] = AvroType("enum", symbols=tuple(schema["symbols"]))
            return self._named_types[schema["name"]]
        if kind == "fixed":
            size = schema["size"]
            if not isinstance(size, int) or isinstance(size, bool) or size < 0:
                raise WrongSchema("The size of a fixed type is a number from 0 on.")
            fixed = AvroType("fixed", logical=str(schema.get("logicalType", "")), size=size, scale=_scale(schema))
            self._named_types[schema["name"]] = fixed
            return fixed
        return self._primitive(kind, schema)

    def _primitive(self, kind: str, schema: Any) -> AvroType:
        if kind in self._named_types:
            return self._named_types[kind]
        if kind not in PRIMITIVES:
            raise WrongSchema(f"There is no type {kind[:200]}.")
        return AvroType(kind, logical=str(schema.get("logicalType", "")), scale=_scale(schema))


def _scale(schema: Any) -> int:
    scale = schema.get("scale", 0)
    return scale if isinstance(scale, int) and 0 <= scale <= DECIMAL_SCALE_MAX else 0


class _Reader:
    """Decodes one value from its bytes; `at` is the position in them. Each method reads a value of one kind of type."""

    def __init__(self, data: bytes) -> None:
        if len(data) > limits.DECODED_BYTES_MAX:
            raise Undecodable(TOO_LARGE)
        self._data = data
        self._budget = DecodeBudget()
        self.at = 0

    def read(self, type_: AvroType, depth: int) -> Any:
        self._budget.spend(1, depth)
        return _READERS[type_.kind](self, type_, depth)

    def null(self, _type_: AvroType, _depth: int) -> None:
        return None

    def boolean(self, _type_: AvroType, _depth: int) -> bool:
        byte = self._take(1)[0]
        if byte > 1:
            raise Undecodable(DAMAGED)
        return byte == 1

    def number(self, type_: AvroType, _depth: int) -> Any:
        value = self._long()
        if type_.kind == "int" and not _INT_MIN <= value <= _INT_MAX:
            raise Undecodable(DAMAGED)
        return _instant_text(value, type_.logical) or ExactNumber(str(value))

    def floating(self, type_: AvroType, _depth: int) -> Any:
        form = _FLOAT if type_.kind == "float" else _DOUBLE
        (value,) = form.unpack(self._take(form.size))
        if not math.isfinite(value):
            return str(value)
        return ExactNumber(repr(value) if type_.kind == "double" else _shortest(value))

    def raw(self, type_: AvroType, _depth: int) -> Any:
        return self._bytes_as_json(self._take(self._length()), type_)

    def fixed(self, type_: AvroType, _depth: int) -> Any:
        return self._bytes_as_json(self._take(type_.size), type_)

    def string(self, _type_: AvroType, depth: int) -> str:
        try:
            text = self._take(self._length()).decode()
        except UnicodeDecodeError:
            raise Undecodable(DAMAGED) from None
        self._budget.spend(len(text), depth)
        return text

    def enum(self, type_: AvroType, depth: int) -> str:
        symbol = self._choice(type_.symbols)
        self._budget.spend(len(symbol), depth)
        return str(symbol)

    def union(self, type_: AvroType, depth: int) -> Any:
        return self.read(self._choice(type_.branches), depth + 1)

    def record(self, type_: AvroType, depth: int) -> Members:
        members = Members()
        for name, inner in type_.fields:
            self._budget.spend(len(name), depth)
            members.append((name, self.read(inner, depth + 1)))
        return members

    def array(self, type_: AvroType, depth: int) -> list[Any]:
        elements: list[Any] = []
        while count := self._block():
            elements.extend(self.read(type_.branches[0], depth + 1) for _ in range(count))
        return elements

    def map(self, type_: AvroType, depth: int) -> Members:
        members = Members()
        while count := self._block():
            for _ in range(count):
                name = self.string(type_, depth)
                members.append((name, self.read(type_.branches[0], depth + 1)))
        return members

    def _block(self) -> int:
        """Returns the number of entries of the next block, 0 behind the last one."""
        count = self._long()
        if count < 0:
            self._long()  # size of the block in bytes
            count = -count
        return count

    def _choice(self, choices: Any) -> Any:
        index = self._long()
        if not 0 <= index < len(choices):
            raise Undecodable(DAMAGED)
        return choices[index]

    def _length(self) -> int:
        length = self._long()
        if length < 0:
            raise Undecodable(DAMAGED)
        return length

    def _long(self) -> int:
        value, self.at = varint(self._data, self.at)
        return zigzag(value)

    def _take(self, count: int) -> bytes:
        end = self.at + count
        if end > len(self._data):
            raise Undecodable(DAMAGED)
        part = self._data[self.at : end]
        self.at = end
        return part

    def _bytes_as_json(self, raw: bytes, type_: AvroType) -> Any:
        """Returns a decimal as a number, all other bytes as base64."""
        self._budget.spend(len(raw) * 4 // 3, 0)
        if type_.logical == "decimal" and len(raw) <= DECIMAL_BYTES_MAX:
            unscaled = Decimal(int.from_bytes(raw, "big", signed=True))
            context = Context(prec=4 * DECIMAL_BYTES_MAX + DECIMAL_SCALE_MAX)
            return ExactNumber(format(unscaled.scaleb(-type_.scale, context), "f"))
        return base64.b64encode(raw).decode()


def _shortest(value: float) -> str:
    """Returns the shortest text that is parsed as this number of 32 bits."""
    texts = (f"{value:.{digits}g}" for digits in range(6, 10))
    return next((text for text in texts if _FLOAT.unpack(_FLOAT.pack(float(text)))[0] == value), repr(value))


def _instant_text(value: int, logical: str) -> str | None:
    """Returns the text of a date or an instant; None for other numbers, and for dates that Python cannot represent."""
    try:
        if logical == "date":
            return (_EPOCH + timedelta(days=value)).date().isoformat()
        units = UNITS_PER_S.get(logical)
        if units is None:
            return None
        seconds, fraction = divmod(value, units)
        instant = _EPOCH + timedelta(seconds=seconds)
    except OverflowError:
        return None
    digits = len(str(units)) - 1
    return f"{instant:%Y-%m-%dT%H:%M:%S}.{fraction:0{digits}}Z" if instant.year >= 1000 else None


_READERS: Final[dict[str, Callable[[_Reader, AvroType, int], Any]]] = {
    "null": _Reader.null, "boolean": _Reader.boolean, "int": _Reader.number, "long": _Reader.number,
    "float": _Reader.floating, "double": _Reader.floating, "bytes": _Reader.raw, "string": _Reader.string,
    "fixed": _Reader.fixed, "enum": _Reader.enum, "union": _Reader.union, "record": _Reader.record,
    "array": _Reader.array, "map": _Reader.map,
}  # fmt: skip
