"""Columns of JSON objects: members that the archive names. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa

from billing.archives.columns import MS, Columns, Row, SchemaRefused, Unfit, column_name, fields_of

_INT64: Final = range(-(2**63), 2**63)
_YEARS_MS: Final = range(-62_135_596_800_000, 253_402_300_800_000)  # of the years 1 to 9999

Convert = Callable[[Any], Any]


def json_columns(schema: Any) -> Columns:
    if not isinstance(schema, list):
        raise SchemaRefused('The columns of JSON are a list of {"name": …, "type": …}.')
    named: dict[str, tuple[pa.DataType, Convert]] = {}
    for each in schema:
        if not isinstance(each, dict) or each.keys() != {"name", "type"} or str(each["type"]) not in _TYPES:
            raise SchemaRefused(f"A column has a name and a type: {', '.join(_TYPES)}.")
        named[column_name(each["name"], named)] = _TYPES[each["type"]]

    def decode(value: bytes) -> Row:
        found = _DECODER.decode(value.decode())
        if not isinstance(found, dict):
            raise Unfit("not an object")
        return tuple(
            None if (each := found.get(name)) is None else convert(each) for name, (_, convert) in named.items()
        )

    return Columns(fields=fields_of({name: kind for name, (kind, _) in named.items()}), decode=decode)


def _no_constant(name: str) -> None:
    raise Unfit(name)


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise Unfit("not a string")
    value.encode()  # half of a surrogate pair is no text
    return value


def _integer(value: Any) -> int:
    if type(value) is not int or value not in _INT64:
        raise Unfit("not an integer of 64 bits")
    return value


def _number(value: Any) -> float:
    if type(value) not in (int, float):
        raise Unfit("not a number")
    return float(value)


def _boolean(value: Any) -> bool:
    if type(value) is not bool:
        raise Unfit("not true or false")
    return value


def _timestamp(value: Any) -> datetime | int:
    """ISO 8601, UTC where it names no zone, or milliseconds since 1970."""
    if isinstance(value, str):
        when = datetime.fromisoformat(value)
        return (when if when.tzinfo else when.replace(tzinfo=UTC)).astimezone(UTC)
    if type(value) is not int or value not in _YEARS_MS:
        raise Unfit("not a time")
    return value


def _text_of(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), default=str)


_DECODER: Final = json.JSONDecoder(parse_constant=_no_constant)
_TYPES: Final[dict[str, tuple[pa.DataType, Convert]]] = {
    "string": (pa.string(), _string),
    "integer": (pa.int64(), _integer),
    "number": (pa.float64(), _number),
    "boolean": (pa.bool_(), _boolean),
    "timestamp": (MS, _timestamp),
    "json": (pa.string(), _text_of),
}
