"""Rate-limited log messages: frequent events are counted and logged periodically."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

LOG_INTERVAL_S = 10.0


class RateLimitedLog:
    """Logs each kind of event immediately, and then at most every ten seconds with the number of events since."""

    def __init__(self, log: Callable[..., None]) -> None:
        self._log = log
        self._counts: Counter[str] = Counter()
        self._logged_at_s: dict[str, float] = {}

    def add(self, event: str, now_s: float) -> None:
        """Counts an event, and logs it if its interval is over."""
        self._counts[event] += 1
        self._write(event, now_s)

    def flush(self, now_s: float) -> None:
        """Logs the counted events whose interval is over; called periodically."""
        for event in list(self._counts):
            self._write(event, now_s)

    def _write(self, event: str, now_s: float) -> None:
        if now_s - self._logged_at_s.get(event, -LOG_INTERVAL_S) >= LOG_INTERVAL_S:
            self._logged_at_s[event] = now_s
            self._log("%s (%d)", event, self._counts.pop(event))
