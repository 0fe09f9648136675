"""QUO-9…17: the worked table, and the window against a naive twin that keeps every sample and adds them up each
time.
"""

from __future__ import annotations

import timeit
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotas.rates import Rate, SampleSettings
from quotas.throttle import DELAY_MS_MAX, charge, delay_ms, fetch_cap_bytes

LIMIT = 1000


@dataclass
class NaiveRate:
    """QUO-10…12 implemented literally."""

    count: int
    width_ms: int
    samples: list[list[int]] = field(default_factory=list)
    current: int = 0

    def record(self, value: int, now_ms: int) -> None:
        if not self.samples:
            self.samples.append([now_ms, now_ms, 0])
        elif now_ms - self.samples[self.current][0] >= self.width_ms:
            self.current = (self.current + 1) % (self.count + 1)
            if self.current == len(self.samples):
                self.samples.append([now_ms, now_ms, 0])
            else:
                self.samples[self.current] = [now_ms, now_ms, 0]
        self.samples[self.current][1] = now_ms
        self.samples[self.current][2] += value

    def measure(self, now_ms: int) -> tuple[int, int]:
        for sample in self.samples:
            if now_ms - sample[1] >= self.count * self.width_ms:
                sample[:] = [now_ms, now_ms, 0]
        if not self.samples:
            self.samples.append([now_ms, now_ms, 0])
        elapsed_ms = now_ms - min(sample[0] for sample in self.samples)
        full = elapsed_ms // self.width_ms
        if full < self.count - 1:
            elapsed_ms += (self.count - 1 - full) * self.width_ms
        return sum(sample[2] for sample in self.samples), max(elapsed_ms, 1)


@pytest.mark.parametrize(
    ("events", "delays"),
    [
        ([(0, 12_000)], [2_000]),
        ([(0, 20_000)], [10_000]),
        ([(0, 10_000), (0, 1_500)], [0, 1_500]),
        ([(second * 1_000, 1_000) for second in range(11)], [0] * 10 + [1_000]),
    ],
)
def test_the_worked_table_of_delays_holds(events: list[tuple[int, int]], delays: list[int]) -> None:
    rate = Rate()

    assert [charge(rate, amount, LIMIT, now_ms) for now_ms, amount in events] == delays


@pytest.mark.parametrize(
    ("now_ms", "observed", "delay"),
    [(5_000, 3_000.0, 20_000), (10_999, 2_727.52, 19_001), (11_000, 0.0, 0)],
)
def test_a_burst_is_remembered_for_eleven_windows(now_ms: int, observed: float, delay: int) -> None:
    rate = Rate()
    rate.record(30_000, 0)

    assert rate.per_second(now_ms) == pytest.approx(observed, abs=0.01)
    assert delay_ms(rate, LIMIT, now_ms) == delay


def test_a_limit_of_zero_blocks_for_the_whole_window() -> None:
    rate = Rate()

    assert delay_ms(rate, 0, 0) == 0
    assert charge(rate, 1, 0, 0) == 11_000


def test_a_delay_is_never_longer_than_the_wire_can_say() -> None:
    assert charge(Rate(), 2**62, 1e-9, 0) == DELAY_MS_MAX


def test_a_record_taken_back_was_never_there() -> None:
    rate = Rate()
    rate.record(10_000, 0)
    rate.record(5_000, 0)
    rate.record(-5_000, 0)

    assert delay_ms(rate, LIMIT, 0) == 0


def test_a_fetch_may_bring_what_the_whole_window_allows() -> None:
    assert fetch_cap_bytes(Rate(), 1_000_000) == 10_000_000


def test_ten_seconds_at_a_large_share_are_no_minutes_of_delay_at_a_small_one() -> None:
    rate = Rate()
    for second in range(10):
        rate.record(1_000_000, second * 1_000)
    rate.scale(0.01)

    assert charge(rate, 1_000, 10_000, 10_000) == 100
    assert rate.total == 101_000


def test_bytes_beyond_a_small_share_do_not_grow_with_it() -> None:
    rate = Rate()
    rate.record(1_000_000, 0)
    rate.scale(100.0)

    assert rate.total == 1_000_000


