"""Pacing: short averages are accurate, bursts are short, and no client stays below the limit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotas.pacing import BLOCKED_MS, Pace, fetch_cap_bytes
from quotas.rates import Rate
from quotas.throttle import charge


def test_every_byte_takes_its_time_less_the_burst() -> None:
    pace = Pace(250)

    assert pace.charge(1_000, 1_000, 0) == 750
    assert pace.charge(1_000, 1_000, 750) == 1_000
    assert pace.charge(100, 1_000, 60_000) == 0, "idle time is worth the burst, no more"
    assert pace.charge(1_000, 1_000, 60_000) == 850


def test_a_changed_limit_counts_from_the_next_charge_on() -> None:
    pace = Pace(0)
    pace.charge(1_000, 1_000, 0)

    assert pace.charge(1_000, 1_000_000, 0) == 1_001


def test_a_raised_limit_is_paid_sooner_and_a_lowered_one_owes_no_more() -> None:
    pace = Pace(0)
    pace.charge(1_000_000, 1, 0)
    assert pace.debt_ms(0) == 10**9

    pace.convert_debt(1, 1_000_000, 500)

    assert pace.debt_ms(500) == 1_000
    pace.convert_debt(1_000_000, 10, 500)
    pace.convert_debt(0, 10, 500)
    assert pace.debt_ms(500) == 1_000


def test_a_limit_of_zero_blocks_every_sender() -> None:
    assert Pace().charge(0, 0, 0) == 0
    assert Pace().charge(1, 0, 0) == BLOCKED_MS


def test_a_fetch_brings_a_second_at_most() -> None:
    assert fetch_cap_bytes(1_000_000) == 1_000_000


@pytest.mark.parametrize("request_bytes", [1_000, 16_000, 100_000, 500_000])
@pytest.mark.parametrize("window_s", [10, 30, 60])
def test_a_client_at_ten_times_its_limit_is_held_to_it_within_five_percent(request_bytes: int, window_s: int) -> None:
    """Window and pacing together, as brokers charge them; one request more than the time allows is always
    in progress.
    """
    limit = 1_000_000
    rate, pace, now_ms, through = Rate(), Pace(), 0.0, 0
    while now_ms < window_s * 1_000:
        through += request_bytes
        wait_ms = max(charge(rate, request_bytes, limit, int(now_ms)), pace.charge(request_bytes, limit, int(now_ms)))
        now_ms += max(wait_ms, request_bytes / (10 * limit) * 1_000)

    assert 0.95 <= (through - request_bytes) / (limit * window_s) <= 1.05


@given(
    limit=st.integers(1_000, 10**9),
    burst_ms=st.integers(0, 1_000),
    steps=st.lists(st.tuples(st.integers(0, 5_000), st.integers(1, 10**6)), min_size=1, max_size=50),
)
def test_admitted_bytes_are_bounded_by_time_burst_and_one_request(
    limit: int, burst_ms: int, steps: list[tuple[int, int]]
) -> None:
    pace, now_ms, through = Pace(burst_ms), 0, 0
    for idle_ms, amount in steps:
        now_ms += idle_ms
        through += amount
        assert through <= limit * (now_ms + burst_ms) / 1_000 + amount + 1
        now_ms += pace.charge(amount, limit, now_ms)
