"""Throttled replication: the rate stays within the limit, and a delay is long enough (QUO-60 to QUO-62)."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from brokers.engine.partitions.throttled_replicas import is_list_of_replicas, parse
from brokers.engine.throttling.replication import DELAY_MS_MAX, UNLIMITED, ReplicationThrottle

MB = 1_000_000
HALF_MINUTE_MS = 30_000
# The most that followers fetch of one partition.
CHUNK_BYTES_MAX = 1 << 20


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


def test_a_quiet_time_is_not_saved_up_for_longer_than_the_windows() -> None:
    throttle = ReplicationThrottle(1 * MB)
    throttle.record(1, 0)
    throttle.record(11 * MB, 11_000)
    assert throttle.is_exceeded(21_000)
    assert not throttle.is_exceeded(22_000)


def test_a_batch_larger_than_all_windows_allow_is_paid_for_to_the_end() -> None:
    """A megabyte at 10 kB/s takes 100 seconds, not the 11 seconds over which the rate is measured."""
    throttle = ReplicationThrottle(10_000)
    throttle.record(1 * MB, 0)
    assert all(throttle.is_exceeded(now_ms) for now_ms in range(0, 99_000, 500))
    assert not throttle.is_exceeded(100_000)


def test_a_higher_limit_is_in_force_at_once() -> None:
    throttle = ReplicationThrottle(10_000)
    throttle.record(1 * MB, 0)
    assert throttle.is_exceeded(30_000)
    throttle.limit_bytes_per_s = 10 * MB
    assert not throttle.is_exceeded(30_000)


def test_a_lower_limit_counts_what_is_in_the_windows_and_makes_no_hours_of_it() -> None:
    """QUO-7: the bytes in the windows are measured against the present limit; later copies are not slowed."""
    throttle = ReplicationThrottle(100 * MB)
    for second in range(10):
        throttle.record(100 * MB, second * 1_000)
    throttle.limit_bytes_per_s = 10_000
    assert throttle.is_exceeded(10_000)
    assert throttle.is_exceeded(19_000)
    assert not throttle.is_exceeded(21_000)


def test_copied_while_there_was_no_limit_is_owed_to_nobody() -> None:
    throttle = ReplicationThrottle()
    throttle.record(1_000 * MB, 0)
    throttle.limit_bytes_per_s = 10_000
    assert not throttle.is_exceeded(11_000)


def test_without_a_limit_nobody_waits() -> None:
    throttle = ReplicationThrottle(UNLIMITED)
    throttle.record(50 * MB, 0)
    assert (throttle.is_limited, throttle.delay_ms(0)) == (False, 0)


@given(st.integers(10_000, 5 * MB), st.lists(st.integers(1, MB), min_size=1, max_size=60))
def test_a_follower_that_waits_the_given_delay_stays_at_the_limit(limit: int, pieces: list[int]) -> None:
    throttle = ReplicationThrottle(limit)
    now_ms, copied = 0, 0
    for piece in pieces:
        while delay_ms := throttle.delay_ms(now_ms):
            now_ms += delay_ms
        throttle.record(piece, now_ms)
        copied += piece
        # One chunk may begin while the rate is within the limit; QUO-62 allows one window more.
        assert copied - piece <= limit * (now_ms + 1_000) / 1_000 + 1


@given(
    st.sampled_from([10_000, 33_000, 95_000, 250_000, 1 * MB, 7 * MB, 100 * MB]),
    st.integers(100, 1 * MB),
    st.lists(st.integers(0, 40), min_size=1, max_size=8),
)
@settings(max_examples=60)
def test_the_mean_over_any_half_minute_is_the_limit(limit: int, batch: int, pauses_ms: list[int]) -> None:
    """QUO-62, for a follower that always has more to copy, in chunks of batches, and polls later than allowed."""
    throttle = ReplicationThrottle(limit)
    chunk = max(batch, min(CHUNK_BYTES_MAX, throttle.chunk_bytes) // batch * batch)
    now_ms, copied = 0, [(0, 0)]
    while now_ms < 3 * HALF_MINUTE_MS:
        while delay_ms := throttle.delay_ms(now_ms):
            now_ms += delay_ms + pauses_ms[len(copied) % len(pauses_ms)]
        throttle.record(chunk, now_ms)
        copied.append((now_ms, chunk))
    # One window more at the start, and one chunk at the end.
    most = limit * (HALF_MINUTE_MS + 1_000) / 1_000 + chunk + 1
    since, inside = 0, 0
    for at_ms, count in copied:
        inside += count
        while copied[since][0] <= at_ms - HALF_MINUTE_MS:
            inside -= copied[since][1]
            since += 1
        assert inside <= most
    assert sum(count for _, count in copied) >= 0.95 * limit * now_ms / 1_000 - chunk


def test_the_list_of_throttled_replicas_is_read_as_kafka_writes_it() -> None:
    """QUO-60."""
    everything = parse("*")
    assert everything is not None
    assert everything.includes(7, 3)
    some = parse("0:1, 2:3")
    assert some is not None
    assert (some.includes(0, 1), some.includes(2, 3), some.includes(0, 3)) == (True, True, False)
    assert parse("") is None
    assert [is_list_of_replicas(value) for value in ("", "*", "0:1,1:2", "0:1, 1:2", "0", "a:b", "*,0:1", "0:1,")] == [
        True, True, True, True, False, False, False, False,
    ]  # fmt: skip
