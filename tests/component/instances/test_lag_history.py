"""Trend of a lag, and the age of a group's lag, from samples."""

from __future__ import annotations

import pytest

from instances.groups import lag_history
from instances.groups.lag_history import LogEnds, TimeLag, has_grown
from instances.limits import LAG_SAMPLE_EVERY_S

NOW_MS = 1_790_000_000_000
PLACE = ("orders", 0)


def samples(*lags: int) -> list[tuple[int, int]]:
    """Returns one sample every ten seconds, the last one now."""
    return [(NOW_MS - (len(lags) - 1 - at) * 10_000, lag) for at, lag in enumerate(lags)]


@pytest.mark.parametrize(
    ("lags", "grown"),
    [
        ((1, 2, 3, 4, 5, 6, 7), True),
        ((1, 1, 1, 1, 1, 1, 2), True),
        ((5, 5, 5, 5, 5, 5, 5), False),
        ((1, 2, 3, 4, 3, 6, 7), False),
        ((9, 1, 2, 3, 4, 5, 6, 7), True),
        ((1, 2, 3), False),
        ((), False),
    ],
)
def test_a_lag_has_grown_when_it_did_so_for_a_minute(lags: tuple[int, ...], grown: bool) -> None:
    assert has_grown(samples(*lags)) is grown


def ends(*values: int) -> list[LogEnds]:
    return [(at_ms, {PLACE: end}) for at_ms, end in samples(*values)]


@pytest.mark.parametrize(
    ("committed", "expected"),
    [
        (400, TimeLag(0.0, at_least=False)),
        (300, TimeLag(10.0, at_least=False)),
        (250, TimeLag(20.0, at_least=False)),
        (50, None),
    ],
)
def test_a_group_is_as_far_behind_as_the_log_ended_where_it_stands(committed: int, expected: TimeLag | None) -> None:
    assert lag_history.time_lag(PLACE, committed, ends(100, 200, 300, 400)) == expected


def test_a_group_behind_the_whole_history_is_at_least_that_far_behind() -> None:
    assert lag_history.time_lag(PLACE, 50, ends(*range(100, 800, 100))) == TimeLag(60.0, at_least=True)


def test_one_look_does_not_tell_how_far_behind_a_group_is() -> None:
    assert lag_history.time_lag(PLACE, 5, ends(10)) is None
    assert lag_history.time_lag(("other", 0), 5, ends(10, 20)) is None


def test_samples_are_kept_apart_and_not_too_close() -> None:
    at_ms = NOW_MS
    for lag in range(30):
        known = lag_history.record_lags("ins-00000001", {"etl": lag}, at_ms + lag * 1_000)["etl"]
    kept = known[:-1]
    assert known[-1] == (at_ms + 29_000, 29)
    assert [lag for _, lag in kept] == [0, 10, 20]
    assert LAG_SAMPLE_EVERY_S == 10
    assert lag_history.record_lags("ins-00000002", {"etl": 5}, at_ms)["etl"] == ((at_ms, 5),)


def test_lags_older_than_the_span_are_forgotten() -> None:
    lag_history.record_lags("ins-00000001", {"old": 1}, NOW_MS)
    later = NOW_MS + lag_history.SPAN_MS + 1
    assert lag_history.record_lags("ins-00000001", {"old": 2}, later)["old"] == ((later, 2),)
