"""Pure parts of the cleaner: offset map, selection of a log, grouping of segments, pacing, settings."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.engine.errors import SettingsWrong
from brokers.engine.records.builder import Record, build_batch, records_block
from brokers.engine.records.walk import Malformed
from brokers.engine.storage.compaction.fields import read_fields, read_keys
from brokers.engine.storage.compaction.offset_map import (
    LIVE_FLAGS_MAX,
    RECENT_KEYS_MAX,
    LiveOffsetFilter,
    OffsetMap,
    count_slots,
    probe,
)
from brokers.engine.storage.compaction.pacing import Pacer
from brokers.engine.storage.compaction.selection import (
    CompactionFacts,
    SourceSegment,
    find_dirtiest,
    first_dirty_offset,
    group_segments,
    measure,
)
from brokers.engine.storage.compaction.settings import LONG_MAX, CleanerSettings, CompactionRules, from_overrides

NOW_MS = 1_700_000_000_000


def _segment(base: int, size: int = 100, first_ms: int = 0, last_ms: int = 0) -> CompactionFacts:
    return CompactionFacts(base, size, lambda: last_ms, lambda: first_ms)


def test_an_entry_of_the_offset_map_takes_24_bytes() -> None:
    """CMP-16, DEC-19: 8 GiB of slots distinguish 366 GB of records of 1 KiB."""
    assert count_slots(8 * 1024**3) == 357_913_941
    assert count_slots(8 * 1024**3) * 1024 // 10**9 == 366
    assert count_slots(128 * 1024**2) == 5_592_405
    assert int(count_slots(128 * 1024**2) * 0.9) == 5_033_164


@given(
    st.lists(
        st.tuples(st.binary(max_size=3) | st.binary(min_size=64, max_size=65), st.integers(0, 2**62)), max_size=80
    ),
    st.sampled_from([1, 7, RECENT_KEYS_MAX]),
    st.booleans(),
)
def test_the_offset_map_is_a_dictionary_until_it_is_full(
    puts: list[tuple[bytes, int]], recent_max: int, watched: bool
) -> None:
    offsets = OffsetMap(24 * 50, 0.9, recent_max=recent_max)
    expected: dict[bytes, int] = {}
    for key, offset in puts:
        fits = key in expected or len(expected) < 45
        assert offsets.put(key, offset) == fits
        if fits:
            expected[key] = offset
        assert offsets.get(key) == expected.get(key, -1)
        if watched:
            assert offsets.entries == len(expected)
    assert offsets.entries == len(expected)
    assert {key: offsets.get(key) for key, _ in puts} == {key: expected.get(key, -1) for key, _ in puts}
    assert sorted(offsets.offsets()) == sorted(expected.values())


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 3)), min_size=1, max_size=60),
    st.integers(0, 40),
    st.sampled_from([1, 4, 16, LIVE_FLAGS_MAX]),
)
def test_a_batch_is_skipped_only_if_it_has_no_live_record(
    batches: list[tuple[int, int]], first_dirty: int, flags_max: int
) -> None:
    """Batches have one to three records of a key; few places for many offsets may only make the filter more
    conservative.
    """
    offsets = OffsetMap(24 * 50, 0.9)
    spans, live, end = [], {}, 0
    for key, records in batches:
        spans.append((end, end + records - 1))
        for _ in range(records):
            if end >= first_dirty:
                offsets.put(b"%d" % key, end)
                live[key] = end
            end += 1
    offsets.latest_offset = end - 1
    result = LiveOffsetFilter(offsets, first_dirty, flags_max)
    for base, last in spans:
        lives = base < first_dirty or any(base <= offset <= last for offset in live.values())
        assert result.may_have_live(base, last) >= lives
        if flags_max > end:
            assert result.may_have_live(base, last) == lives
    assert result.may_have_live(end, end + 5), "what was not mapped stays"


@given(
    st.lists(
        st.tuples(
            st.integers(-(2**40), 2**40), st.none() | st.binary(max_size=200), st.none() | st.binary(max_size=200)
        ),
        min_size=1,
        max_size=30,
    ),
    st.integers(-1, 40),
)
def test_keys_are_read_as_whole_records_are(
    content: list[tuple[int, bytes | None, bytes | None]], cut_bytes: int
) -> None:
    """Both also refuse truncated records."""
    records = [Record(NOW_MS + shift, key, value) for shift, key, value in content]
    block = records_block(build_batch(records))
    assert read_keys(block, len(records)) == [(delta, record.key) for delta, record in enumerate(records)]
    assert [(field[0], field[5]) for field in read_fields(block, len(records))] == read_keys(block, len(records))
    if 0 <= cut_bytes < len(block):
        for read in (read_keys, read_fields):
            with pytest.raises(Malformed):
                read(block[:cut_bytes], len(records))
            with pytest.raises(Malformed):
                read(block + block[:1], len(records))


def test_probes_use_each_four_bytes_of_the_hash_and_then_increase() -> None:
    """CMP-17."""
    digest = hashlib.md5(b"a", usedforsecurity=False).digest()
    for attempt in range(20):
        at = min(attempt, 12)
        word = int.from_bytes(digest[at : at + 4], "big", signed=True) + max(0, attempt - 12)
        assert probe(digest, attempt) == abs(word)
    assert probe(b"\x80\x00\x00\x00" + bytes(12), 0) == 0
    assert probe(bytes(12) + b"\x7f\xff\xff\xff", 13) == 0, "the sum wraps to the least integer"


def test_the_head_begins_at_the_checkpoint_if_it_is_within_the_log() -> None:
    """CMP-11."""
    assert first_dirty_offset(None, 5, 100) == (5, False)
    assert first_dirty_offset(3, 5, 100) == (5, False)
    assert first_dirty_offset(50, 5, 100) == (50, False)
    assert first_dirty_offset(101, 5, 100) == (5, True)


def test_only_whole_closed_segments_below_the_stable_offset_are_measured() -> None:
    """CMP-8, CMP-12, CMP-13."""
    segments = [_segment(base) for base in (0, 10, 20, 30)]
    result = measure(segments, CompactionRules(), first_dirty=10, stable_offset=100, now_ms=0)
    assert (result.first_uncleanable, result.clean_bytes, result.cleanable_bytes) == (30, 100, 200)
    assert result.ratio == pytest.approx(2 / 3)
    assert measure(segments, CompactionRules(), first_dirty=10, stable_offset=29, now_ms=0).first_uncleanable == 20
    nothing = measure(segments, CompactionRules(), first_dirty=30, stable_offset=100, now_ms=0)
    assert (nothing.cleanable_bytes, nothing.is_eligible(CompactionRules(dirty_ratio_min=0.0))) == (0, False)


def test_a_minimum_lag_excludes_young_segments_and_a_maximum_lag_forces_old_ones() -> None:
    """CMP-12, CMP-14."""
    segments = [_segment(0, last_ms=10), _segment(10, first_ms=11, last_ms=90), _segment(20)]
    lagging = measure(segments, CompactionRules(lag_ms_min=20), first_dirty=0, stable_offset=99, now_ms=100)
    assert lagging.first_uncleanable == 10
    forced = CompactionRules(dirty_ratio_min=1.0, lag_ms_max=50)
    assert not measure(segments, forced, first_dirty=0, stable_offset=99, now_ms=50).is_overdue
    assert measure(segments, forced, first_dirty=10, stable_offset=99, now_ms=62).is_eligible(forced)


def test_a_timestamp_in_the_future_does_not_delay_overdue_segments_after_it() -> None:
    """CMP-14: the clocks of producers differ, and the lag is a promise for every record."""
    segments = [_segment(0, first_ms=9_999), _segment(10, first_ms=-1), _segment(20, first_ms=11), _segment(30)]
    forced = CompactionRules(dirty_ratio_min=1.0, lag_ms_max=50)
    assert measure(segments, forced, first_dirty=0, stable_offset=99, now_ms=62).is_eligible(forced)
    assert not measure(segments, forced, first_dirty=0, stable_offset=99, now_ms=61).is_eligible(forced)


def test_the_log_with_the_greatest_dirty_share_is_selected() -> None:
    rules = CompactionRules()
    clean, half, most = (
        measure([_segment(0), _segment(10), _segment(20, size)], rules, first_dirty=at, stable_offset=99, now_ms=0)
        for at, size in ((20, 0), (10, 0), (0, 0))
    )
    assert find_dirtiest([("a", clean, rules), ("b", half, rules)]) is None, "a half is not more than a half"
    chosen = find_dirtiest([("a", clean, rules), ("b", half, rules), ("c", most, rules)])
    assert chosen is not None
    assert chosen[0] == "c"


@given(st.lists(st.tuples(st.integers(0, 120), st.integers(0, 60)), min_size=1, max_size=20))
def test_a_group_never_outgrows_a_segment_unless_it_is_one(sizes: list[tuple[int, int]]) -> None:
    """CMP-19."""
    sources = [SourceSegment(at * 10, at * 10 + 10, size, index, index // 2) for at, (size, index) in enumerate(sizes)]
    groups = group_segments(sources, 100, 50)
    assert [source for members in groups for source in members] == sources
    for members in groups:
        if len(members) > 1:
            assert sum(member.size_bytes for member in members) <= 100
            assert sum(member.index_bytes for member in members) <= 50
    far = [SourceSegment(0, 10, 1, 0, 0), SourceSegment(10, 2**31 + 1, 1, 0, 0)]
    assert len(group_segments(far, 100, 50)) == 2, "offsets in an index are 31 bits"


def test_reads_and_writes_together_keep_to_the_limit() -> None:
    """CMP-28."""
    now = [0.0]

    def wait(seconds: float) -> None:
        now[0] += seconds

    pacer = Pacer(1_000.0, lambda: now[0], wait)
    for _ in range(100):
        pacer.spend(100)
        now[0] += 0.01
    assert now[0] == pytest.approx(10.0, abs=0.5)
    free = Pacer(0.0, lambda: now[0], wait)
    free.spend(10**12)
    assert free.waited_s == 0.0


def test_settings_are_named_as_kafka_names_them() -> None:
    assert from_overrides({}) == CleanerSettings()
    assert CleanerSettings().map_bytes == 134_217_728
    given_keys = {
        "log.cleaner.threads": "2",
        "log.cleaner.dedupe.buffer.size": str(2**33),
        "log.cleaner.enable": "false",
    }
    result = from_overrides(given_keys)
    assert (result.threads, result.map_bytes, result.enabled) == (2, 2**31 - 1, False)
    assert from_overrides({"log.cleaner.io.max.bytes.per.second": "1.5E6"}).io_bytes_per_s == 1_500_000
    assert CompactionRules().lag_ms_max == LONG_MAX
    for key, value in (("log.cleaner.threads", "0"), ("log.cleaner.enable", "x"), ("log.cleaner.backoff.ms", "soon")):
        with pytest.raises(SettingsWrong, match=key):
            from_overrides({key: value})
