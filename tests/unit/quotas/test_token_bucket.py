"""QUO-40…42: worked examples, and the bound of rate, burst and one change."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotas.pacing import BLOCKED_MS
from quotas.throttle import DELAY_MS_MAX
from quotas.token_bucket import TokenBucket


def test_the_vectors_of_the_specification_hold() -> None:
    bucket = TokenBucket(5, 55)
    assert not bucket.is_exhausted(1_000_000)

    bucket.charge(100, 1_000_000)

    assert bucket.is_exhausted(1_000_000)
    assert [bucket.wait_ms(1_000_000 + after_ms) for after_ms in (0, 1_000, 9_000)] == [9_000, 8_000, 0]
    assert not bucket.is_exhausted(1_009_000)


def test_a_debt_stays_when_the_rate_changes() -> None:
    bucket = TokenBucket(5, 55)
    bucket.charge(65, 0)

    bucket.change(10, 110)

    assert (bucket.wait_ms(0), bucket.wait_ms(500), bucket.wait_ms(1_000)) == (1_000, 500, 0)
    bucket.change(1, 11)
    bucket.charge(11, 100_000)
    assert not bucket.is_exhausted(100_000), "a lowered burst is what there is left"
    bucket.charge(1, 100_000)
    assert bucket.is_exhausted(100_000)


def test_a_rate_of_zero_lets_nothing_begin() -> None:
    bucket = TokenBucket(0, 0)

    assert bucket.is_exhausted(0)
    assert bucket.wait_ms(10**9) == BLOCKED_MS


@pytest.mark.parametrize(("per_s", "cost"), [(1e-9, 1), (5e-324, 10**6)])
def test_no_wait_is_longer_than_a_client_can_read(per_s: float, cost: int) -> None:
    bucket = TokenBucket(per_s, 0)
    bucket.charge(cost, 0)

    assert bucket.wait_ms(0) == DELAY_MS_MAX


@given(
    per_s=st.floats(0.1, 1_000),
    burst=st.floats(0, 10_000),
    steps=st.lists(st.tuples(st.integers(0, 60_000), st.integers(1, 5_000)), min_size=1, max_size=50),
)
def test_admitted_changes_are_bounded_by_rate_burst_and_one_change(
    per_s: float, burst: float, steps: list[tuple[int, int]]
) -> None:
    bucket, now_ms, through = TokenBucket(per_s, burst), 0, 0
    for idle_ms, cost in steps:
        now_ms += idle_ms
        if not bucket.is_exhausted(now_ms):
            bucket.charge(cost, now_ms)
            through += cost
            assert through <= burst + per_s * now_ms / 1_000 + cost + 1e-6
