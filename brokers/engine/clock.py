"""The one source of time. Decisions get their times handed in, so that tests move them."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall time, milliseconds since 1970: what records and documents carry."""

    def monotonic_ms(self) -> int:
        """A time that never runs backwards: for rates, delays and deadlines."""


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000
