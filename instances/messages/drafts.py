"""Fields of the form that sends a message, filled with a stored one. Pure."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any, Final

from instances.messages import content, limits
from instances.messages.content import BASE64, JSON, TEXT
from instances.messages.interfaces import Record

HEADER_LINES_CHARS_MAX: Final = 10_000
KEY, VALUE = "key", "value"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageDraft:
    """Initial values of `SendForm`, and the parts of the stored message that they lack.

    `too_large` has the names of fields that do not fit into the form. `has_empty_key`: the stored key is empty, which
    the form would send as no key.
    """

    values: dict[str, Any]
    left_out_header_count: int = 0
    too_large: tuple[str, ...] = ()
    has_empty_key: bool = False


def draft_of(record: Record) -> MessageDraft:
    """Returns the form of a message that is sent again: the same bytes, to the same partition."""
    too_large = []
    values: dict[str, Any] = {"partition": record.partition, "is_tombstone": record.value is None}
    fields = ((KEY, record.key, limits.SENT_KEY_CHARS_MAX), (VALUE, record.value, limits.SENT_BYTES_MAX))
    for name, raw, chars_max in fields:
        text_and_format = _text_and_format(raw or b"", chars_max, is_multiline=name == VALUE)
        if text_and_format is None:
            too_large.append(name)
        else:
            values[name], values[f"{name}_format"] = text_and_format
    lines: list[str] = []
    chars = 0
    for header, raw in record.headers:
        line = _header_line(header, raw)
        if line is not None and chars + len(line) < HEADER_LINES_CHARS_MAX and len(lines) < limits.SENT_HEADERS_MAX:
            lines.append(line)
            chars += len(line) + 1
    values["headers"] = "\n".join(lines)
    left_out = max(record.header_count, len(record.headers)) - len(lines)
    return MessageDraft(
        values=values, left_out_header_count=left_out, too_large=tuple(too_large), has_empty_key=record.key == b""
    )  # fmt: skip


def _text_and_format(raw: bytes, chars_max: int, *, is_multiline: bool) -> tuple[str, str] | None:
    """Returns the text and the format with which a form sends exactly these bytes; None if the text is too long.

    Browsers replace line ends, so a text with a carriage return is sent in base64; so is one with any line end in a
    field of one line (`is_multiline` False). Such a field has no format JSON: there, JSON is sent as text.
    """
    shown = content.show(raw, content.AUTO, chars_max)
    text = shown.data or ""
    if shown.format in (TEXT, JSON) and not shown.truncated and "\r" not in text and (is_multiline or "\n" not in text):
        return text, shown.format if is_multiline else TEXT
    encoded = base64.b64encode(raw).decode()
    return None if len(encoded) > chars_max else (encoded, BASE64)


def _header_line(name: bytes, raw: bytes | None) -> str | None:
    """Returns a header as the line `name: value` of the form; None for a header that such a line cannot express."""
    try:
        key, value = name.decode(), (raw or b"").decode()
    except UnicodeDecodeError:
        return None
    has_valid_key = raw is not None and key.strip() and ":" not in key and len(key) <= limits.SENT_HEADER_KEY_CHARS_MAX
    line = f"{key}: {value}"
    is_one_line = line.splitlines() == [line] and (key.strip(), value.strip()) == (key, value) and "\x00" not in line
    return line if has_valid_key and is_one_line else None