@given(
    limit=st.integers(1, 10**9), percent=st.integers(0, 100),
    amounts=st.lists(st.tuples(st.integers(0, 1_500), st.integers(0, 10**9)), min_size=1, max_size=20),
)  # fmt: skip
def test_the_used_fraction_of_a_limit_stays_when_the_limit_is_lowered(
    limit: int, percent: int, amounts: list[tuple[int, int]]
) -> None:
    rate, now_ms = Rate(), 0
    for wait_ms, amount in amounts:
        now_ms += wait_ms
        rate.record(amount, now_ms)
    used = rate.per_second(now_ms) / limit
    rate.scale(percent / 100)

    assert rate.per_second(now_ms) / limit == pytest.approx(used * percent / 100, abs=12 / limit)


@given(
    count=st.integers(2, 12),
    width_ms=st.sampled_from([1, 7, 1_000]),
    steps=st.lists(st.tuples(st.integers(0, 4_000), st.integers(-50, 5_000), st.booleans()), max_size=60),
)
def test_the_window_agrees_with_its_naive_twin(count: int, width_ms: int, steps: list[tuple[int, int, bool]]) -> None:
    rate, naive, now_ms = Rate(SampleSettings(count, width_ms)), NaiveRate(count, width_ms), 0
    for wait_ms, value, recorded in steps:
        now_ms += wait_ms
        if recorded:
            rate.record(value, now_ms)
            naive.record(value, now_ms)
        rate.measure(now_ms)
        assert (rate.total, rate.window_ms) == naive.measure(now_ms)


@given(
    limit=st.integers(1_000, 10**9),
    percents=st.lists(st.integers(1, 100), min_size=1, max_size=80),
    window=st.sampled_from([(30, 1_000), (11, 1_000), (10, 30_000)]),
)
def test_a_client_that_waits_the_given_delay_gets_the_limit_plus_one_burst(
    limit: int, percents: list[int], window: tuple[int, int]
) -> None:
    """QUO-35, QUO-36: requests of up to a window's worth, back to back: limit x (time + (n-1) x w) and one request."""
    count, width_ms = window
    rate, now_ms, through = Rate(SampleSettings(count, width_ms)), 0, 0
    for percent in percents:
        amount = limit * width_ms * percent // 100_000
        through += amount
        assert through <= limit * (now_ms + (count - 1) * width_ms) / 1000 + amount + limit / 1000 * len(percents)
        now_ms += charge(rate, amount, limit, now_ms)


def test_recording_and_measuring_stay_far_below_the_cost_of_a_request() -> None:
    rate, clock = Rate(), iter(range(10**9))

    best_s = min(timeit.repeat(lambda: charge(rate, 1_000, 1e9, next(clock)), number=2_000, repeat=20)) / 2_000

    assert best_s < 8e-6, f"{best_s * 1e6:.2f} us"


@pytest.mark.parametrize(("count", "width_ms"), [(30, 1_000), (10, 30_000), (11, 1_000)])
@given(part=st.floats(0.05, 1.0))
def test_a_client_at_ten_times_its_limit_is_ahead_by_the_window_at_most(count: int, width_ms: int, part: float) -> None:
    """QUO-35, QUO-36: it waits for the delays of its answers, and a request is no more than one sample may hold."""
    rate, now_ms, through = Rate(SampleSettings(count, width_ms)), 0.0, 0
    request_bytes = int(part * LIMIT * width_ms / 1_000)
    while now_ms < 3 * count * width_ms:
        through += request_bytes
        assert through <= LIMIT * (now_ms + count * width_ms) / 1_000 + request_bytes
        wait_ms = charge(rate, request_bytes, LIMIT, int(now_ms))
        now_ms += max(wait_ms, request_bytes * 1_000 / (10 * LIMIT))

    assert through >= 0.95 * LIMIT * now_ms / 1_000


def test_a_small_window_corrects_sooner_than_a_large_one() -> None:
    """QUO-36: a second too much, after both have been idle."""
    small, large = Rate(SampleSettings(30, 1_000)), Rate(SampleSettings(10, 30_000))

    assert charge(small, 31_000, LIMIT, 0) == 2_000
    assert charge(large, 31_000, LIMIT, 0) == 0
    assert charge(large, 300_000, LIMIT, 0) == 61_000
