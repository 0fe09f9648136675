"""Schedule of the process's garbage collection (`garbage`)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from brokers.engine.garbage import KEPT_AFTER_MS, OBJECTS_MAX, OBJECTS_MIN, WHOLE_INTERVAL_MS, Action, Schedule

SECOND_MS = 1_000


def test_a_long_request_under_way_is_not_looked_at() -> None:
    schedule = Schedule(0)
    assert schedule.next(OBJECTS_MAX + 1, SECOND_MS) is Action.NOTHING
    assert schedule.next(OBJECTS_MIN, 2 * SECOND_MS) is Action.COLLECT_NEW


def test_many_objects_that_stay_are_kept_without_a_look() -> None:
    schedule = Schedule(0)
    actions = [schedule.next(10 * OBJECTS_MAX, now_ms) for now_ms in range(0, 2 * KEPT_AFTER_MS, SECOND_MS)]
    assert actions.count(Action.KEEP_ALL) == 1
    assert set(actions) == {Action.NOTHING, Action.KEEP_ALL}


@given(st.lists(st.integers(0, 2 * OBJECTS_MAX), min_size=1, max_size=200), st.integers(1, 3_600))
def test_it_never_looks_while_many_objects_are_new(counts: list[int], interval_s: int) -> None:
    schedule = Schedule(0)
    for number, count in enumerate(counts, start=1):
        action = schedule.next(count, number * interval_s * SECOND_MS)
        if count > OBJECTS_MAX:
            assert action in (Action.NOTHING, Action.KEEP_ALL)
        elif action is Action.COLLECT_WHOLE:
            assert number * interval_s * SECOND_MS >= WHOLE_INTERVAL_MS


def test_a_whole_collection_is_repeated_after_an_hour_when_little_is_new() -> None:
    schedule = Schedule(0)
    assert schedule.next(OBJECTS_MAX + 1, WHOLE_INTERVAL_MS) is Action.NOTHING
    assert schedule.next(0, WHOLE_INTERVAL_MS + 1) is Action.COLLECT_WHOLE
    assert schedule.next(0, WHOLE_INTERVAL_MS + 2) is Action.NOTHING
