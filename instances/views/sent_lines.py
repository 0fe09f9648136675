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
        given = json.loads(line)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise _unusable(number, _("It is no JSON object."))
    given = _unsaved(number, given)
    serializer = NewMessageIn(data=given)
    if not serializer.is_valid():
        name, faults = next(iter(serializer.errors.items()))
        while isinstance(faults, dict | list) and faults:
            faults = next(iter(faults.values())) if isinstance(faults, dict) else faults[0]
        raise _unusable(number, f"{name}: {localized(str(faults))}")
    return new_message(serializer.validated_data)


def _unsaved(number: int, given: dict[str, Any]) -> dict[str, Any]:
    """Converts a message of a downloaded file to the body of `POST …/messages`; returns another one unchanged."""
    if not any(isinstance(given.get(part), dict) for part in ("key", "value")):
        return given
    if given.get("marker"):
        raise _unusable(number, _("It is a marker and no message."))
    result: dict[str, Any] = {}
    for part in ("key", "value"):
        saved = given.get(part) or {}
        result[part], result[f"{part}_format"] = _text_of(number, saved)
    headers = given.get("headers") or []
    if not isinstance(headers, list) or not all(isinstance(header, dict) for header in headers):
        raise _unusable(number, _("Its headers are no list of objects."))
    result["headers"] = [
        {"key": header.get("key"), "value": _header_text(number, header.get("value"))} for header in headers
    ]
    if given.get("partition") is not None:
        result["partition"] = given["partition"]
    return result


def _text_of(number: int, saved: Any) -> tuple[str | None, str]:
    """Returns text and format of a saved key or value. Raises `UnusableLines` if a part of it is missing."""
    shown = saved if isinstance(saved, dict) else {}
    form = shown.get("format", content.NULL)
    if form == content.NULL:
        return None, content.TEXT
    if shown.get("truncated") or shown.get("masked") or form not in content.SENT_AS:
        raise _unusable(number, _("A part of it was cut, masked or decoded when it was saved."))
    return shown.get("data"), form


def _header_text(number: int, saved: Any) -> Any:
    if not isinstance(saved, dict):
        return saved  # text as in the body of a request; the serializer refuses other types
    text, form = _text_of(number, saved)
    if text is not None and form not in (content.TEXT, content.JSON):
        raise _unusable(number, _("The value of a header is no text."))
    return text


def _unusable(number: int, why: str) -> UnusableLines:
    return UnusableLines(_("Line %(n)s: %(why)s") % {"n": number, "why": why})
