"""Levels of an instance (stored bytes, partitions, connections) become monotonic counters, each amount counted once."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from brokers.contract.usage import LEVEL_INTERVAL_MS
from brokers.engine.throttling.levels import ELAPSED_MS_MAX, MS_PER_HOUR, Increment, InstanceLevels, LevelMeters

INSTANCE = "ins-aaaaaaaa"
# One interval before a full hour, so that the first sample ends the hour that it began in.
BEGAN_MS = 500_000 * MS_PER_HOUR - LEVEL_INTERVAL_MS


def meters() -> LevelMeters:
    return LevelMeters(0, BEGAN_MS)


def sample(meter: LevelMeters, elapsed_ms: int, **levels: int) -> list[Increment]:
    return list(
        meter.sample({INSTANCE: InstanceLevels(**levels)}, monotonic_ms=elapsed_ms, now_ms=BEGAN_MS + elapsed_ms)
    )


def test_a_minute_of_sixty_bytes_is_one_byte_hour_and_of_three_partitions_180_seconds() -> None:
    assert sample(meters(), LEVEL_INTERVAL_MS, stored_bytes=60, partitions=3) == [
        Increment(INSTANCE, "stored", 1), Increment(INSTANCE, "partitions", 180),
    ]  # fmt: skip


def test_an_empty_level_is_not_counted_and_a_removed_one_is_forgotten() -> None:
    meter = meters()
    assert sample(meter, 60_000) == []
    assert sample(meter, 120_000, stored_bytes=59) == []
    assert list(meter.sample({}, monotonic_ms=180_000, now_ms=BEGAN_MS + 180_000)) == []
    assert sample(meter, 240_000, stored_bytes=59) == [], "the rest of the one that is gone is not its successor's"


def test_a_process_that_stood_still_counts_no_more_than_two_minutes() -> None:
    meter = meters()
    assert sample(meter, 86_400_000, partitions=1) == [Increment(INSTANCE, "partitions", ELAPSED_MS_MAX // 1_000)]


def test_connections_of_the_hour_in_which_a_broker_began_are_left_to_the_one_before_it() -> None:
    meter = meters()
    assert sample(meter, 60_000, connections=7) == []
    assert sample(meter, 120_000, connections=5) == [Increment(INSTANCE, "connections", 5)]
    assert sample(meter, 180_000, connections=4) == []
    assert sample(meter, 240_000, connections=8) == [Increment(INSTANCE, "connections", 3)]


@given(st.lists(st.tuples(st.integers(1, ELAPSED_MS_MAX), st.integers(0, 10**13), st.integers(0, 10**4)), min_size=1))
def test_however_it_is_sampled_less_than_a_unit_is_missing_and_nothing_is_too_much(
    samples: list[tuple[int, int, int]],
) -> None:
    meter, now_ms, counted = meters(), 0, defaultdict(int)
    stored_byte_ms = partition_ms = 0
    for elapsed_ms, stored_bytes, partitions in samples:
        now_ms += elapsed_ms
        stored_byte_ms += elapsed_ms * stored_bytes
        partition_ms += elapsed_ms * partitions
        for increment in sample(meter, now_ms, stored_bytes=stored_bytes, partitions=partitions):
            assert increment.amount > 0
            counted[increment.level] += increment.amount
    assert 0 <= stored_byte_ms - counted["stored"] * MS_PER_HOUR < MS_PER_HOUR
    assert 0 <= partition_ms - counted["partitions"] * 1_000 < 1_000


@given(st.lists(st.tuples(st.integers(1, 2 * MS_PER_HOUR), st.integers(0, 50)), min_size=1))
def test_an_hours_increments_of_connections_are_its_highest_sample(samples: list[tuple[int, int]]) -> None:
    meter, now_ms = meters(), 0
    highest: dict[int, int] = defaultdict(int)
    counted: dict[int, int] = defaultdict(int)
    for elapsed_ms, connections in samples:
        now_ms += elapsed_ms
        hour = (BEGAN_MS + now_ms - 1) // MS_PER_HOUR
        highest[hour] = max(highest[hour], connections)
        for increment in sample(meter, now_ms, connections=connections):
            counted[hour] += increment.amount
    first = BEGAN_MS // MS_PER_HOUR
    assert {hour: count for hour, count in highest.items() if hour > first and count} == counted
