"""Selection of the segments to delete before the storage of an instance is used up (decision 114)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from brokers.engine.capacity.shortening import (
    ACTIVE_SEGMENT_BYTES_MIN,
    RELEASE_PERCENT,
    SHORTEN_PERCENT,
    OldSegment,
    StorageFigures,
    active_segment_bytes_max,
    excess_bytes,
    must_shorten,
    segments_to_delete,
)

BOUGHT = 1_000_000
NOW_MS = 1_000_000_000
FLOOR_MS = 60_000
A, B, C = ("a", 0), ("a", 1), ("b", 0)


def aged(*ages_ms: int, size: int = 100) -> list[OldSegment]:
    return [OldSegment(size, NOW_MS - age_ms) for age_ms in ages_ms]


def chosen(
    logs: dict[tuple[str, int], list[OldSegment]], wanted_bytes: int, *, is_urgent: bool = False
) -> dict[tuple[str, int], int]:
    return segments_to_delete(logs, wanted_bytes, now_ms=NOW_MS, age_ms_min=FLOOR_MS, is_urgent=is_urgent)


def test_oldest_segments_of_all_topics_go_first() -> None:
    logs = {A: aged(900_000, 500_000, 100_000), B: aged(800_000, 700_000), C: aged(600_000)}

    assert chosen(logs, 300) == {A: 1, B: 2}
    assert chosen(logs, 350) == {A: 1, B: 2, C: 1}


def test_last_segment_goes_if_half_of_it_is_wanted_or_if_nothing_else_helps() -> None:
    logs = {A: aged(900_000, 800_000)}

    assert chosen(logs, 49) == {}
    assert chosen(logs, 149) == {A: 1}
    assert chosen(logs, 150) == {A: 2}
    assert chosen(logs, 101, is_urgent=True) == {A: 2}


def test_segment_younger_than_the_floor_stays_with_all_behind_it() -> None:
    logs = {A: aged(900_000, 59_999, 800_000), B: aged(60_000)}

    assert chosen(logs, 10_000) == {A: 1, B: 1}


def test_nothing_goes_when_nothing_is_wanted() -> None:
    assert chosen({A: aged(900_000), B: []}, 0) == {}


segments = st.lists(
    st.builds(OldSegment, st.integers(0, 500), st.integers(NOW_MS - 200_000, NOW_MS + 10_000)), max_size=8
)
logs_drawn = st.dictionaries(st.tuples(st.sampled_from("abc"), st.integers(0, 3)), segments, max_size=6)


@given(logs_drawn, st.integers(0, 5_000))
def test_no_more_goes_than_is_wanted_and_part_of_the_last_segment(
    logs: dict[tuple[str, int], list[OldSegment]], wanted_bytes: int
) -> None:
    result = chosen(logs, wanted_bytes)
    gone = [segment for key, count in result.items() for segment in logs[key][:count]]
    kept = [logs[key][result.get(key, 0)] for key in logs if result.get(key, 0) < len(logs[key])]

    assert all(NOW_MS - segment.largest_timestamp_ms >= FLOOR_MS for segment in gone)
    freed_bytes = sum(segment.stored_bytes for segment in gone)
    if freed_bytes * 2 < wanted_bytes and kept:
        kept = [min(kept, key=lambda segment: segment.largest_timestamp_ms)]
        assert kept[0].stored_bytes > 2 * (wanted_bytes - freed_bytes) or all(
            NOW_MS - segment.largest_timestamp_ms < FLOOR_MS for segment in kept
        )
    if gone:
        assert freed_bytes - max(segment.stored_bytes for segment in gone) // 2 <= wanted_bytes + 1


def figures(used_bytes: int, counted_bytes: int, local_log_bytes: int | None = None) -> StorageFigures:
    return StorageFigures(
        BOUGHT, used_bytes, counted_bytes, counted_bytes if local_log_bytes is None else local_log_bytes
    )


def test_shortening_begins_at_95_percent_and_ends_below_90() -> None:
    assert not must_shorten(figures(949_999, 0), False)
    assert must_shorten(figures(950_000, 0), False)
    assert must_shorten(figures(900_000, 0), True)
    assert not must_shorten(figures(899_999, 0), True)


def test_broker_frees_the_part_that_it_holds() -> None:
    assert excess_bytes(figures(1_000_000, 400_000)) == 40_000
    assert excess_bytes(figures(1_000_000, 0)) == 0


def test_bytes_freed_since_the_controllers_count_are_not_freed_again() -> None:
    assert excess_bytes(figures(1_000_000, 400_000, local_log_bytes=360_000)) == 0
    assert excess_bytes(figures(1_000_000, 400_000, local_log_bytes=380_000)) == 20_000


def test_bytes_appended_since_the_controllers_count_are_freed_as_well() -> None:
    assert excess_bytes(figures(1_000_000, 400_000, local_log_bytes=410_000)) == 50_000


@given(st.lists(st.integers(0, 600_000), min_size=1, max_size=5), st.integers(1, 50_000))
def test_brokers_together_free_what_is_beyond_the_release_and_a_segment_each(held: list[int], size: int) -> None:
    used_bytes = sum(held)
    freed_bytes = 0
    for mine in held:
        logs = {A: [OldSegment(size, 0)] * (mine // size)}
        count = chosen(logs, excess_bytes(figures(used_bytes, mine))).get(A, 0)
        freed_bytes += count * size

    excess = max(0, used_bytes - BOUGHT * RELEASE_PERCENT // 100)
    assert freed_bytes <= excess + len(held) * (size + 1)


def test_active_segment_is_closed_at_a_part_of_what_was_bought() -> None:
    assert (
        active_segment_bytes_max(3_000_000_000, 3) * 3 * 5 == 3_000_000_000 * (SHORTEN_PERCENT - RELEASE_PERCENT) // 100
    )
    assert active_segment_bytes_max(1_000_000, 3) == ACTIVE_SEGMENT_BYTES_MIN
    assert active_segment_bytes_max(1_000_000_000, 0) == 10_000_000
