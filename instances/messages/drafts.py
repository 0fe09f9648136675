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
    """Initial values of `SendForm`, and what of the message they do not have.

    `left_out_headers` is a number. `too_large` has the names of fields that cannot be sent from a form; an empty key,
    which a form takes for none, is another thing (`has_empty_key`).
    """

    values: dict[str, Any]
    left_out_headers: int = 0
    too_large: tuple[str, ...] = ()
    has_empty_key: bool = False


def draft_of(record: Record) -> MessageDraft:
    """Returns the form of a message that is sent again: the same bytes, to the same partition."""
    too_large = []
    values: dict[str, Any] = {"partition": record.partition, "is_tombstone": record.value is None}
    places = ((KEY, record.key, limits.SENT_KEY_CHARS_MAX), (VALUE, record.value, limits.SENT_BYTES_MAX))
    for name, raw, chars_max in places:
        typed = _typed(raw or b"", chars_max, has_lines=name == VALUE)
        if typed is None:
            too_large.append(name)
        else:
            values[name], values[f"{name}_format"] = typed
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
        values=values, left_out_headers=left_out, too_large=tuple(too_large), has_empty_key=record.key == b""
    )  # fmt: skip


def _typed(raw: bytes, chars_max: int, *, has_lines: bool) -> tuple[str, str] | None:
    """Returns text and format under which a form sends these bytes; None for too many of them.

    Browsers write line ends of their own. A field of one line (`has_lines` False) has none, and its text may be JSON
    without being called so.
    """
    shown = content.show(raw, content.AUTO, chars_max)
    text = shown.data or ""
    if shown.format in (TEXT, JSON) and not shown.truncated and "\r" not in text and (has_lines or "\n" not in text):
        return text, shown.format if has_lines else TEXT
    encoded = base64.b64encode(raw).decode()
    return None if len(encoded) > chars_max else (encoded, BASE64)


def _header_line(name: bytes, raw: bytes | None) -> str | None:
    """Returns a header as the form reads it; None for one that a line cannot say."""
    try:
        key, value = name.decode(), (raw or b"").decode()
    except UnicodeDecodeError:
        return None
    is_said = raw is not None and key.strip() and ":" not in key and len(key) <= limits.SENT_HEADER_KEY_CHARS_MAX
    line = f"{key}: {value}"
    is_one_line = line.splitlines() == [line] and (key.strip(), value.strip()) == (key, value) and "\x00" not in line
    return line if is_said and is_one_line else None
