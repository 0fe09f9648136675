"""A batch rewritten by the cleaner, read like a consumer with our code and with another implementation."""

from __future__ import annotations

import pytest
from kafka.record import MemoryRecords

from brokers.engine.records import batch as layout
from brokers.engine.records.builder import Record, build_batch, read_records
from brokers.engine.storage.compaction.filtering import BatchRetention, Rewritten, rewrite
from brokers.engine.storage.compaction.offset_map import OffsetMap

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000
BASE_OFFSET = 40
PRODUCER = {"producer_id": 7, "producer_epoch": 3, "base_sequence": 11}
HEADERS = (("trace", b"1"), ("trace", None))


def rewritten(
    records: list[Record], latest: dict[bytes, int], retention: BatchRetention | None = None, **more: int
) -> Rewritten:
    data = build_batch(records, **PRODUCER, **more)
    layout.set_offset_and_epoch(data, BASE_OFFSET, 5)
    offsets = OffsetMap(1 << 16, 0.9)
    for key, offset in latest.items():
        assert offsets.put(key, offset)
    offsets.latest_offset = BASE_OFFSET + 1_000
    view = memoryview(data)
    header = layout.read_header(view)
    return rewrite(view, header, offsets, retention or BatchRetention(), now_ms=NOW_MS, delete_retention_ms=DAY_MS)


def as_others_read(data: bytes) -> list[tuple[int, int, bytes | None]]:
    batches = MemoryRecords(data)
    result = []
    while (theirs := batches.next_batch()) is not None:
        result += [(record.offset, record.timestamp, record.value) for record in theirs]
    return result


@pytest.mark.parametrize("codec", range(5))
def test_readers_get_the_real_timestamps_if_the_horizon_replaces_the_base_timestamp(codec: int) -> None:
    """REC-25: no reader has to know about the horizon."""
    records = [
        Record(NOW_MS - 10 * DAY_MS, b"a", b"1", HEADERS),
        Record(NOW_MS - 9 * DAY_MS, b"gone", b"2"),
        Record(NOW_MS + 5 * DAY_MS, b"b", None),
        Record(-1, b"c", b"4"),
    ]

    result = rewritten(records, {b"gone": BASE_OFFSET + 500}, codec=codec)

    data = bytes(result.data or b"")
    header = layout.read_header(data)
    assert header.attributes & layout.DELETE_HORIZON
    assert (header.base_timestamp, header.codec) == (NOW_MS + DAY_MS, codec)
    kept = [(BASE_OFFSET, records[0]), (BASE_OFFSET + 2, records[2]), (BASE_OFFSET + 3, records[3])]
    assert read_records(data) == kept
    assert header.max_timestamp == result.largest_timestamp == records[2].timestamp_ms
    assert as_others_read(data) == [(offset, record.timestamp_ms, record.value) for offset, record in kept]


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("kept", [[0], [1, 3], [4], []])
def test_a_smaller_batch_keeps_its_offsets_and_its_producer_fields(kept: list[int], codec: int) -> None:
    """REC-26, CMP-24: the header determines offsets and sequences, whichever records are left."""
    records = [Record(NOW_MS + at, b"k%d" % at, b"v%d" % at) for at in range(5)]
    superseded = {b"k%d" % at: BASE_OFFSET + 500 for at in range(5) if at not in kept}

    result = rewritten(records, superseded, BatchRetention(keep_empty=True), codec=codec)

    data = bytes(result.data or b"")
    header = layout.read_header(data)
    assert (header.base_offset, header.last_offset_delta, header.last_offset) == (BASE_OFFSET, 4, BASE_OFFSET + 4)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (7, 3, 11, 15)
    assert (header.record_count, result.kept, result.dropped) == (len(kept), len(kept), 5 - len(kept))
    assert layout.checksum(data) == header.crc
    assert [offset for offset, _ in read_records(data)] == [BASE_OFFSET + at for at in kept]
    if kept:
        assert as_others_read(data) == [(BASE_OFFSET + at, NOW_MS + at, b"v%d" % at) for at in kept]
    else:
        assert len(data) == layout.HEADER_BYTES


def test_an_empty_batch_is_removed_unless_it_has_the_last_sequence_of_a_producer() -> None:
    """REC-26, CMP-23."""
    records = [Record(NOW_MS, b"k", b"v")]
    assert rewritten(records, {b"k": BASE_OFFSET + 500}).data is None
