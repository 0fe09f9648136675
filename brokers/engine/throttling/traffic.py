"""Traffic of an instance on this broker by second, for the live chart: a ring of the last 15 minutes.

The longest delay of each of these minutes is kept as well, for the control plane, which stores delays for longer.
"""

from __future__ import annotations

from array import array
from typing import Final

SECONDS_KEPT: Final = 900
STEP_MS: Final = 1_000
_COLUMNS: Final = 4
MINUTE_MS: Final = 60_000
MINUTES_KEPT: Final = 15
NEVER_MS: Final = 2**53


class Traffic:
    """Record-batch bytes in and out and the longest delay of each second with traffic or a delay."""

    __slots__ = (
        "_consume_bytes", "_delay_ms_max", "_delayed_minutes", "_next_position", "_produce_bytes", "_rows", "_second",
    )  # fmt: skip

    def __init__(self) -> None:
        self._second = 0
        self._produce_bytes = 0
        self._consume_bytes = 0
        self._delay_ms_max = 0
        self._rows = array("q")
        self._next_position = 0
        self._delayed_minutes: dict[int, int] = {}

    def add_produced(self, count: int, now_ms: int) -> None:
        """Adds `count` bytes that the broker accepted. All times here are wall time."""
        second = now_ms // STEP_MS
        if second != self._second:
            self._end_second(second)
        self._produce_bytes += count

    def add_consumed(self, count: int, now_ms: int) -> None:
        """Adds `count` bytes that the broker sent to consumers."""
        second = now_ms // STEP_MS
        if second != self._second:
            self._end_second(second)
        self._consume_bytes += count

    def record_delay(self, delay_ms: int, now_ms: int) -> None:
        """Records a delay of a client; the longest one of each second and minute is kept."""
        second = now_ms // STEP_MS
        if second != self._second:
            self._end_second(second)
        if delay_ms > self._delay_ms_max:
            self._delay_ms_max = delay_ms
            self._record_minute(second * STEP_MS // MINUTE_MS * MINUTE_MS, delay_ms)

    def delayed_minutes(self, now_ms: int) -> list[list[int]]:
        """Returns `[t_ms, delay_ms_max]` for each of the last 15 minutes in which a client was delayed, in order."""
        oldest_ms = now_ms - MINUTES_KEPT * MINUTE_MS
        return sorted(
            [minute_ms, delay_ms] for minute_ms, delay_ms in self._delayed_minutes.items() if minute_ms > oldest_ms
        )

    def _record_minute(self, minute_ms: int, delay_ms: int) -> None:
        minutes = self._delayed_minutes
        minutes[minute_ms] = max(delay_ms, minutes.get(minute_ms, 0))
        if len(minutes) > MINUTES_KEPT:
            del minutes[min(minutes)]

    def points(self, since_ms: int, now_ms: int, until_ms: int = NEVER_MS) -> list[list[int]]:
        """Returns `[t_ms, produce_bytes, consume_bytes, delay_ms_max]` of the seconds in `[since_ms, until_ms)`, in
        order, the current one included.
        """
        oldest_ms = max(since_ms, now_ms - SECONDS_KEPT * STEP_MS)
        result = []
        if self._second and oldest_ms <= self._second * STEP_MS < until_ms:
            result.append(self._current())
        rows = self._rows
        position = self._next_position
        for _ in range(len(rows) // _COLUMNS):  # backwards from the latest row, only as far as needed
            position = (position or len(rows)) - _COLUMNS
            if rows[position] < oldest_ms:
                break
            if rows[position] < until_ms:
                result.append(list(rows[position : position + _COLUMNS]))
        result.sort()
        return result

    def _current(self) -> list[int]:
        return [self._second * STEP_MS, self._produce_bytes, self._consume_bytes, self._delay_ms_max]

    def _end_second(self, second: int) -> None:
        if self._second:
            row = array("q", self._current())
            if len(self._rows) < SECONDS_KEPT * _COLUMNS:
                self._rows.extend(row)
            else:
                self._rows[self._next_position : self._next_position + _COLUMNS] = row
                self._next_position = (self._next_position + _COLUMNS) % len(self._rows)
        self._second = second
        self._produce_bytes = self._consume_bytes = self._delay_ms_max = 0
