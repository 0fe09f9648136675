"""Retries of ports that could not be opened, and the decision when to log them. Pure: the clock is a parameter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

FIRST_PAUSE_MS: Final = 1_000
PAUSE_MS_MAX: Final = 15_000
# A port may be unavailable for days: the first failure is logged, then one in this interval.
LOG_INTERVAL_MS: Final = 600_000


@dataclass(slots=True)
class _Retry:
    port: int
    pause_ms: int
    due_ms: int
    logged_ms: int


class PortRetries:
    """Listeners whose port could not be opened, each with its own retry delay, which doubles up to a limit.

    Listeners are identified by their names (`assembly.route_sessions.listener_name`).
    """

    def __init__(self) -> None:
        self._retries: dict[str, _Retry] = {}
        self.failures = 0

    def __len__(self) -> int:
        return len(self._retries)

    def record_failure(self, listener_name: str, port: int, now_ms: int) -> bool:
        """Records a failed attempt. Returns True if it should be logged."""
        self.failures += 1
        retry = self._retries.get(listener_name)
        if retry is None or retry.port != port:
            self._retries[listener_name] = _Retry(port, FIRST_PAUSE_MS, now_ms + FIRST_PAUSE_MS, now_ms)
            return True
        retry.pause_ms = min(retry.pause_ms * 2, PAUSE_MS_MAX)
        retry.due_ms = now_ms + retry.pause_ms
        if now_ms - retry.logged_ms < LOG_INTERVAL_MS:
            return False
        retry.logged_ms = now_ms
        return True

    def discard(self, listener_name: str) -> bool:
        """Removes a listener whose port is open or no longer wanted. Returns True if it waited for a retry."""
        return self._retries.pop(listener_name, None) is not None

    def due_listeners(self, now_ms: int) -> list[str]:
        """Returns the names of the listeners whose ports are to be retried now."""
        return [listener_name for listener_name, retry in self._retries.items() if retry.due_ms <= now_ms]
