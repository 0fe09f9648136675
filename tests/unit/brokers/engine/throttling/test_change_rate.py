"""Token bucket for the rate at which an instance may change ZooKeeper (QUO-40…42)."""

from __future__ import annotations

from brokers.contract.instance_limits import CHANGES_BURST, CHANGES_PER_S_MAX
from brokers.engine.throttling.request_time import PAUSE_MS_MAX, UNPAUSED_TOKENS, ChangeRate

START_MS = 1_000_000


def test_the_vectors_of_the_specification() -> None:
    """QUO-42: T=5, burst 55."""
    rate = ChangeRate(per_s=5, burst=55)
    assert rate.wait_ms(START_MS) == 0

    rate.charge(100, START_MS)

    assert rate.wait_ms(START_MS) == 9_000
    assert rate.wait_ms(START_MS + 1_000) == 8_000
    assert rate.wait_ms(START_MS + 9_000) == 0


def test_unused_time_is_worth_a_burst_and_no_more() -> None:
    rate = ChangeRate(per_s=5, burst=55)
    rate.charge(55, START_MS)
    assert rate.wait_ms(START_MS) == 0, "what began with tokens left is done in full"

    rate.charge(55, START_MS + 3_600_000)
    rate.charge(1, START_MS + 3_600_000)

    assert rate.wait_ms(START_MS + 3_600_000) == 200


def test_mirrormaker_with_hundreds_of_topics_does_not_wait() -> None:
    rate = ChangeRate()
    for _ in range(300):
        assert rate.wait_ms(START_MS) == 0
        rate.charge(12, START_MS)


def test_a_client_at_full_speed_is_held_to_the_rate() -> None:
    rate, now_ms, done = ChangeRate(), START_MS, 0
    while now_ms < START_MS + 120_000:
        now_ms += rate.wait_ms(now_ms)
        rate.charge(10, now_ms)
        done += 10
    assert done <= CHANGES_BURST + 120 * CHANGES_PER_S_MAX + 20


def test_many_changes_pause_for_as_long_as_each_change_takes() -> None:
    rate = ChangeRate()
    rate.charge(UNPAUSED_TOKENS - 1, START_MS)
    assert rate.pause_ms(START_MS, START_MS + 8) == 0, "few changes wait for nothing"

    rate.charge(1, START_MS)

    assert rate.pause_ms(START_MS, START_MS + 8) == 8
    assert rate.pause_ms(START_MS, START_MS + 10_000) == PAUSE_MS_MAX
    assert rate.pause_ms(START_MS + 8, START_MS) == 0
