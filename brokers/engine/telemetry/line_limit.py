"""Limits on a broker's log: lines per event and minute, and the length of values. Pure.

A tenant may find out how to cause any log line ten thousand times a second.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any, Final

LINES_PER_MINUTE_MAX: Final = 100
VALUE_CHARS_MAX: Final = 500
# Length of a traceback, from which the middle is cut.
EXCEPTION_CHARS_MAX: Final = 8_000
# Different events per minute, beyond which all others count as one, because messages of libraries may vary freely.
EVENTS_MAX: Final = 200
OTHERS: Final = "(other)"
_MINUTE_MS: Final = 60_000


class LineLimit:
    """Limit on log lines per event and minute. `monotonic_ms` returns the time."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._monotonic_ms = monotonic_ms
        self._minute = -1
        self._line_count_by_event: dict[str, int] = {}
        self._suppressed_by_event: dict[str, int] = {}

    def admit(self, event: str) -> int | None:
        """Returns the number of suppressed lines of this event since its last line, None if this one is suppressed."""
        minute = self._monotonic_ms() // _MINUTE_MS
        if minute != self._minute:
            self._minute = minute
            self._line_count_by_event.clear()
        if event not in self._line_count_by_event and len(self._line_count_by_event) >= EVENTS_MAX:
            event = OTHERS
        line_count = self._line_count_by_event[event] = self._line_count_by_event.get(event, 0) + 1
        if line_count <= LINES_PER_MINUTE_MAX:
            return self._suppressed_by_event.pop(event, 0)
        self._suppress(event)
        return None

    def _suppress(self, event: str) -> None:
        """Counts a suppressed line. The event whose last one is oldest gives its count to `OTHERS` for a new event."""
        count = self._suppressed_by_event.pop(event, 0) + 1
        while len(self._suppressed_by_event) >= EVENTS_MAX:
            oldest = next(name for name in self._suppressed_by_event if name != OTHERS)
            self._suppressed_by_event[OTHERS] = self._suppressed_by_event.get(
                OTHERS, 0
            ) + self._suppressed_by_event.pop(oldest)
        self._suppressed_by_event[event] = self._suppressed_by_event.get(event, 0) + count


def truncate_values(line: MutableMapping[str, Any]) -> None:
    """Shortens long values of a line in place."""
    for key, value in line.items():
        if key == "exception":
            line[key] = truncate_middle(str(value), EXCEPTION_CHARS_MAX)
        elif isinstance(value, str):
            line[key] = truncate_middle(value, VALUE_CHARS_MAX)
        elif isinstance(value, list | tuple | dict | set | frozenset) and len(value) > VALUE_CHARS_MAX // 10:
            line[key] = truncate_middle(repr(value), VALUE_CHARS_MAX)


def truncate_middle(text: str, chars_max: int) -> str:
    """Returns the text, or its beginning and end if it has more than `chars_max` characters."""
    if len(text) <= chars_max:
        return text
    half = chars_max // 2
    return f"{text[:half]}... ({len(text)} characters) ...{text[-half:]}"
