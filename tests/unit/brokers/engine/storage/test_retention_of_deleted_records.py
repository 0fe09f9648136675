"""Deletion of the last segment of a log whose records were all deleted."""

from __future__ import annotations

from brokers.engine.storage.retention import RetentionRules, SegmentFacts, count_deletable

SEGMENTS = (SegmentFacts(0, 100, 0), SegmentFacts(10, 100, 0))
FOR_EVER = RetentionRules(retention_ms=-1)


def test_the_last_segment_is_deleted_when_all_its_records_were_deleted() -> None:
    assert count_deletable(SEGMENTS, FOR_EVER, log_start_offset=20, log_end_offset=20, high_watermark=20, now_ms=0) == 2


def test_the_last_segment_stays_while_it_has_a_record() -> None:
    assert count_deletable(SEGMENTS, FOR_EVER, log_start_offset=19, log_end_offset=20, high_watermark=20, now_ms=0) == 1


def test_the_last_segment_stays_while_a_replica_may_lack_its_records() -> None:
    assert count_deletable(SEGMENTS, FOR_EVER, log_start_offset=20, log_end_offset=20, high_watermark=19, now_ms=0) == 1
