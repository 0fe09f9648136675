"""Columns of JSON objects: members that the archive names. Pure."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa

from archives.columns import (
    TIMESTAMP_MS_TYPE,
    Columns,
    Row,
    SchemaRefused,
    ValueUnfit,
    arrow_fields,
    require_column_name,
)

_INT64: Final = range(-(2**63), 2**63)
_YEARS_MS: Final = range(-62_135_596_800_000, 253_402_300_800_000)  # of the years 1 to 9999

Convert = Callable[[Any], Any]


def json_columns(schema: Any) -> Columns:
    """Returns the columns of a list of `{"name", "type"}`. Raises `SchemaRefused`."""
    if not isinstance(schema, list):
        raise SchemaRefused('The columns of JSON are a list of {"name": …, "type": …}.')
    columns: dict[str, tuple[pa.DataType, Convert]] = {}
    for column in schema:
        if not isinstance(column, dict) or column.keys() != {"name", "type"} or str(column["type"]) not in _TYPES:
            raise SchemaRefused(f"A column has a name and a type: {', '.join(_TYPES)}.")
        columns[require_column_name(column["name"], columns)] = _TYPES[column["type"]]

    def decode(value: bytes) -> Row:
        document = _DECODER.decode(value.decode())
        if not isinstance(document, dict):
            raise ValueUnfit("not an object")
        return tuple(
            None if (member := document.get(name)) is None else convert(member)
            for name, (_, convert) in columns.items()
        )

    def decode_with_texts(value: bytes) -> Row:
        document = parse_members(value.decode())
        return tuple(
            None
            if name not in document or (member := document[name])[0] is None
            else convert(member[convert is _keep_text])
            for name, (_, convert) in columns.items()
        )

    has_texts = any(convert is _keep_text for _, convert in columns.values())
    return Columns(
        fields=arrow_fields({name: kind for name, (kind, _) in columns.items()}),
        decode=decode_with_texts if has_texts else decode,
    )


def parse_members(text: str) -> dict[str, tuple[Any, str]]:
    """Returns the members of an object: each value, and its original text, in which no number is rounded.

    Raises:
        Unfit, ValueError: the text is not JSON, or not an object.
    """
    position = _skip_space(text, 0)
    if text[position : position + 1] != "{":
        raise ValueUnfit("not an object")
    result: dict[str, tuple[Any, str]] = {}
    position = _skip_space(text, position + 1)
    while text[position : position + 1] != "}":
        name, position = _DECODER.raw_decode(text, position)
        position = _skip_space(text, position)
        if not isinstance(name, str) or text[position : position + 1] != ":":
            raise ValueUnfit("not a member")
        start = _skip_space(text, position + 1)
        value, position = _DECODER.raw_decode(text, start)
        result[name] = value, text[start:position]
        position = _skip_space(text, position)
        if text[position : position + 1] == ",":
            position = _skip_space(text, position + 1)
            if text[position : position + 1] != '"':
                raise ValueUnfit("not a member")
        elif text[position : position + 1] != "}":
            raise ValueUnfit("not an object")
    if _skip_space(text, position + 1) != len(text):
        raise ValueUnfit("more than an object")
    return result


def _skip_space(text: str, position: int) -> int:
    space = _SPACE.match(text, position)
    return position if space is None else space.end()


def _reject_constant(name: str) -> None:
    raise ValueUnfit(name)


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueUnfit("not a string")
    value.encode()  # raises for a lone surrogate
    return value


def _integer(value: Any) -> int:
    if type(value) is not int or value not in _INT64:
        raise ValueUnfit("not an integer of 64 bits")
    return value


def _number(value: Any) -> float:
    """Returns a double. Decimals are rounded to the nearest one; integers that have no exact double do not fit."""
    if type(value) not in (int, float):
        raise ValueUnfit("not a number")
    number = float(value)
    if math.isinf(number) or (type(value) is int and int(number) != value):
        raise ValueUnfit("not a number that a double holds")
    return number


def _boolean(value: Any) -> bool:
    if type(value) is not bool:
        raise ValueUnfit("not true or false")
    return value


def _timestamp(value: Any) -> datetime | int:
    """Returns an instant of ISO 8601 (in UTC unless it has an offset), or milliseconds since 1970 as they are."""
    if isinstance(value, str):
        instant = datetime.fromisoformat(value)
        return (instant if instant.tzinfo else instant.replace(tzinfo=UTC)).astimezone(UTC)
    if type(value) is not int or value not in _YEARS_MS:
        raise ValueUnfit("not a time")
    return value


def _keep_text(text: str) -> str:
    """Returns the original text of a value."""
    return text


_SPACE: Final = re.compile(r"[ \t\n\r]*")
_DECODER: Final = json.JSONDecoder(parse_constant=_reject_constant)
_TYPES: Final[dict[str, tuple[pa.DataType, Convert]]] = {
    "string": (pa.string(), _string),
    "integer": (pa.int64(), _integer),
    "number": (pa.float64(), _number),
    "boolean": (pa.bool_(), _boolean),
    "timestamp": (TIMESTAMP_MS_TYPE, _timestamp),
    "json": (pa.string(), _keep_text),
}
