"""Plans of offset resets: each new offset, and none outside its log."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instances.groups.interfaces import CommittedOffset
from instances.groups.offset_plans import ClampedTo, Log, NoOffsetToShift, ResetMode, ResetTarget, plan, time_ms

PLACE = ("orders", 0)
LOG = Log(start=100, end=500, at_time=250)


def after(target: ResetTarget, committed: int | None = 300, log: Log = LOG) -> tuple[int | None, ClampedTo]:
    known = {} if committed is None else {PLACE: CommittedOffset(topic="orders", partition=0, offset=committed)}
    (change,) = plan(target, [PLACE], known, {PLACE: log})
    assert change.before == committed
    return change.after, change.clipped


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (ResetTarget(mode=ResetMode.EARLIEST), (100, ClampedTo.NONE)),
        (ResetTarget(mode=ResetMode.LATEST), (500, ClampedTo.NONE)),
        (ResetTarget(mode=ResetMode.TIME, at_ms=1), (250, ClampedTo.NONE)),
        (ResetTarget(mode=ResetMode.OFFSET, offset=7), (100, ClampedTo.START)),
        (ResetTarget(mode=ResetMode.OFFSET, offset=501), (500, ClampedTo.END)),
        (ResetTarget(mode=ResetMode.OFFSET, offset=400), (400, ClampedTo.NONE)),
        (ResetTarget(mode=ResetMode.SHIFT, by=-50), (250, ClampedTo.NONE)),
        (ResetTarget(mode=ResetMode.SHIFT, by=-1_000), (100, ClampedTo.START)),
        (ResetTarget(mode=ResetMode.SHIFT, by=1_000), (500, ClampedTo.END)),
        (ResetTarget(mode=ResetMode.GIVEN, given={PLACE: 123}), (123, ClampedTo.NONE)),
        (ResetTarget(mode=ResetMode.GIVEN, given={PLACE: None}), (None, ClampedTo.NONE)),
    ],
)
def test_an_offset_goes_where_it_is_sent_or_to_the_end_of_the_log_it_would_leave(
    target: ResetTarget, expected: tuple[int | None, ClampedTo]
) -> None:
    assert after(target) == expected


def test_an_instant_after_the_last_message_means_the_end() -> None:
    assert after(ResetTarget(mode=ResetMode.TIME, at_ms=1), log=Log(start=0, end=9, at_time=-1)) == (9, ClampedTo.NONE)


def test_an_offset_that_was_never_committed_can_be_set_but_not_shifted() -> None:
    assert after(ResetTarget(mode=ResetMode.LATEST), committed=None) == (500, ClampedTo.NONE)
    with pytest.raises(NoOffsetToShift) as refused:
        after(ResetTarget(mode=ResetMode.SHIFT, by=1), committed=None)
    assert refused.value.partitions == (PLACE,)


targets = st.one_of(
    st.sampled_from(
        [
            ResetTarget(mode=ResetMode.EARLIEST),
            ResetTarget(mode=ResetMode.LATEST),
            ResetTarget(mode=ResetMode.TIME, at_ms=0),
        ]
    ),
    st.integers(0, 2_000).map(lambda offset: ResetTarget(mode=ResetMode.OFFSET, offset=offset)),
    st.integers(-2_000, 2_000).map(lambda by: ResetTarget(mode=ResetMode.SHIFT, by=by)),
)


@given(target=targets, start=st.integers(0, 500), size=st.integers(0, 500), committed=st.integers(0, 2_000))
def test_no_plan_leaves_a_log(target: ResetTarget, start: int, size: int, committed: int) -> None:
    log = Log(start=start, end=start + size, at_time=start if size else -1)
    known = {PLACE: CommittedOffset(topic="orders", partition=0, offset=committed)}
    (change,) = plan(target, [PLACE], known, {PLACE: log})
    assert change.after is not None
    assert log.start <= change.after <= log.end
    assert change.lag_after == log.end - change.after
    assert change.is_change == (change.after != committed)


@pytest.mark.parametrize("before_1970_ms", [0, 1, 2, 3, 10**12])
def test_an_instant_before_1970_is_never_one_of_the_numbers_that_mean_the_ends_of_the_log(before_1970_ms: int) -> None:
    assert time_ms(datetime(1970, 1, 1, tzinfo=UTC) - timedelta(milliseconds=before_1970_ms)) == 0
    assert time_ms(datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)) == 1_000
