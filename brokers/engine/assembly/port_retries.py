"""Retries of ports that could not be opened, and the decision when to log them. Pure: the clock is a parameter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

FIRST_PAUSE_MS: Final = 1_000
PAUSE_MS_MAX: Final = 15_000
# A port may be unavailable for days: the first failure is logged, then one in this interval.
LOGGED_EVERY_MS: Final = 600_000


@dataclass(slots=True)
class _Waiting:
    port: int
    pause_ms: int
    due_ms: int
    logged_ms: int


class PortRetries:
    """Listeners whose port could not be opened, each with its own retry delay, which doubles up to a limit.

    The `instance_id` of the methods is the name of a listener (`assembly.route_sessions.listener_name`).
    """

    def __init__(self) -> None:
        self._waiting: dict[str, _Waiting] = {}
        self.failures = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def failed(self, instance_id: str, port: int, now_ms: int) -> bool:
        """Records a failed attempt. Returns True if it should be logged."""
        self.failures += 1
        known = self._waiting.get(instance_id)
        if known is None or known.port != port:
            self._waiting[instance_id] = _Waiting(port, FIRST_PAUSE_MS, now_ms + FIRST_PAUSE_MS, now_ms)
            return True
        known.pause_ms = min(known.pause_ms * 2, PAUSE_MS_MAX)
        known.due_ms = now_ms + known.pause_ms
        if now_ms - known.logged_ms < LOGGED_EVERY_MS:
            return False
        known.logged_ms = now_ms
        return True

    def done(self, instance_id: str) -> bool:
        """Removes a listener whose port is open or no longer wanted. Returns True if it waited for a retry."""
        return self._waiting.pop(instance_id, None) is not None

    def due(self, now_ms: int) -> list[str]:
        """Returns the names of the listeners whose ports are to be retried now."""
        return [instance_id for instance_id, waiting in self._waiting.items() if waiting.due_ms <= now_ms]
