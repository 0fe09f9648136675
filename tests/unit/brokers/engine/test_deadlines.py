"""One timer for all waits: nothing expires early, twice, or after it was dropped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.engine.deadlines import EXPIRED_PER_TURN_MAX, SWEEP_SIZE_MIN, TICK_MS, Deadlines


class Clock:
    """A clock and event loop whose timers fire when the test advances the time."""

    def __init__(self) -> None:
        self.at_ms = 1_000
        self.timers: list[Timer] = []

    def monotonic_ms(self) -> int:
        return self.at_ms

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Timer:
        assert delay_s >= 0
        timer = Timer(self, self.at_ms + delay_s * 1_000, callback)
        self.timers.append(timer)
        return timer

    def pass_until(self, at_ms: int) -> None:
        while self.timers and (first := min(self.timers, key=lambda timer: timer.at_ms)).at_ms <= at_ms:
            self.timers.remove(first)
            self.at_ms = max(self.at_ms, -int(-first.at_ms // 1))
            first.callback()
        self.at_ms = max(self.at_ms, at_ms)


class Timer:
    def __init__(self, clock: Clock, at_ms: float, callback: Callable[[], object]) -> None:
        self._clock = clock
        self.at_ms = at_ms
        self.callback = callback

    def cancel(self) -> None:
        self._clock.timers.remove(self)


class Expirable:
    def __init__(self, clock: Clock, due_ms: int) -> None:
        self._clock = clock
        self.due_ms = due_ms
        self.expired_ms: list[int] = []

    def expire(self) -> None:
        self.expired_ms.append(self._clock.at_ms)


def made() -> tuple[Clock, Deadlines]:
    clock = Clock()
    return clock, Deadlines(cast(asyncio.AbstractEventLoop, clock), cast(Any, clock))


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 2_000)),
        st.tuples(st.just("drop"), st.integers(0, 30)),
        st.tuples(st.just("pass"), st.integers(0, 700)),
    ),
    max_size=60,
)


@given(STEPS)
def test_an_operation_expires_once_within_a_tick_of_its_deadline_unless_dropped(steps: list[tuple[str, int]]) -> None:
    clock, deadlines = made()
    waiting: list[tuple[Expirable, int]] = []
    dropped: set[Expirable] = set()
    for verb, number in steps:
        if verb == "add":
            item = Expirable(clock, clock.at_ms + number)
            waiting.append((item, deadlines.add(item, number)))
        elif verb == "drop" and number < len(waiting):
            item, tick = waiting[number]
            deadlines.drop(item, tick)
            if not item.expired_ms:
                dropped.add(item)
        elif verb == "pass":
            clock.pass_until(clock.at_ms + number)
        assert len(clock.timers) <= 1
        assert all(deadlines._expirables_by_tick.values()), "what was dropped takes no room"
    clock.pass_until(clock.at_ms + 3_000)
    assert not clock.timers, "nothing waits, so nothing is to be woken for"
    for item, _ in waiting:
        if item in dropped:
            assert item.expired_ms == []
        else:
            (at_ms,) = item.expired_ms
            assert item.due_ms <= at_ms <= item.due_ms + 2 * TICK_MS


def test_an_earlier_deadline_moves_the_timer_forward() -> None:
    clock, deadlines = made()
    late, soon = Expirable(clock, 31_000), Expirable(clock, 1_100)
    deadlines.add(late, 30_000)
    deadlines.add(soon, 100)
    clock.pass_until(1_100 + TICK_MS)
    assert soon.expired_ms
    assert not late.expired_ms


def test_one_that_fails_does_not_keep_the_others_from_their_time() -> None:
    clock, deadlines = made()

    class Failing(Expirable):
        def expire(self) -> None:
            raise ValueError("a mistake")

    others = [Expirable(clock, 1_050) for _ in range(3)]
    for other in (Failing(clock, 1_050), *others):
        deadlines.add(other, 50)
    with pytest.raises(ValueError, match="a mistake"):
        clock.pass_until(1_200)
    clock.pass_until(1_300)
    assert all(len(other.expired_ms) == 1 for other in others)


def test_thousands_of_deadlines_of_one_tick_pass_in_many_rounds() -> None:
    clock, deadlines = made()
    items = [Expirable(clock, 1_100) for _ in range(4 * EXPIRED_PER_TURN_MAX + 1)]
    for item in items:
        deadlines.add(item, 100)
    rounds = []
    while clock.timers:
        before = sum(len(item.expired_ms) for item in items)
        (timer,) = clock.timers
        clock.timers.remove(timer)
        clock.at_ms = max(clock.at_ms, -int(-timer.at_ms // 1))
        timer.callback()
        rounds.append(sum(len(item.expired_ms) for item in items) - before)
    assert rounds == [EXPIRED_PER_TURN_MAX] * 4 + [1]
    assert all(len(item.expired_ms) == 1 for item in items)


def test_deadlines_that_are_dropped_take_no_room_for_long() -> None:
    clock, deadlines = made()
    for number in range(20 * SWEEP_SIZE_MIN):
        item = Expirable(clock, 0)
        deadlines.drop(item, deadlines.add(item, 30_000 + 20 * number))
    assert len(deadlines._ticks) <= SWEEP_SIZE_MIN
    assert not deadlines._expirables_by_tick
