"""Log of long turns of the event loop: at most one line per second."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog

from brokers.engine.protocol.apis import ApiKey

log = structlog.get_logger(__name__)

LINE_INTERVAL_MS: Final = 1_000


def api_name(api_key: int) -> str:
    """Returns the name of a call in lower case, such as "fetch"."""
    return ApiKey(api_key).name.lower()


class LongTurnLog:
    """Rate-limited log of long turns. A line has the number of turns that were not logged since the line before."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._monotonic_ms = monotonic_ms
        self._next_ms = 0
        self._suppressed = 0

    def __call__(self, api_key: int, instance: str, spent_s: float) -> None:
        now_ms = self._monotonic_ms()
        if now_ms < self._next_ms:
            self._suppressed += 1
            return
        self._next_ms = now_ms + LINE_INTERVAL_MS
        suppressed, self._suppressed = self._suppressed, 0
        log.warning(
            "long_loop_turn",
            api=api_name(api_key),
            instance=instance,
            spent_ms=round(spent_s * 1000, 1),
            suppressed=suppressed,
        )
