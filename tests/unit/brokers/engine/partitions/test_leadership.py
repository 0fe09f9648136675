"""Follower progress, ISR and pending requests on a leader (REP-11, REP-14, REP-24, REP-26)."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from brokers.engine.partitions.delayed_operations import DelayedReplication
from brokers.engine.partitions.leadership import SWEEP_COUNT_MIN, Leadership

NEVER = 1 << 40


def leadership(isr: tuple[int, ...] = (1, 2, 3)) -> Leadership:
    made = Leadership()
    made.begin((2, 3), isr, epoch_start_offset=0, now_ms=0)
    return made


def wait() -> DelayedReplication:
    return DelayedReplication(lambda: None)


def test_members_of_both_isrs_count_during_a_write() -> None:
    """REP-24."""
    made = leadership()
    made.followers[2].update_fetch_state(10, 0, 10, 0)
    assert made.committed_offset(10) == -1
    made.propose((1, 2))
    assert made.committed_offset(10) == -1
    made.confirm((2, 3), (1, 2))
    made.propose(None)
    assert made.committed_offset(10) == 10


def test_the_high_watermark_waits_for_a_follower_only_while_it_keeps_up() -> None:
    """REP-11: it is about to join and must not miss records that were committed meanwhile."""
    made = leadership(isr=(1, 2))
    made.followers[2].update_fetch_state(10, 0, 10, 5_000)
    made.followers[3].update_fetch_state(7, 0, 7, 5_000)
    assert made.committed_offset(10) == 7
    made.followers[3].update_keeps_up(40_000, 30_000)
    assert made.committed_offset(10) == 10


def test_the_high_watermark_does_not_wait_for_dead_or_stopping_brokers() -> None:
    """REP-34: it was caught up a moment ago and will not fetch again."""
    made = leadership(isr=(1, 2))
    made.followers[2].update_fetch_state(10, 0, 10, 5_000)
    made.followers[3].update_fetch_state(7, 0, 7, 5_000)
    made.unavailable_brokers = frozenset({3})
    assert made.committed_offset(10) == 10
    made.confirm((2, 3), (1, 2, 3))
    assert made.committed_offset(10) == 7


def test_a_follower_with_deleted_records_does_not_join_the_isr() -> None:
    """LOG-46: the deletion was confirmed to a client while the replica was down."""
    made = leadership(isr=(1, 2))
    made.followers[3].update_fetch_state(10, 0, 10, 5_000)
    assert made.isr_candidates(10, start_offset=4) == []
    made.followers[3].update_fetch_state(10, 4, 10, 5_000)
    assert made.isr_candidates(10, start_offset=4) == [3]


def test_an_epoch_begins_without_knowledge_of_followers() -> None:
    """REP-26."""
    made = leadership()
    made.followers[2].update_fetch_state(10, 0, 10, 5)
    made.begin((2, 3), (1, 2), epoch_start_offset=10, now_ms=99)
    assert [made.followers[id].end_offset for id in (2, 3)] == [-1, -1]
    assert [made.followers[id].caught_up_ms for id in (2, 3)] == [99, 0]


def test_new_replicas_are_unknown_and_remaining_ones_are_known() -> None:
    made = leadership()
    made.followers[2].update_fetch_state(10, 0, 10, 5)
    made.confirm((2, 4), (1, 2))
    assert {id: follower.end_offset for id, follower in made.followers.items()} == {2: 10, 4: -1}


def test_the_low_watermark_is_the_lowest_log_start_of_in_sync_replicas() -> None:
    made = leadership(isr=(1, 2))
    assert made.low_watermark(5) == -1
    made.followers[2].update_fetch_state(10, 3, 10, 0)
    assert made.low_watermark(5) == 3
    made.followers[2].update_fetch_state(10, 5, 10, 0)
    assert made.low_watermark(5) == 5


@given(st.lists(st.integers(0, 50)), st.lists(st.integers(0, 60), max_size=5))
def test_waits_end_in_the_order_of_their_offsets_and_once(offsets: list[int], watermarks: list[int]) -> None:
    made = leadership()
    wanted: dict[DelayedReplication, int] = {}
    for offset in offsets:
        pending = wait()
        wanted[pending] = offset
        made.await_commit(pending, offset)
    for watermark in watermarks:
        result = [wanted.pop(pending) for pending in made.pop_committed(watermark)]
        assert result == sorted(result)
        assert all(offset < watermark for offset in result)
        assert all(offset >= watermark for offset in wanted.values())
    assert set(made.delayed_operations()) == set(wanted)


def test_expired_requests_do_not_accumulate() -> None:
    made = leadership()
    for number in range(10 * SWEEP_COUNT_MIN):
        item = wait()
        made.await_commit(item, NEVER + number)
        item.expire()
    assert len(made.delayed_operations()) <= SWEEP_COUNT_MIN


def test_a_hundred_thousand_pending_requests_do_not_slow_an_append() -> None:
    """REP-14: an append looks at none of them, and the high watermark only at those it passes."""

    def rounds_s(made: Leadership) -> float:
        begun = time.process_time()
        for number in range(2_000):
            made.await_commit(wait(), number)
            made.pop_committed(number + 1)
        return time.process_time() - begun

    crowded = leadership()
    for number in range(100_000):
        crowded.await_commit(wait(), NEVER + number)
    alone_s = min(rounds_s(leadership()) for _ in range(3))
    assert min(rounds_s(crowded) for _ in range(3)) < 10 * alone_s
