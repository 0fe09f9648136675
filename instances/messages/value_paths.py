"""Paths into a JSON value, written as in jq: `.order.items[].price`, `.["card number"]`, `.rows[0]`, `.`. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

from django.utils.translation import gettext_noop

from tenants.errors import Message

STEPS_MAX: Final = 20
NAME: Final = r"[A-Za-z_][A-Za-z0-9_-]*"
STRING: Final = r'"(?:[^"\\\x00-\x1f]|\\["\\])*"'
_STEP = re.compile(rf"\.?\[\]|\.?\[(?P<index>\d{{1,6}})\]|\.?\[(?P<quoted>{STRING})\]|\.(?P<name>{NAME})")


class WrongPath(ValueError):
    """The text is not a path. The message is for its author."""


class Each(Enum):
    """Every element of a list, or every member of an object."""

    EACH = "[]"


EACH: Final = Each.EACH
Step = str | int | Each


@dataclass(frozen=True, slots=True)
class Path:
    """Steps into a value, from outside inwards; without steps it is the whole value."""

    steps: tuple[Step, ...] = ()

    def __str__(self) -> str:
        parts = []
        for step in self.steps:
            if isinstance(step, str):
                parts.append(f".{step}" if re.fullmatch(NAME, step) else f".[{quote(step)}]")
            else:
                parts.append("[]" if isinstance(step, Each) else f"[{step}]")
        text = "".join(parts)
        return text if text.startswith(".") else f".{text}"


def parse(text: str) -> Path:
    """Returns the path. Raises `WrongPath`."""
    path, end = parse_at(text, 0)
    if end != len(text):
        sentence = gettext_noop('A path such as .order.items[].price is expected; "%(rest)s" is none.')
        raise WrongPath(Message(sentence, rest=text[end:][:20]))
    return path


def parse_at(text: str, start: int) -> tuple[Path, int]:
    """Returns the path that begins at `start`, and the position behind it. Raises `WrongPath`."""
    if not text.startswith(".", start):
        raise WrongPath(Message(gettext_noop("A path begins with a dot: .order.items[].price")))
    steps: list[Step] = []
    at = start
    while (match := _STEP.match(text, at)) is not None:
        at = match.end()
        if match["name"] is not None:
            steps.append(match["name"])
        elif match["quoted"] is not None:
            steps.append(unquote(match["quoted"]))
        else:
            steps.append(EACH if match["index"] is None else int(match["index"]))
        if len(steps) > STEPS_MAX:
            raise WrongPath(Message(gettext_noop("A path has at most %(n)s steps."), n=STEPS_MAX))
    return Path(tuple(steps)), max(at, start + 1)


def quote(text: str) -> str:
    """Returns a text in the quotes and escapes of a path."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def unquote(quoted: str) -> str:
    """Returns the text of a quoted string."""
    return re.sub(r'\\(["\\])', r"\1", quoted[1:-1])
