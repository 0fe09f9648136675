"""Several messages from lines of text: a value each, or a message each as JSON.

A line of JSON is a message as `POST …/messages` takes it, or as *Take this away* wrote it: what was saved from one
topic can be sent to another.
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
    """Returns the messages that the lines stand for; empty lines are passed over. Raises `UnusableLines`."""
    # Not by `str.splitlines`: U+2028 and its like may stand in a value, and unescaped in JSON.
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
    """Returns the body of `POST …/messages` for a message as it was saved; another one as it is."""
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
    """Returns text and format of a saved key or value. Raises `UnusableLines` where it is not whole."""
    shown = saved if isinstance(saved, dict) else {}
    form = shown.get("format", content.NULL)
    if form == content.NULL:
        return None, content.TEXT
    if shown.get("truncated") or shown.get("masked") or form not in content.SENT_AS:
        raise _unusable(number, _("A part of it was cut, masked or decoded when it was saved."))
    return shown.get("data"), form


def _header_text(number: int, saved: Any) -> Any:
    if not isinstance(saved, dict):
        return saved  # as the body of a request has it, or wrong
    text, form = _text_of(number, saved)
    if text is not None and form not in (content.TEXT, content.JSON):
        raise _unusable(number, _("The value of a header is no text."))
    return text


def _unusable(number: int, why: str) -> UnusableLines:
    return UnusableLines(_("Line %(n)s: %(why)s") % {"n": number, "why": why})
