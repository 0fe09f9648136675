"""Pure replication arithmetic of a leader against slow reference versions (REP-11, REP-21 to REP-23)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from brokers.engine.partitions.leadership import Leadership
from brokers.engine.partitions.progress import (
    FollowerProgress,
    effective_min_insync_replicas,
    may_join,
    out_of_sync_replicas,
)


@given(st.integers(0, 50), st.lists(st.integers(-1, 60), max_size=4))
def test_the_committed_offset_is_the_minimum_of_all_that_count(leader_end: int, ends: list[int]) -> None:
    others = tuple(range(2, 2 + len(ends)))
    leadership = Leadership()
    leadership.begin(others, (1, *others), epoch_start_offset=0, now_ms=0)
    for replica, end in zip(others, ends, strict=True):
        leadership.followers[replica].update_fetch_state(end, 0, leader_end, 0)
    held_by_all = max((offset for offset in range(-1, leader_end + 1) if all(end >= offset for end in ends)), default=0)
    assert leadership.committed_offset(leader_end) == held_by_all


def test_a_follower_is_caught_up_at_the_log_end_of_its_last_fetch() -> None:
    """REP-21."""
    follower = FollowerProgress()
    follower.update_fetch_state(0, 0, leader_end_offset=10, now_ms=100)
    assert follower.caught_up_ms == 0
    follower.update_fetch_state(10, 0, leader_end_offset=20, now_ms=200)
    assert follower.caught_up_ms == 100
    follower.update_fetch_state(20, 0, leader_end_offset=20, now_ms=300)
    assert follower.caught_up_ms == 300


def test_members_leave_when_behind_too_long_and_join_when_they_have_everything_committed() -> None:
    """REP-13, REP-22, REP-23."""
    quick, slow = FollowerProgress(caught_up_ms=1_000), FollowerProgress(caught_up_ms=1_000)
    quick.update_fetch_state(50, 0, 50, 40_000)
    slow.update_fetch_state(30, 0, 50, 40_000)
    followers = {2: quick, 3: slow}
    assert out_of_sync_replicas((1, 2, 3), 1, followers, 50, 31_000) == ()
    assert out_of_sync_replicas((1, 2, 3), 1, followers, 50, 31_001) == (3,)
    assert may_join(quick, 40, 45)
    assert not may_join(slow, 40, 0)
    assert not may_join(slow, 20, 31)
    assert effective_min_insync_replicas(2, 1) == 1
