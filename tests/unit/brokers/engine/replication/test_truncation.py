"""Truncation of diverged logs: every history ends at the last common record (REP-15, KIP-279)."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from brokers.engine.replication.truncation import OutOfRangeAction, resolve_out_of_range, truncation_offset
from brokers.engine.storage.leader_epochs import LeaderEpochs

ROUNDS_MAX = 50


def epochs_of(history: list[int], led_in: int | None = None) -> LeaderEpochs:
    """Returns the epochs of a log; `history` has the epoch of each offset, and `led_in` is an epoch without records."""
    epochs = LeaderEpochs("", Path())
    for offset, epoch in enumerate(history):
        if epoch > epochs.latest:
            epochs.entries.append((epoch, offset))
    if led_in is not None and led_in > epochs.latest:
        epochs.entries.append((led_in, len(history)))
    return epochs


@st.composite
def parted_logs(draw: st.DrawFn) -> tuple[list[int], list[int], int]:
    """Draws (follower, leader, common length): a common past, then separate leaders without knowledge of each other."""
    common = list(accumulate(draw(st.lists(st.integers(0, 2), max_size=12))))
    last = common[-1] if common else 0
    steps = st.lists(st.integers(0, 3), max_size=10)
    # After the divergence one has odd epochs and the other even ones; one of them may continue the last common epoch.
    odd = [2 * (last // 2 + 1 + step) + 1 for step in accumulate(draw(steps))]
    even = [2 * (last // 2 + 1 + step) for step in accumulate(draw(steps))]
    goes_on = [last] * draw(st.integers(0, 3)) if common else []
    if draw(st.booleans()):
        return common + goes_on + odd, common + even, len(common)
    return common + odd, common + goes_on + even, len(common)


@given(parted_logs(), st.booleans())
def test_a_follower_ends_with_exactly_the_common_prefix(
    logs: tuple[list[int], list[int], int], idle_epoch: bool
) -> None:
    follower, leader, common = logs
    current = max([*follower, *leader, 0]) + 2
    leader_epochs = epochs_of(leader, led_in=current)
    # A follower that led for a moment has an epoch without records.
    own_epochs = epochs_of(follower, led_in=current - 1 if idle_epoch else None)
    for _ in range(ROUNDS_MAX):
        if own_epochs.latest < 0:
            break
        epoch, end_offset = leader_epochs.end_offset(own_epochs.latest, len(leader))
        if epoch == own_epochs.latest and end_offset >= len(follower):
            break
        offset = truncation_offset(own_epochs, len(follower), epoch, end_offset)
        assert offset >= min(common, len(follower)), "a record that both have was thrown away"
        follower = follower[:offset]
        own_epochs.entries = [entry for entry in own_epochs.entries if entry[1] < offset]
    else:
        raise AssertionError("the logs never agree")
    assert len(follower) == common if follower != leader[: len(follower)] else len(follower) >= common
    assert follower == leader[: len(follower)]


def test_records_unknown_to_the_leader_are_truncated_and_common_ones_are_kept() -> None:
    epochs = epochs_of([1, 1, 2, 2, 5])
    assert truncation_offset(epochs, 5, leader_epoch=2, leader_end_offset=3) == 3
    assert truncation_offset(epochs, 5, leader_epoch=2, leader_end_offset=9) == 4
    assert truncation_offset(epochs, 5, leader_epoch=4, leader_end_offset=9) == 4
    assert truncation_offset(epochs, 5, leader_epoch=9, leader_end_offset=9) == 5
    assert truncation_offset(epochs, 5, leader_epoch=0, leader_end_offset=0) == 0


def test_an_out_of_range_offset_is_resolved_by_both_ends_of_the_leaders_log() -> None:
    """REP-9."""
    assert resolve_out_of_range(10, leader_start_offset=0, leader_end_offset=7) == OutOfRangeAction(truncate_to=7)
    assert resolve_out_of_range(10, leader_start_offset=12, leader_end_offset=20) == OutOfRangeAction(restart_at=12)
    assert resolve_out_of_range(10, leader_start_offset=10, leader_end_offset=20) == OutOfRangeAction()
    left_behind = resolve_out_of_range(10, leader_start_offset=10, leader_end_offset=20, is_empty=False)
    assert left_behind == OutOfRangeAction(restart_at=10)
    assert resolve_out_of_range(10, leader_start_offset=3, leader_end_offset=10) == OutOfRangeAction()
