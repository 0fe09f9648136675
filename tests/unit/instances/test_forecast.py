"""Forecast of full storage from samples."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from instances.metrics.forecast import HORIZON_S, SAMPLES_MIN, FillState, Sample, forecast, slope

MINUTE_MS = 60_000
HOUR_S = 3_600
GB = 1_000_000_000


def rising(per_minute: int, minutes: int = 60, start: int = 0) -> list[Sample]:
    return [(at * MINUTE_MS, start + per_minute * at) for at in range(minutes + 1)]


def test_steady_growth_is_full_when_the_line_says_so() -> None:
    samples = rising(GB // 60, start=GB)

    result = forecast(samples, used_bytes=2 * GB, bought_bytes=5 * GB)

    assert result.state is FillState.FILLING
    assert result.full_in_s is not None and abs(result.full_in_s - 3 * HOUR_S) < 60
    assert result.bytes_per_hour is not None and abs(result.bytes_per_hour - GB) < GB // 100


def test_few_samples_or_a_short_span_say_nothing() -> None:
    few = rising(100)[:: 60 // (SAMPLES_MIN - 2)]
    assert forecast(few, used_bytes=1, bought_bytes=GB).state is FillState.UNKNOWN
    assert forecast(rising(100, minutes=20), used_bytes=1, bought_bytes=GB).state is FillState.UNKNOWN
    assert forecast([], used_bytes=1, bought_bytes=GB).state is FillState.UNKNOWN


def test_constant_or_shrinking_storage_is_not_filling() -> None:
    assert forecast(rising(0), used_bytes=1, bought_bytes=GB).state is FillState.NOT_FILLING
    shrinking = forecast(rising(-1_000, start=GB), used_bytes=GB // 2, bought_bytes=GB)
    assert (shrinking.state, shrinking.full_in_s, shrinking.bytes_per_hour) == (FillState.NOT_FILLING, None, -60_000)


def test_storage_that_takes_years_to_fill_is_not_filling() -> None:
    slow = GB // (2 * HORIZON_S // 60)
    assert forecast(rising(slow), used_bytes=1, bought_bytes=GB).state is FillState.NOT_FILLING


def test_full_is_full_without_samples() -> None:
    assert forecast([], used_bytes=GB, bought_bytes=GB).state is FillState.FULL


def test_one_deletion_changes_the_rate_little() -> None:
    samples = rising(1_000_000, minutes=300)
    dropped = [(at, used - (100_000_000 if at > 295 * MINUTE_MS else 0)) for at, used in samples]

    found, whole = slope(dropped), slope(samples)

    assert found is not None and whole is not None and abs(found - whole) < whole * 0.05


def test_teeth_of_retention_are_no_growth() -> None:
    teeth = [(at * MINUTE_MS, GB + 10_000_000 * (at % 20)) for at in range(300)]

    per_ms = slope(teeth)

    assert per_ms is not None and abs(per_ms * 60 * MINUTE_MS) < 10_000_000


@given(st.lists(st.integers(0, 10**15), min_size=SAMPLES_MIN, max_size=400), st.integers(0, 10**15))
def test_any_samples_have_a_forecast(used: list[int], bought_bytes: int) -> None:
    samples = [(at * 5 * MINUTE_MS, each) for at, each in enumerate(used)]

    result = forecast(samples, used_bytes=used[-1], bought_bytes=bought_bytes)

    assert (result.full_in_s is not None) is (result.state is FillState.FILLING)
    assert result.full_in_s is None or 0 <= result.full_in_s <= HORIZON_S
