"""Messages to send from lines of text: each line is a value, or a message as JSON.

A line of JSON is a message as `POST …/messages` accepts it, or as a downloaded file has it (*Take this away*): messages
saved from one topic can be sent to another.
"""

from __future__ import annotations

import json
import re
from typing import Any

from django.utils.translation import gettext as _

from instances.api.message_serializers import NewMessageIn, new_message
from instances.messages import content, limits
from instances.messages.interfaces import NewMessage
from tenants.wording import localized

VALUES, MESSAGES = "values", "messages"


class UnusableLines(ValueError):
    """The lines cannot be sent. The message is for the sender."""


def messages_of(text: str, kind: str) -> list[NewMessage]:
    """Returns the messages of the lines, without empty lines. `kind` is VALUES or MESSAGES. Raises `UnusableLines`."""
    # `str.splitlines` also splits at U+2028 and the like, which a value or JSON may contain.
    lines = [(number, line) for number, line in enumerate(re.split("\r?\n", text), 1) if line.strip()]
    if not lines:
        raise UnusableLines(_("There is no line."))
    if len(lines) > limits.SENT_MESSAGES_MAX:
        n = limits.SENT_MESSAGES_MAX
        raise UnusableLines(_("These are more than %(n)s messages. Send them in parts.") % {"n": n})
    if kind == VALUES:
        return [NewMessage(key=None, value=line.encode()) for _number, line in lines]
    return [_message(number, line) for number, line in lines]


def _message(number: int, line: str) -> NewMessage:
    try:
        parsed = json.loads(line)
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        raise _line_error(number, _("It is no JSON object."))
    parsed = _from_download(number, parsed)
    serializer = NewMessageIn(data=parsed)
    if not serializer.is_valid():
        name, faults = next(iter(serializer.errors.items()))
        while isinstance(faults, dict | list) and faults:
            faults = next(iter(faults.values())) if isinstance(faults, dict) else faults[0]
        raise _line_error(number, f"{name}: {localized(str(faults))}")
    return new_message(serializer.validated_data)


def _from_download(number: int, parsed: dict[str, Any]) -> dict[str, Any]:
    """Converts a message of a downloaded file to the body of `POST …/messages`; returns another one unchanged."""
    if not any(isinstance(parsed.get(part), dict) for part in ("key", "value")):
        return parsed
    if parsed.get("marker"):
        raise _line_error(number, _("It is a marker and no message."))
    result: dict[str, Any] = {}
    for part in ("key", "value"):
        saved = parsed.get(part) or {}
        result[part], result[f"{part}_format"] = _data_and_format(number, saved)
    headers = parsed.get("headers") or []
    if not isinstance(headers, list) or not all(isinstance(header, dict) for header in headers):
        raise _line_error(number, _("Its headers are no list of objects."))
    result["headers"] = [
        {"key": header.get("key"), "value": _header_text(number, header.get("value"))} for header in headers
    ]
    if parsed.get("partition") is not None:
        result["partition"] = parsed["partition"]
    return result


def _data_and_format(number: int, saved: Any) -> tuple[str | None, str]:
    """Returns text and format of a saved key or value. Raises `UnusableLines` if a part of it is missing."""
    content_ = saved if isinstance(saved, dict) else {}
    format_ = content_.get("format", content.NULL)
    if format_ == content.NULL:
        return None, content.TEXT
    if content_.get("truncated") or content_.get("masked") or format_ not in content.SENT_AS:
        raise _line_error(number, _("A part of it was cut, masked or decoded when it was saved."))
    return content_.get("data"), format_


def _header_text(number: int, saved: Any) -> Any:
    if not isinstance(saved, dict):
        return saved  # text as in the body of a request; the serializer refuses other types
    text, format_ = _data_and_format(number, saved)
    if text is not None and format_ not in (content.TEXT, content.JSON):
        raise _line_error(number, _("The value of a header is no text."))
    return text


def _line_error(number: int, reason: str) -> UnusableLines:
    return UnusableLines(_("Line %(n)s: %(why)s") % {"n": number, "why": reason})
