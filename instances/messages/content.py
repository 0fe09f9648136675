"""Text of keys, values and header values, and the bytes of what a caller sends. Pure."""

from __future__ import annotations

import base64
import binascii
import json
import struct
from dataclasses import dataclass, replace
from typing import Final

from instances.messages.schemas.sources import FORMATS

AUTO, TEXT, JSON, HEX, BASE64 = "auto", "text", "json", "hex", "base64"
# Numbers as Kafka's serializers write them: 1, 2, 4 or 8 bytes, the highest first; 4 or 8 bytes of IEEE 754.
INTEGER, FLOAT = "integer", "float"
NULL: Final = "null"
MASKED: Final = "masked"
NUMBERS: Final = (INTEGER, FLOAT)
SHOWN_AS: Final = (AUTO, TEXT, JSON, HEX, BASE64, *NUMBERS, *FORMATS)
# What `data` can be.
SHOWN_FORMATS: Final = (TEXT, JSON, HEX, BASE64, *NUMBERS, *FORMATS, NULL, MASKED)
STRUCTURED: Final = (JSON, *FORMATS)
SENT_AS: Final = (TEXT, JSON, HEX, BASE64)

# Longer texts are not checked for being JSON.
JSON_CHECKED_BYTES_MAX: Final = 1_000_000
_INTEGER_BYTES: Final = (1, 2, 4, 8)
_FLOATS: Final = {4: struct.Struct(">f"), 8: struct.Struct(">d")}
_LINE_ENDS: Final = "\t\n\r"
_UTF8_BYTES_MAX: Final = 4


class Unwritable(ValueError):
    """The text does not have the format that its sender names. The message is for the sender."""


@dataclass(frozen=True, slots=True)
class Content:
    """Bytes as text: `data` in one of `SHOWN_FORMATS` (null and masked with None), and the size of what is stored.

    With `truncated`, `data` shows the beginning of it only. `schema_id` is the one that the bytes carry, `problem` says
    why no schema shows them, and with `is_masked` the reader may not see all of them.
    """

    format: str
    data: str | None
    bytes: int
    truncated: bool = False
    schema_id: int | None = None
    problem: str = ""
    is_masked: bool = False


NOTHING: Final = Content(NULL, None, 0)


def show(raw: bytes | None, how: str, bytes_max: int) -> Content:
    """Returns `raw` in the format `how`. Bytes that do not have this format are shown as hex, and `format` says so.

    `auto` uses JSON for objects and arrays, text for readable UTF-8, and hex for everything else. So do `integer` and
    `float` for bytes that have not the length of such a number.
    """
    if raw is None:
        return NOTHING
    if how in NUMBERS:
        number = _number(raw, how)
        if number is not None:
            return Content(how, number, len(raw))
        how = AUTO
    cut = len(raw) > bytes_max
    head = raw[:bytes_max] if cut else raw
    if how == BASE64:
        return Content(BASE64, base64.b64encode(head).decode(), len(raw), cut)
    text = None if how == HEX else _text(head, cut)
    if text is None or (how == AUTO and not _is_readable(text)):
        return Content(HEX, head.hex(), len(raw), cut)
    if not cut and _is_json(text, how, len(raw)):
        return Content(JSON, text, len(raw))
    return Content(TEXT, text, len(raw), cut)


def _number(raw: bytes, how: str) -> str | None:
    """Returns the number that the bytes encode; None if no number of this type has their length."""
    if how == INTEGER:
        return str(int.from_bytes(raw, "big", signed=True)) if len(raw) in _INTEGER_BYTES else None
    return repr(_FLOATS[len(raw)].unpack(raw)[0]) if len(raw) in _FLOATS else None


def with_problem(shown: Content, problem: str) -> Content:
    """Returns the content with the reason for which no schema shows it."""
    return replace(shown, problem=problem) if problem else shown


def shown_bytes(content: Content) -> int:
    """Returns the minimum size of the text that a response has for this content."""
    return len(content.data or "")


def header_key(raw: bytes) -> str:
    """Text of a header's key; bytes that are no UTF-8 are written as `\\xff`."""
    return raw.decode(errors="backslashreplace")


def to_bytes(text: str | None, how: str) -> bytes | None:
    """Returns the bytes that a sent key or value stands for.

    Raises:
        Unwritable: the text is not in the format `how`.
    """
    if text is None:
        return None
    try:
        if how == HEX:
            return bytes.fromhex(text)
        if how == BASE64:
            return base64.b64decode(text, validate=True)
        raw = text.encode()
    except (ValueError, binascii.Error):
        raise Unwritable("This is not UTF-8." if how in (TEXT, JSON) else f"This is not {how}.") from None
    if how == JSON and not _parses(text):
        raise Unwritable("This is not JSON.")
    return raw


def _text(head: bytes, cut: bool) -> str | None:
    """Text of UTF-8 bytes, without a last character that was cut through; None where they are no UTF-8."""
    try:
        return head.decode()
    except UnicodeDecodeError as error:
        if cut and error.reason == "unexpected end of data" and error.start >= len(head) - _UTF8_BYTES_MAX:
            return head[: error.start].decode()
        return None


def _is_readable(text: str) -> bool:
    """True without control characters; a text of none but line ends and tabs is readable."""
    return not any((char < " " and char not in _LINE_ENDS) or char == "\x7f" for char in set(text))


def _is_json(text: str, how: str, size_bytes: int) -> bool:
    if how not in (AUTO, JSON) or size_bytes > JSON_CHECKED_BYTES_MAX:
        return False
    if how == AUTO and not text.lstrip().startswith(("{", "[")):
        return False
    return _parses(text)


def _parses(text: str) -> bool:
    try:
        _DECODER.decode(text)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse(constant: str) -> None:
    """JSON has no NaN and no Infinity."""
    raise ValueError(constant)


# Made once: making a decoder takes as long as decoding a small value.
_DECODER: Final = json.JSONDecoder(parse_constant=_refuse, parse_int=str, parse_float=str)
