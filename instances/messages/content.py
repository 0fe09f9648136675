"""Text of stored keys, values and header values, and bytes of the texts that a caller sends. Pure."""

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
# Formats of `Content.data`.
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
    """A sent text does not have the format that the sender chose. The message is for the sender."""


@dataclass(frozen=True, slots=True)
class Content:
    """Bytes as text: `data` in one of `SHOWN_FORMATS` (null and masked with None), and the size of what is stored.

    With `truncated`, `data` is only the beginning. `schema_id` is the id in the header of the bytes, `problem` the
    reason why no schema decodes them. `is_masked`: the reader may not see all of them.
    """

    format: str
    data: str | None
    bytes: int
    truncated: bool = False
    schema_id: int | None = None
    problem: str = ""
    is_masked: bool = False


NULL_CONTENT: Final = Content(NULL, None, 0)


def show(raw: bytes | None, shown_as: str, bytes_max: int) -> Content:
    """Returns the text of at most `bytes_max` bytes of `raw` in the format `shown_as`, one of `SHOWN_AS`. Bytes that do
    not have this format are shown as hex; `Content.format` is the format that was used.

    `auto` uses JSON for objects and arrays, text for readable UTF-8, and hex for everything else. `integer` and `float`
    are treated like `auto` if the bytes do not have the length of such a number.
    """
    if raw is None:
        return NULL_CONTENT
    if shown_as in NUMBERS:
        number = _number(raw, shown_as)
        if number is not None:
            return Content(shown_as, number, len(raw))
        shown_as = AUTO
    is_cut = len(raw) > bytes_max
    head = raw[:bytes_max] if is_cut else raw
    if shown_as == BASE64:
        return Content(BASE64, base64.b64encode(head).decode(), len(raw), is_cut)
    text = None if shown_as == HEX else _text(head, is_cut)
    if text is None or (shown_as == AUTO and not _is_readable(text)):
        return Content(HEX, head.hex(), len(raw), is_cut)
    if not is_cut and _is_json(text, shown_as, len(raw)):
        return Content(JSON, text, len(raw))
    return Content(TEXT, text, len(raw), is_cut)


def _number(raw: bytes, shown_as: str) -> str | None:
    """Returns the number that the bytes encode; None if no number of this type has their length."""
    if shown_as == INTEGER:
        return str(int.from_bytes(raw, "big", signed=True)) if len(raw) in _INTEGER_BYTES else None
    return repr(_FLOATS[len(raw)].unpack(raw)[0]) if len(raw) in _FLOATS else None


def with_problem(shown: Content, problem: str) -> Content:
    """Returns the content with the reason for which no schema shows it."""
    return replace(shown, problem=problem) if problem else shown


def shown_bytes(content: Content) -> int:
    """Returns the size of the text in characters, which is at most its size in bytes in a response."""
    return len(content.data or "")


def header_key(raw: bytes) -> str:
    """Text of a header's key; bytes that are no UTF-8 are written as `\\xff`."""
    return raw.decode(errors="backslashreplace")


def to_bytes(text: str | None, sent_as: str) -> bytes | None:
    """Returns the bytes of a key or value that is sent as text in the format `sent_as`, one of `SENT_AS`.

    Raises:
        Unwritable: the text is not in this format.
    """
    if text is None:
        return None
    try:
        if sent_as == HEX:
            return bytes.fromhex(text)
        if sent_as == BASE64:
            return base64.b64decode(text, validate=True)
        raw = text.encode()
    except (ValueError, binascii.Error):
        raise Unwritable("This is not UTF-8." if sent_as in (TEXT, JSON) else f"This is not {sent_as}.") from None
    if sent_as == JSON and not _parses(text):
        raise Unwritable("This is not JSON.")
    return raw


def _text(head: bytes, is_cut: bool) -> str | None:
    """Text of UTF-8 bytes, without a last character that the cut split; None if they are not UTF-8."""
    try:
        return head.decode()
    except UnicodeDecodeError as error:
        if is_cut and error.reason == "unexpected end of data" and error.start >= len(head) - _UTF8_BYTES_MAX:
            return head[: error.start].decode()
        return None


def _is_readable(text: str) -> bool:
    """True if the text has no control characters other than line ends and tabs."""
    return not any((char < " " and char not in _LINE_ENDS) or char == "\x7f" for char in set(text))


def _is_json(text: str, shown_as: str, size_bytes: int) -> bool:
    if shown_as not in (AUTO, JSON) or size_bytes > JSON_CHECKED_BYTES_MAX:
        return False
    if shown_as == AUTO and not text.lstrip().startswith(("{", "[")):
        return False
    return _parses(text)


def _parses(text: str) -> bool:
    try:
        _DECODER.decode(text)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse(constant: str) -> None:
    """Raises `ValueError`: JSON has no NaN and no Infinity."""
    raise ValueError(constant)


# Made once: making a decoder takes as long as decoding a small value.
_DECODER: Final = json.JSONDecoder(parse_constant=_refuse, parse_int=str, parse_float=str)
