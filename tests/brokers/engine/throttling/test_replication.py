"""Copying within a limit: the rate is held, and who is told to wait is told a time that suffices (QUO-60 to QUO-62)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from brokers.engine.partitions.throttled_replicas import is_list_of_replicas, parse
from brokers.engine.throttling.replication import DELAY_MS_MAX, UNLIMITED, ReplicationThrottle

MB = 1_000_000


def test_a_burst_is_waited_off_at_the_limit() -> None:
    throttle = ReplicationThrottle(1 * MB)
    throttle.record(3 * MB, 10_000)
    assert throttle.delay_ms(10_000) == DELAY_MS_MAX
    assert throttle.delay_ms(12_500) == 500
    assert throttle.is_exceeded(12_999)
    assert not throttle.is_exceeded(13_000)


def test_a_first_window_that_is_not_full_counts_as_a_whole_one() -> None:
    """QUO-62: Σ / max(elapsed, w)."""
    throttle = ReplicationThrottle(1 * MB)
    throttle.record(900_000, 5_000)
    assert not throttle.is_exceeded(5_001)
    throttle.record(200_000, 5_010)
    assert throttle.is_exceeded(5_010)


def test_what_was_copied_long_ago_does_not_count() -> None:
    throttle = ReplicationThrottle(1_000)
    throttle.record(50 * MB, 0)
    assert throttle.is_exceeded(10_999)
    assert not throttle.is_exceeded(11_000)


def test_without_a_limit_nobody_waits() -> None:
    throttle = ReplicationThrottle(UNLIMITED)
    throttle.record(50 * MB, 0)
    assert (throttle.is_limited, throttle.delay_ms(0)) == (False, 0)


@given(st.integers(10_000, 5 * MB), st.lists(st.integers(1, MB), min_size=1, max_size=60))
def test_whoever_waits_as_told_stays_at_the_limit(limit: int, pieces: list[int]) -> None:
    throttle = ReplicationThrottle(limit)
    now_ms, copied = 0, 0
    for piece in pieces:
        while delay_ms := throttle.delay_ms(now_ms):
            now_ms += delay_ms
        throttle.record(piece, now_ms)
        copied += piece
        # One piece may begin while the rate is within the limit; a window of grace is QUO-62's.
        assert copied - piece <= limit * (now_ms + 2_000) / 1_000 + MB * (now_ms // 11_000 + 1)


def test_the_list_of_throttled_replicas_is_read_as_kafka_writes_it() -> None:
    """QUO-60."""
    everything = parse("*")
    assert everything is not None
    assert everything.holds(7, 3)
    some = parse("0:1, 2:3")
    assert some is not None
    assert (some.holds(0, 1), some.holds(2, 3), some.holds(0, 3)) == (True, True, False)
    assert parse("") is None
    assert [is_list_of_replicas(value) for value in ("", "*", "0:1,1:2", "0:1, 1:2", "0", "a:b", "*,0:1", "0:1,")] == [
        True, True, True, True, False, False, False, False,
    ]  # fmt: skip
