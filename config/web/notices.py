"""Rate-limited log messages: frequent events are counted and logged periodically."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

NOTICE_EVERY_S = 10.0


class Notices:
    """Logs each kind of event immediately, and then at most every ten seconds with the number of events since."""

    def __init__(self, say: Callable[..., None]) -> None:
        self._say = say
        self._counts: Counter[str] = Counter()
        self._said_s: dict[str, float] = {}

    def add(self, what: str, now_s: float) -> None:
        self._counts[what] += 1
        self._tell(what, now_s)

    def flush(self, now_s: float) -> None:
        for what in list(self._counts):
            self._tell(what, now_s)

    def _tell(self, what: str, now_s: float) -> None:
        if now_s - self._said_s.get(what, -NOTICE_EVERY_S) >= NOTICE_EVERY_S:
            self._said_s[what] = now_s
            self._say("%s (%d)", what, self._counts.pop(what))
