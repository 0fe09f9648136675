"""Timers against a model, a plain dictionary of deadlines."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from brokers.engine.coordinators.timers import STALE_ENTRIES_MAX, Timers

KEYS = st.sampled_from(["a", "b", "c"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), KEYS, st.integers(0, 60)),
        st.tuples(st.just("cancel"), KEYS, st.just(0)),
        st.tuples(st.just("pop_due_keys"), st.just(""), st.integers(0, 30)),
    )
)


@given(STEPS)
def test_every_deadline_comes_up_once_and_in_time(steps: list[tuple[str, str, int]]) -> None:
    timers, model, now_ms = Timers(), dict[str, int](), 0
    for step, key, amount in steps:
        match step:
            case "set":
                timers.set(key, now_ms + amount)
                model[key] = now_ms + amount
            case "cancel":
                timers.cancel(key)
                model.pop(key, None)
            case _:
                now_ms += amount
                expected = {key for key, deadline_ms in model.items() if deadline_ms <= now_ms}
                result = timers.pop_due_keys(now_ms)
                assert len(result) == len(set(result))
                assert set(result) == expected
                for gone in expected:
                    del model[gone]
        assert len(timers) == len(model)
        if model:
            next_ms = timers.next_ms
            assert next_ms is not None and next_ms <= min(model.values())


def test_a_deadline_that_moves_out_a_thousand_times_is_queued_once() -> None:
    timers = Timers()
    for at_ms in range(1_000):
        timers.set("session", at_ms + 100)
    assert timers.pop_due_keys(1_098) == []
    assert timers.pop_due_keys(1_099) == ["session"]
    assert timers.next_ms is None


def test_deadlines_that_are_cancelled_take_no_memory_until_their_time() -> None:
    timers = Timers()
    timers.set("lasting", 500)
    for member in range(10_000):
        timers.set(("session", member), 1_800_000)
        timers.cancel(("session", member))
    assert timers.heap_size <= STALE_ENTRIES_MAX + 2
    assert timers.pop_due_keys(1_800_000) == ["lasting"]


def test_deadlines_that_move_nearer_take_no_memory_for_each_move() -> None:
    timers = Timers()
    for sooner_ms in range(10_000):
        timers.set("session", 1_800_000 - sooner_ms)
    assert timers.heap_size <= STALE_ENTRIES_MAX + 2
    assert timers.pop_due_keys(1_790_001) == ["session"]
    assert timers.pop_due_keys(1_800_000) == []


def test_due_timers_beyond_the_batch_stay_due() -> None:
    timers = Timers()
    for number in range(5):
        timers.set(number, 10 + number)

    assert timers.pop_due_keys(100, 2) == [0, 1]
    assert timers.next_ms == 12
    assert timers.pop_due_keys(100, 2) == [2, 3]
    assert timers.pop_due_keys(100, 2) == [4]
