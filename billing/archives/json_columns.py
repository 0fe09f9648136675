"""Columns of JSON objects: members that the archive names. Pure."""

from __future__ import annotations

import json
import math
import re
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

    def decode_with_texts(value: bytes) -> Row:
        found = members(value.decode())
        return tuple(
            None if name not in found or (each := found[name])[0] is None else convert(each[convert is _text_of])
            for name, (_, convert) in named.items()
        )

    has_texts = any(convert is _text_of for _, convert in named.values())
    return Columns(
        fields=fields_of({name: kind for name, (kind, _) in named.items()}),
        decode=decode_with_texts if has_texts else decode,
    )


def members(text: str) -> dict[str, tuple[Any, str]]:
    """Members of an object: each value, and its text as it was written, in which no number is rounded.

    Raises:
        Unfit, ValueError: it is no JSON, or no object.
    """
    at = _after_space(text, 0)
    if text[at : at + 1] != "{":
        raise Unfit("not an object")
    result: dict[str, tuple[Any, str]] = {}
    at = _after_space(text, at + 1)
    while text[at : at + 1] != "}":
        name, at = _DECODER.raw_decode(text, at)
        at = _after_space(text, at)
        if not isinstance(name, str) or text[at : at + 1] != ":":
            raise Unfit("not a member")
        start = _after_space(text, at + 1)
        value, at = _DECODER.raw_decode(text, start)
        result[name] = value, text[start:at]
        at = _after_space(text, at)
        if text[at : at + 1] == ",":
            at = _after_space(text, at + 1)
            if text[at : at + 1] != '"':
                raise Unfit("not a member")
        elif text[at : at + 1] != "}":
            raise Unfit("not an object")
    if _after_space(text, at + 1) != len(text):
        raise Unfit("more than an object")
    return result


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return at if found is None else found.end()


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
    """Decimals are rounded to the nearest double. A whole number that no double is, or one beyond them all, does not
    fit.
    """
    if type(value) not in (int, float):
        raise Unfit("not a number")
    number = float(value)
    if math.isinf(number) or (type(value) is int and int(number) != value):
        raise Unfit("not a number that a double holds")
    return number


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


def _text_of(text: str) -> str:
    """Returns the text of a value as it was written."""
    return text


_SPACE: Final = re.compile(r"[ \t\n\r]*")
_DECODER: Final = json.JSONDecoder(parse_constant=_no_constant)
_TYPES: Final[dict[str, tuple[pa.DataType, Convert]]] = {
    "string": (pa.string(), _string),
    "integer": (pa.int64(), _integer),
    "number": (pa.float64(), _number),
    "boolean": (pa.bool_(), _boolean),
    "timestamp": (MS, _timestamp),
    "json": (pa.string(), _text_of),
}
