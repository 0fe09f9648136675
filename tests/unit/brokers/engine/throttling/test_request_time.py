"""The limit on the share of a broker's time that the requests of an instance may take (QUO-21)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from brokers.engine.throttling.request_time import REQUEST_TIME_BURST_MS, REQUEST_TIME_PERCENT, RequestTime


def test_an_instance_within_its_share_never_waits() -> None:
    time = RequestTime()
    assert all(time.charge(REQUEST_TIME_PERCENT * 1_000, now_ms) == 0 for now_ms in range(0, 60_000, 100))


@given(st.lists(st.integers(1, 200_000), min_size=20, max_size=200))
def test_an_instance_that_waits_the_given_delay_gets_its_share_and_no_more(spent_us: list[int]) -> None:
    time, now_ms = RequestTime(), 0
    for us in spent_us:
        now_ms += us // 1_000 + time.charge(us, now_ms)
    most_us = (now_ms + REQUEST_TIME_BURST_MS) * 10 * REQUEST_TIME_PERCENT
    assert time.used_us == sum(spent_us) <= most_us + max(spent_us)
