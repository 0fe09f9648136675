"""When this process looks for objects that refer to themselves in a circle: seldom, a few at a time, and never because
a request made many.

Requests leave no circles behind (docs/decisions/0075), so there is next to nothing to find; but to look takes 5 ms for
10,000 objects that are new and still in use, in which nobody is served. Python by itself looks when many came and did
not go: in the middle of a long request.
"""

from __future__ import annotations

import gc
from enum import Enum, auto
from typing import Final

INTERVAL_S: Final = 1.0
# Fewer are not worth looking at, with more it would take too long.
OBJECTS_MIN: Final = 1_000
OBJECTS_MAX: Final = 10_000
# What is still there then stays: images of the cluster, connections.
KEPT_AFTER_MS: Final = 30_000
# What was looked at once and was still in use is looked at again so often.
WHOLE_INTERVAL_MS: Final = 3_600_000


class Action(Enum):
    NOTHING = auto()
    # Of new objects those that only refer to each other go.
    COLLECT_NEW = auto()
    # What there is now is not looked at again.
    KEEP_ALL = auto()
    COLLECT_WHOLE = auto()


class Schedule:
    """Decides what to do, from how many objects are new. Pure."""

    def __init__(self, now_ms: int) -> None:
        self._many_since_ms: int | None = None
        self._whole_at_ms = now_ms + WHOLE_INTERVAL_MS

    def next(self, new_objects: int, now_ms: int) -> Action:
        if new_objects <= OBJECTS_MAX:
            self._many_since_ms = None
            if now_ms >= self._whole_at_ms:
                self._whole_at_ms = now_ms + WHOLE_INTERVAL_MS
                return Action.COLLECT_WHOLE
            return Action.COLLECT_NEW if new_objects >= OBJECTS_MIN else Action.NOTHING
        if self._many_since_ms is None:
            self._many_since_ms = now_ms
        if now_ms - self._many_since_ms < KEPT_AFTER_MS:
            return Action.NOTHING
        self._many_since_ms = None
        return Action.KEEP_ALL


class GarbageCollection:
    """Takes over from Python once everything is built; what lives by then is never looked at."""

    def __init__(self, now_ms: int) -> None:
        gc.collect()
        gc.freeze()
        gc.disable()
        self._schedule = Schedule(now_ms)

    def collect_some(self, now_ms: int) -> None:
        """To be called once in `INTERVAL_S`."""
        action = self._schedule.next(gc.get_count()[0], now_ms)
        if action is Action.COLLECT_NEW:
            gc.collect(0)
        elif action is Action.COLLECT_WHOLE:
            gc.collect()
            gc.freeze()
        elif action is Action.KEEP_ALL:
            gc.freeze()
