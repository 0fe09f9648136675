"""Schedule of the process's garbage collection: rare collections of few objects each, never triggered by a request.

Requests leave no reference cycles behind (docs/decisions/0075), so there is next to nothing to collect; but a
collection of 10,000 new objects in use takes 5 ms in which no client is served. Python by itself collects when many
objects were created and not freed: in the middle of a long request.
"""

from __future__ import annotations

import gc
from enum import Enum, auto
from typing import Final

INTERVAL_S: Final = 1.0
# Fewer new objects are not worth a collection, more would take too long.
OBJECTS_MIN: Final = 1_000
OBJECTS_MAX: Final = 10_000
# Many new objects that live this long are frozen, which excludes them from all later collections: cluster metadata,
# connections.
FREEZE_AFTER_MS: Final = 30_000
# Maximum number of objects that a whole collection examines: a pause of less than 20 ms. More are frozen unexamined.
WHOLE_OBJECTS_MAX: Final = 30_000
# Interval of collections that include the objects that an earlier collection of new objects found in use.
WHOLE_INTERVAL_MS: Final = 3_600_000


class Action(Enum):
    """Action of the collector at the end of an interval."""

    NOTHING = auto()
    # Collects new objects that only refer to each other.
    COLLECT_NEW = auto()
    # Freezes all objects, and so keeps those for good that only refer to each other.
    FREEZE = auto()
    # Collects all objects that are not frozen, and then freezes the remaining ones.
    COLLECT_WHOLE = auto()


class Schedule:
    """Decides on the next action from the number of new objects. Pure."""

    def __init__(self, now_ms: int) -> None:
        self._many_objects_since_ms: int | None = None
        self._next_whole_ms = now_ms + WHOLE_INTERVAL_MS
        # Objects that collections of new ones found in use, at most. A whole collection is due in time to examine them
        # together with as many new ones as a collection examines.
        self._objects_in_use_max = 0

    def next(self, new_objects: int, now_ms: int) -> Action:
        """Returns the action for the number of objects that were created and not freed since the last collection."""
        if new_objects <= OBJECTS_MAX:
            self._many_objects_since_ms = None
            if (
                now_ms >= self._next_whole_ms
                or self._objects_in_use_max + new_objects > WHOLE_OBJECTS_MAX - OBJECTS_MAX
            ):
                return self._freeze(now_ms, Action.COLLECT_WHOLE)
            if new_objects < OBJECTS_MIN:
                return Action.NOTHING
            self._objects_in_use_max += new_objects
            return Action.COLLECT_NEW
        if self._many_objects_since_ms is None:
            self._many_objects_since_ms = now_ms
        if now_ms - self._many_objects_since_ms < FREEZE_AFTER_MS:
            return Action.NOTHING
        self._many_objects_since_ms = None
        if self._objects_in_use_max + new_objects <= WHOLE_OBJECTS_MAX:
            return self._freeze(now_ms, Action.COLLECT_WHOLE)
        return self._freeze(now_ms, Action.FREEZE)

    def _freeze(self, now_ms: int, action: Action) -> Action:
        self._next_whole_ms = now_ms + WHOLE_INTERVAL_MS
        self._objects_in_use_max = 0
        return action


class GarbageCollection:
    """Takes over from Python's collector at the end of the start; objects that exist by then are never examined."""

    def __init__(self, now_ms: int) -> None:
        gc.collect()
        gc.freeze()
        gc.disable()
        self._schedule = Schedule(now_ms)

    def collect_some(self, now_ms: int) -> None:
        """Runs one step; called once in `INTERVAL_S`."""
        action = self._schedule.next(gc.get_count()[0], now_ms)
        if action is Action.COLLECT_NEW:
            gc.collect(0)
        elif action is Action.COLLECT_WHOLE:
            gc.collect()
            gc.freeze()
        elif action is Action.FREEZE:
            gc.freeze()
