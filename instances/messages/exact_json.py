"""Parser and writer of JSON that preserve the digits of numbers, repeated members and their order. Pure."""

from __future__ import annotations

import json
from typing import Any, Final


class NotJson(ValueError):
    """The text is no JSON, or is nested too deeply to be read."""


class ExactNumber(str):
    """A number as the text has it, digit by digit."""


class Members(list[tuple[str, Any]]):
    """Members of an object in order, repeated names included."""


def parse(text: str) -> Any:
    """Returns `Members`, lists, `ExactNumber`, strings, booleans and None. Raises `NotJson`."""
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError):
        raise NotJson("not JSON") from None


def dump(value: Any) -> str:
    """Returns the text of a parsed value, with one space after each comma and colon. Raises `NotJson`."""
    parts: list[str] = []
    try:
        _write(value, parts)
    except RecursionError:
        raise NotJson("nested too deeply") from None
    return "".join(parts)


def _write(value: Any, parts: list[str]) -> None:
    if isinstance(value, ExactNumber):
        parts.append(value)
    elif isinstance(value, Members):
        opening = "{"
        for name, inner in value:
            parts += (opening, _quoted(name), ": ")
            _write(inner, parts)
            opening = ", "
        parts.append("}" if value else "{}")
    elif isinstance(value, list):
        opening = "["
        for inner in value:
            parts.append(opening)
            _write(inner, parts)
            opening = ", "
        parts.append("]" if value else "[]")
    elif isinstance(value, str):
        parts.append(_quoted(value))
    else:
        parts.append("null" if value is None else "true" if value else "false")


def _quoted(text: str) -> str:
    """Returns a JSON string. Half of a surrogate pair stays escaped, because UTF-8 cannot encode it."""
    quoted = json.dumps(text, ensure_ascii=False)
    try:
        quoted.encode()
    except UnicodeEncodeError:
        return json.dumps(text)
    return quoted


def _refuse(constant: str) -> None:
    """Raises `ValueError`: JSON has no NaN and no Infinity."""
    raise ValueError(constant)


# Made once: making a decoder takes as long as decoding a small value.
_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=Members, parse_int=ExactNumber, parse_float=ExactNumber, parse_constant=_refuse
)
