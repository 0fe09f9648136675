"""How much a broker writes into its log: so many lines of each event a minute, and so much of each value.

Whatever makes a broker write a line, a tenant may find out how to do it ten thousand times a second. Pure; the clock is
handed in.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any, Final

LINES_PER_MINUTE_MAX: Final = 100
VALUE_CHARS_MAX: Final = 500
# Of a traceback, which is cut in its middle.
EXCEPTION_CHARS_MAX: Final = 8_000
# Libraries word their lines freely: beyond so many different ones in a minute all others are one event.
EVENTS_MAX: Final = 200
OTHERS: Final = "(other)"
_MINUTE_MS: Final = 60_000


class LineLimit:
    """`monotonic_ms` is the clock. A line says how many of its event were left out in the minutes before."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._monotonic_ms = monotonic_ms
        self._minute = -1
        self._lines: dict[str, int] = {}
        self._suppressed: dict[str, int] = {}

    def admit(self, event: str) -> int | None:
        """None: the line is left out. Otherwise how many were left out before it."""
        minute = self._monotonic_ms() // _MINUTE_MS
        if minute != self._minute:
            self._minute = minute
            self._lines.clear()
        if event not in self._lines and len(self._lines) >= EVENTS_MAX:
            event = OTHERS
        lines = self._lines[event] = self._lines.get(event, 0) + 1
        if lines <= LINES_PER_MINUTE_MAX:
            return self._suppressed.pop(event, 0)
        if event in self._suppressed or len(self._suppressed) < EVENTS_MAX:
            self._suppressed[event] = self._suppressed.get(event, 0) + 1
        return None


def cut(line: MutableMapping[str, Any]) -> None:
    """Shortens long values where they stand."""
    for key, value in line.items():
        if key == "exception":
            line[key] = cut_text(str(value), EXCEPTION_CHARS_MAX)
        elif isinstance(value, str):
            line[key] = cut_text(value, VALUE_CHARS_MAX)
        elif isinstance(value, list | tuple | dict | set | frozenset) and len(value) > VALUE_CHARS_MAX // 10:
            line[key] = cut_text(repr(value), VALUE_CHARS_MAX)


def cut_text(text: str, chars_max: int) -> str:
    if len(text) <= chars_max:
        return text
    half = chars_max // 2
    return f"{text[:half]}... ({len(text)} characters) ...{text[-half:]}"
