"""Avro: schemas checked by fastavro, and values decoded within limits. Pure.

fastavro decodes as much as a schema and a few bytes describe, in C and without a bound: a list of nulls takes no byte
for each, and a record that contains itself ends the process. So values are decoded here.
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
    """One type; what it consists of is filled in later, because types may contain themselves."""

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
        """Returns the value as parsed JSON. Raises `Undecodable`, also for bytes behind the value."""
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
        given = json.loads(text)
    except (ValueError, RecursionError):
        raise WrongSchema("A schema of Avro is JSON.") from None
    if not isinstance(given, dict | list | str):
        raise WrongSchema("A schema of Avro is an object, a list or the name of a type.")
    _require_small(given)
    return AvroSchema(_Compiler().compile(_checked(given)))


def _checked(given: Any) -> Any:
    from fastavro import parse_schema
    from fastavro.schema import SchemaParseException, UnknownType

    try:
        return parse_schema(given)
    except UnknownType as refusal:
        raise WrongSchema(f"There is no type {str(refusal.name)[:200]}.") from None
    except (SchemaParseException, ValueError, TypeError, KeyError, AttributeError, RecursionError) as refusal:
        raise WrongSchema(f"That is no schema of Avro: {str(refusal)[:200]}") from None


def _require_small(given: Any) -> None:
    """Counts values of the schema and their nesting, before anything walks it by recursion."""
    count = 0
    level = [given]
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
    """Turns a schema as fastavro parses it, with full names, into types."""

    def __init__(self) -> None:
        self._named: dict[str, AvroType] = {}
        self._count = 0

    def compile(self, given: Any) -> AvroType:
        self._count += 1
        if self._count > limits.SCHEMA_TYPES_MAX:
            raise WrongSchema(f"A schema has at most {limits.SCHEMA_TYPES_MAX} types and fields.")
        if isinstance(given, list):
            return AvroType("union", branches=[self.compile(branch) for branch in given])
        if isinstance(given, str):
            return self._named[given] if given in self._named else self._primitive(given, {})
        kind = given["type"]
        if isinstance(kind, dict | list):
            return self.compile(kind)
        if kind in ("array", "map"):
            return AvroType(kind, branches=[self.compile(given["items" if kind == "array" else "values"])])
        if kind in ("record", "error"):
            record = self._named[given["name"]] = AvroType("record")
            record.fields = [(entry["name"], self.compile(entry["type"])) for entry in given["fields"]]
            return record
        if kind == "enum":
            self._named[given["name"]] = AvroType("enum", symbols=tuple(given["symbols"]))
            return self._named[given["name"]]
        if kind == "fixed":
            size = given["size"]
            if not isinstance(size, int) or isinstance(size, bool) or size < 0:
                raise WrongSchema("The size of a fixed type is a number from 0 on.")
            fixed = AvroType("fixed", logical=str(given.get("logicalType", "")), size=size, scale=_scale(given))
            self._named[given["name"]] = fixed
            return fixed
        return self._primitive(kind, given)

    def _primitive(self, kind: str, given: Any) -> AvroType:
        if kind in self._named:
            return self._named[kind]
        if kind not in PRIMITIVES:
            raise WrongSchema(f"There is no type {kind[:200]}.")
        return AvroType(kind, logical=str(given.get("logicalType", "")), scale=_scale(given))


def _scale(given: Any) -> int:
    scale = given.get("scale", 0)
    return scale if isinstance(scale, int) and 0 <= scale <= DECIMAL_SCALE_MAX else 0


class _Reader:
    """Position in the bytes of one value."""

    def __init__(self, data: bytes) -> None:
        if len(data) > limits.DECODED_BYTES_MAX:
            raise Undecodable(TOO_LARGE)
        self._data = data
        self._work = DecodeBudget()
        self.at = 0

    def read(self, kind: AvroType, depth: int) -> Any:
        self._work.spend(1, depth)
        return _READERS[kind.kind](self, kind, depth)

    def null(self, _kind: AvroType, _depth: int) -> None:
        return None

    def boolean(self, _kind: AvroType, _depth: int) -> bool:
        byte = self._take(1)[0]
        if byte > 1:
            raise Undecodable(DAMAGED)
        return byte == 1

    def number(self, kind: AvroType, _depth: int) -> Any:
        value = self._long()
        if kind.kind == "int" and not _INT_MIN <= value <= _INT_MAX:
            raise Undecodable(DAMAGED)
        return _moment(value, kind.logical) or ExactNumber(str(value))

    def floating(self, kind: AvroType, _depth: int) -> Any:
        form = _FLOAT if kind.kind == "float" else _DOUBLE
        (value,) = form.unpack(self._take(form.size))
        if not math.isfinite(value):
            return str(value)
        return ExactNumber(repr(value) if kind.kind == "double" else _shortest(value))

    def raw(self, kind: AvroType, _depth: int) -> Any:
        return self._bytes_as_json(self._take(self._length()), kind)

    def fixed(self, kind: AvroType, _depth: int) -> Any:
        return self._bytes_as_json(self._take(kind.size), kind)

    def string(self, _kind: AvroType, depth: int) -> str:
        try:
            text = self._take(self._length()).decode()
        except UnicodeDecodeError:
            raise Undecodable(DAMAGED) from None
        self._work.spend(len(text), depth)
        return text

    def enum(self, kind: AvroType, depth: int) -> str:
        symbol = self._choice(kind.symbols)
        self._work.spend(len(symbol), depth)
        return str(symbol)

    def union(self, kind: AvroType, depth: int) -> Any:
        return self.read(self._choice(kind.branches), depth + 1)

    def record(self, kind: AvroType, depth: int) -> Members:
        members = Members()
        for name, inner in kind.fields:
            self._work.spend(len(name), depth)
            members.append((name, self.read(inner, depth + 1)))
        return members

    def array(self, kind: AvroType, depth: int) -> list[Any]:
        found: list[Any] = []
        while count := self._block():
            found.extend(self.read(kind.branches[0], depth + 1) for _ in range(count))
        return found

    def map(self, kind: AvroType, depth: int) -> Members:
        members = Members()
        while count := self._block():
            for _ in range(count):
                name = self.string(kind, depth)
                members.append((name, self.read(kind.branches[0], depth + 1)))
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
        taken = self._data[self.at : end]
        self.at = end
        return taken

    def _bytes_as_json(self, raw: bytes, kind: AvroType) -> Any:
        """A decimal as a number, all other bytes as base64."""
        self._work.spend(len(raw) * 4 // 3, 0)
        if kind.logical == "decimal" and len(raw) <= DECIMAL_BYTES_MAX:
            unscaled = Decimal(int.from_bytes(raw, "big", signed=True))
            context = Context(prec=4 * DECIMAL_BYTES_MAX + DECIMAL_SCALE_MAX)
            return ExactNumber(format(unscaled.scaleb(-kind.scale, context), "f"))
        return base64.b64encode(raw).decode()


def _shortest(value: float) -> str:
    """The fewest digits that name this number of 32 bits."""
    texts = (f"{value:.{digits}g}" for digits in range(6, 10))
    return next((text for text in texts if _FLOAT.unpack(_FLOAT.pack(float(text)))[0] == value), repr(value))


def _moment(value: int, logical: str) -> str | None:
    """Text of a date or an instant; None for numbers, and for what no calendar has."""
    try:
        if logical == "date":
            return (_EPOCH + timedelta(days=value)).date().isoformat()
        units = UNITS_PER_S.get(logical)
        if units is None:
            return None
        seconds, rest = divmod(value, units)
        moment = _EPOCH + timedelta(seconds=seconds)
    except OverflowError:
        return None
    digits = len(str(units)) - 1
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{rest:0{digits}}Z" if moment.year >= 1000 else None


_READERS: Final[dict[str, Callable[[_Reader, AvroType, int], Any]]] = {
    "null": _Reader.null, "boolean": _Reader.boolean, "int": _Reader.number, "long": _Reader.number,
    "float": _Reader.floating, "double": _Reader.floating, "bytes": _Reader.raw, "string": _Reader.string,
    "fixed": _Reader.fixed, "enum": _Reader.enum, "union": _Reader.union, "record": _Reader.record,
    "array": _Reader.array, "map": _Reader.map,
}  # fmt: skip
