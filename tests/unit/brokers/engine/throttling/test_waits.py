"""Connections and requests wait in order until the debt of a limiter is paid, and end early if it shrinks."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

from brokers.engine.throttling.charging import Limiter, Rule, charge, find_longest_debt
from brokers.engine.throttling.pool import Pool, PoolOutbox
from brokers.engine.throttling.waits import CANCELLED_MIN, LimiterQueue, Mute, find_or_create_queue
from quotas.pacing import Pace

RULE = Rule("instance_bandwidth", "producer_byte_rate", None, None)


@dataclass(order=True)
class _Timer:
    at_ms: int
    number: int
    callback: Callable[[], object] | None = field(compare=False)

    def cancel(self) -> None:
        self.callback = None


class Clock:
    """An event loop whose time the test moves."""

    def __init__(self) -> None:
        self.now_ms = 0
        self._timers: list[_Timer] = []

    def monotonic_ms(self) -> int:
        return self.now_ms

    def call_later(self, delay_ms: int, callback: Callable[[], object]) -> _Timer:
        timer = _Timer(self.now_ms + delay_ms, len(self._timers), callback)
        heapq.heappush(self._timers, timer)
        return timer

    def move_to(self, at_ms: int) -> None:
        while self._timers and self._timers[0].at_ms <= at_ms:
            timer = heapq.heappop(self._timers)
            self.now_ms = max(self.now_ms, timer.at_ms)
            if timer.callback is not None:
                timer.callback()
        self.now_ms = at_ms

    @property
    def pending(self) -> int:
        return sum(timer.callback is not None for timer in self._timers)


class _Over:
    is_over = True


class AtOnce:
    """A loop share that runs work at once."""

    def run_or_enqueue(self, work: Callable[[], object]) -> _Over:
        work()
        return _Over()


class InLine:
    """A loop share that queues work until the test runs it."""

    is_over = False

    def __init__(self) -> None:
        self.works: list[Callable[[], object]] = []

    def run_or_enqueue(self, work: Callable[[], object]) -> InLine:
        self.works.append(work)
        return self


TURNS = AtOnce()


def limiter(limit: float = 1_000) -> Limiter:
    return Limiter(RULE, limit, 0, Pace(0))


def muted(owed: Limiter, clock: Clock, size_bytes: int, name: str, over: list[tuple[str, int]]) -> Mute:
    delay_ms, _ = charge((owed,), size_bytes, clock.now_ms)
    mute = Mute(owed, delay_ms, clock)
    mute.begin(lambda: over.append((name, clock.now_ms)))
    return mute


def test_a_mute_lasts_as_long_as_it_was_answered() -> None:
    clock, owed, over = Clock(), limiter(), []
    mute = muted(owed, clock, 2_000, "a", over)
    assert mute.delay_ms == 2_000
    muted(owed, clock, 500, "b", over)
    clock.move_to(5_000)
    assert over == [("a", 2_000), ("b", 2_500)], "each pays for what was charged up to its request"
    assert owed.debt_watcher is None
    assert clock.pending == 0


def test_a_raised_limit_ends_mutes_when_they_are_paid_at_the_new_one() -> None:
    clock, owed, over = Clock(), limiter(), []
    muted(owed, clock, 20_000, "a", over)
    muted(owed, clock, 10_000, "b", over)
    clock.move_to(1_000)
    owed.set_limit(10_000, 1_000)
    clock.move_to(60_000)
    assert over == [("a", 2_900), ("b", 3_900)]


def test_an_answer_of_the_flow_master_ends_mutes_earlier() -> None:
    clock, over = Clock(), []
    owed = limiter(1_000)
    pool = Pool(("ins-aaaaaaaa", 0, ""), PoolOutbox(), 0)
    pool.set_limit(3_000, 0)
    owed.use_pool(pool)
    muted(owed, clock, 3_000, "a", over)
    pool.begin_request(0)
    clock.move_to(5)
    pool.apply_answer(995_000, True, 5)
    clock.move_to(2_999)
    assert over == [("a", 1_000)]


def test_a_lowered_limit_keeps_nobody_longer_than_it_was_answered() -> None:
    clock, owed, over = Clock(), limiter(), []
    muted(owed, clock, 2_000, "a", over)
    owed.set_limit(10, 0)
    owed.on_debt_changed(0)
    clock.move_to(10_000)
    assert over == [("a", 2_000)]


def test_requests_are_admitted_one_debt_after_the_other_in_the_order_in_which_they_came() -> None:
    clock, owed, over = Clock(), limiter(), []
    charge((owed,), 1_000, 0)

    def admitted(name: str) -> None:
        over.append((name, clock.now_ms))
        charge((owed,), 500, clock.now_ms)

    for name in "abc":
        assert find_longest_debt((owed,), clock.now_ms) is owed
        find_or_create_queue(owed, clock).admit(lambda name=name: admitted(name), TURNS)
    clock.move_to(10_000)
    assert over == [("a", 1_000), ("b", 1_500), ("c", 2_000)]


def test_a_cancelled_wait_gives_its_place_to_the_next() -> None:
    clock, owed, over = Clock(), limiter(), []
    charge((owed,), 1_000, 0)
    waits = [
        find_or_create_queue(owed, clock).admit(lambda number=number: over.append(number), TURNS) for number in range(5)
    ]
    for wait in waits[:4]:
        wait.cancel()
        wait.cancel()
    clock.move_to(1_000)
    assert over == [4]


def test_those_that_left_are_not_kept() -> None:
    clock, owed = Clock(), limiter()
    charge((owed,), 10**9, 0)
    stays = find_or_create_queue(owed, clock).admit(lambda: None, TURNS)
    for _ in range(50):
        for wait in [find_or_create_queue(owed, clock).admit(lambda: None, TURNS) for _ in range(CANCELLED_MIN)]:
            wait.cancel()
    queue = owed.debt_watcher
    assert isinstance(queue, LimiterQueue)
    assert len(queue) <= 2 * CANCELLED_MIN + 2
    assert not stays.is_cancelled


def test_limits_that_are_set_anew_let_all_ask_again() -> None:
    clock, owed, over = Clock(), limiter(1), []
    muted(owed, clock, 10**6, "a", over)
    find_or_create_queue(owed, clock).admit(lambda: over.append(("b", clock.now_ms)), TURNS)
    assert owed.debt_watcher is not None
    owed.debt_watcher.end_all_waits()
    clock.move_to(1)
    assert over == [("a", 0), ("b", 0)]


def test_kafkas_window_alone_leaves_a_debt_with_its_connection() -> None:
    owed = Limiter(RULE, 100, 0)
    assert charge((owed,), 10_000, 0)[0] > 0
    assert find_longest_debt((owed,), 0) is None


def test_an_instance_that_used_its_share_of_the_loop_is_admitted_one_request_a_turn() -> None:
    clock, owed, turns, over = Clock(), limiter(), InLine(), []
    charge((owed,), 1_000, 0)
    for number in range(3):
        find_or_create_queue(owed, clock).admit(lambda number=number: over.append(number), turns)
    clock.move_to(5_000)
    assert (over, len(turns.works)) == ([], 1)
    turns.works.pop()()
    clock.move_to(5_001)
    assert (over, len(turns.works)) == ([0], 1)
    turns.works.pop()()
    clock.move_to(5_002)
    turns.works.pop()()
    clock.move_to(5_003)
    assert over == [0, 1, 2]
    assert owed.debt_watcher is None
