"""Steps of automatic growth of an instance."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from brokers.contract.documents import SHRINK_RETENTION, STOP, InstanceSettings
from instances.choices import StorageWhenFull
from instances.lifecycle.growth import next_storage_gb
from instances.limits import BYTES_PER_GB, GROW_FROM_PERCENT, RETENTION_MINUTES_MIN_DEFAULT
from instances.models import default_settings

GB = BYTES_PER_GB


def test_it_grows_by_a_step_from_90_percent_on() -> None:
    assert next_storage_gb(100, 90 * GB - 1, step_gb=20, max_gb=500) is None
    assert next_storage_gb(100, 90 * GB, step_gb=20, max_gb=500) == 120


def test_it_grows_by_several_steps_where_one_leaves_no_room() -> None:
    assert next_storage_gb(100, 100 * GB, step_gb=5, max_gb=500) == 115


def test_it_grows_no_further_than_its_end() -> None:
    assert next_storage_gb(100, 100 * GB, step_gb=50, max_gb=120) == 120
    assert next_storage_gb(120, 120 * GB, step_gb=50, max_gb=120) is None


def test_without_a_step_or_an_end_it_does_not_grow() -> None:
    assert next_storage_gb(100, 100 * GB, step_gb=None, max_gb=500) is None
    assert next_storage_gb(100, 100 * GB, step_gb=5, max_gb=None) is None


@given(st.integers(1, 10_000), st.integers(0, 20_000), st.integers(1, 1_000), st.integers(1, 20_000))
def test_a_second_growth_finds_room_or_the_end(storage_gb: int, used_gb: int, step_gb: int, max_gb: int) -> None:
    grown = next_storage_gb(storage_gb, used_gb * GB, step_gb=step_gb, max_gb=max_gb)

    if grown is not None:
        assert storage_gb < grown <= max_gb
        assert grown == max_gb or (grown - storage_gb) % step_gb == 0
        assert next_storage_gb(grown, used_gb * GB, step_gb=step_gb, max_gb=max_gb) is None
        assert grown == max_gb or used_gb * 100 < grown * GROW_FROM_PERCENT


def test_brokers_know_the_words_and_defaults_of_the_settings() -> None:
    assert set(StorageWhenFull.values) == {STOP, SHRINK_RETENTION}
    assert InstanceSettings().storage_when_full == default_settings()["storage_when_full"]
    assert InstanceSettings().storage_retention_minutes_min == RETENTION_MINUTES_MIN_DEFAULT
