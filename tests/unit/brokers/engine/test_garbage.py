"""Schedule of the process's garbage collection (`garbage`)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from brokers.engine.garbage import (
    FREEZE_AFTER_MS,
    OBJECTS_MAX,
    OBJECTS_MIN,
    WHOLE_INTERVAL_MS,
    WHOLE_OBJECTS_MAX,
    Action,
    Schedule,
)

ROOT = Path(__file__).resolve().parents[4]
SECOND_MS = 1_000


def test_a_long_request_under_way_is_not_looked_at() -> None:
    schedule = Schedule(0)
    assert schedule.next(OBJECTS_MAX + 1, SECOND_MS) is Action.NOTHING
    assert schedule.next(OBJECTS_MIN, 2 * SECOND_MS) is Action.COLLECT_NEW


def test_many_objects_that_stay_are_frozen_unexamined() -> None:
    schedule = Schedule(0)
    actions = [schedule.next(10 * OBJECTS_MAX, now_ms) for now_ms in range(0, 2 * FREEZE_AFTER_MS, SECOND_MS)]
    assert actions.count(Action.FREEZE) == 1
    assert set(actions) == {Action.NOTHING, Action.FREEZE}


def test_some_objects_that_stay_are_collected_before_they_are_frozen() -> None:
    schedule = Schedule(0)
    actions = [schedule.next(WHOLE_OBJECTS_MAX, now_ms) for now_ms in range(0, 2 * FREEZE_AFTER_MS, SECOND_MS)]
    assert actions.count(Action.COLLECT_WHOLE) == 1
    assert set(actions) == {Action.NOTHING, Action.COLLECT_WHOLE}


def test_objects_that_earlier_collections_found_in_use_count_for_the_pause() -> None:
    schedule = Schedule(0)
    for _ in range(WHOLE_OBJECTS_MAX // OBJECTS_MAX - 1):
        assert schedule.next(OBJECTS_MAX, 0) is Action.COLLECT_NEW
    assert schedule.next(OBJECTS_MAX + 1, SECOND_MS) is Action.NOTHING
    assert schedule.next(OBJECTS_MAX + 1, SECOND_MS + FREEZE_AFTER_MS) is Action.FREEZE
    assert schedule.next(OBJECTS_MAX + 1, 2 * FREEZE_AFTER_MS) is Action.NOTHING
    assert schedule.next(OBJECTS_MAX + 1, 3 * FREEZE_AFTER_MS) is Action.COLLECT_WHOLE


@given(st.lists(st.integers(0, 2 * OBJECTS_MAX), min_size=1, max_size=200))
def test_no_collection_examines_more_objects_than_fit_in_its_pause(counts: list[int]) -> None:
    schedule, in_use = Schedule(0), 0
    for number, count in enumerate(counts, start=1):
        action = schedule.next(count, number * FREEZE_AFTER_MS)
        if action is Action.COLLECT_NEW:
            in_use += count
        elif action is Action.COLLECT_WHOLE:
            assert in_use + count <= WHOLE_OBJECTS_MAX
        if action in (Action.COLLECT_WHOLE, Action.FREEZE):
            in_use = 0


def test_objects_that_come_steadily_and_stay_are_collected_in_bounded_parts() -> None:
    schedule, in_use = Schedule(0), 0
    for number in range(1, WHOLE_INTERVAL_MS // SECOND_MS + 10):
        action = schedule.next(OBJECTS_MIN, number * SECOND_MS)
        in_use += OBJECTS_MIN
        assert in_use <= WHOLE_OBJECTS_MAX
        if action is Action.COLLECT_WHOLE:
            in_use = 0
        else:
            assert action is Action.COLLECT_NEW


GROWS = """
import weakref
from brokers.engine.garbage import FREEZE_AFTER_MS, OBJECTS_MAX, GarbageCollection

class Node:
    pass

collection = GarbageCollection(0)
lost = Node()
lost.itself = lost
seen = weakref.ref(lost)
del lost
kept = [[number] for number in range(OBJECTS_MAX + 1_000)]
collection.collect_some(1_000)
assert seen() is not None
collection.collect_some(1_000 + FREEZE_AFTER_MS)
assert seen() is None
"""


def test_a_cycle_that_is_garbage_while_the_broker_grows_is_freed() -> None:
    subprocess.run([sys.executable, "-c", GROWS], cwd=ROOT, check=True)


@given(st.lists(st.integers(0, 2 * OBJECTS_MAX), min_size=1, max_size=200), st.integers(1, 3_600))
def test_it_never_looks_while_many_objects_are_new(counts: list[int], interval_s: int) -> None:
    schedule = Schedule(0)
    for number, count in enumerate(counts, start=1):
        action = schedule.next(count, number * interval_s * SECOND_MS)
        if count > OBJECTS_MAX:
            assert action is not Action.COLLECT_NEW
            assert action is not Action.COLLECT_WHOLE or count <= WHOLE_OBJECTS_MAX
        elif action is Action.COLLECT_WHOLE:
            is_late = number * interval_s * SECOND_MS >= WHOLE_INTERVAL_MS
            assert is_late or sum(counts[:number]) > WHOLE_OBJECTS_MAX - OBJECTS_MAX


def test_a_whole_collection_is_repeated_after_an_hour_when_little_is_new() -> None:
    schedule = Schedule(0)
    assert schedule.next(OBJECTS_MAX + 1, WHOLE_INTERVAL_MS) is Action.NOTHING
    assert schedule.next(0, WHOLE_INTERVAL_MS + 1) is Action.COLLECT_WHOLE
    assert schedule.next(0, WHOLE_INTERVAL_MS + 2) is Action.NOTHING
