"""Scans that pass over records without the wanted bytes read the same messages as scans that look at every record."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.legacy_records import LegacyRecordBatchBuilder

from brokers.dataplane import record_search
from brokers.dataplane.message_cursor import FetchRange, PartitionCursor
from brokers.dataplane.message_pages import FetchedPartition, FetchResult, PageReader
from brokers.dataplane.record_batches import APPEND_TIME, CONTROL, TRANSACTIONAL, Batch, batches
from brokers.engine.records import batch as layout
from brokers.engine.records.builder import Record as Written
from brokers.engine.records.builder import encode_record
from brokers.engine.records.compression import compress
from instances.messages import content, limits
from instances.messages.interfaces import FROM_NEWEST, NEWER, OLDER, Page, PageRequest, Record
from instances.messages.masks import Masks
from instances.messages.record_filter import FilterTexts, RecordFilter
from instances.messages.rendering import Renderer
from instances.messages.schemas.sources import NoSchemas
from tests.testkit import depth

LETTERS = 'ab: é"\\'
TEXTS = st.text(LETTERS, max_size=6)
JSON_TEXTS = st.sampled_from(['{"a": "b"}', '{"a": "\\u0062"}', '["\\u00e9", "é"]', '{"a": {"b": 12}}', "7"])
BYTES = (
    st.none() | TEXTS.map(str.encode) | JSON_TEXTS.map(str.encode) | st.binary(max_size=4)
    | TEXTS.map(lambda text: text.encode() * 40)
)  # fmt: skip
HEADERS = st.lists(st.tuples(st.text(LETTERS, max_size=3), BYTES), max_size=2)
WANTED = st.text(LETTERS, min_size=1, max_size=3)
PATTERNS = st.sampled_from(
    ["a+b", "ba{2}", "[ab]é", "(?:a|b) b", "(?i)A", "^a", "b$", 'a":', "a|b", "a?b", "ab*:", "\\x61", "\\\\", ".a."]
)
PROGRAMS = st.sampled_from(
    ['.a == "b"', ".a.b > 3", '$key != "a"', "true", '.a == "b" or .[] == "é"', '.a | contains("b")', ".b | not"]
)
FILTERS = st.fixed_dictionaries(
    {},
    optional={
        "contains": WANTED, "key_contains": WANTED, "header_contains": WANTED, "matches": PATTERNS,
        "key_matches": PATTERNS, "jq": PROGRAMS,
    },
).map(lambda texts: FilterTexts(**texts))  # fmt: skip
ABORTED_ID, COMMITTED_ID = 7, 8
HOUR_MS = 3_600_000


@dataclass(slots=True)
class Log:
    """One partition in memory: stored batches with their first and last offsets, and the aborted transactions."""

    batches: list[tuple[int, int, bytes]] = field(default_factory=list)
    aborted: list[tuple[int, int]] = field(default_factory=list)
    end: int = 0

    def append(self, raw: bytes, offsets: int) -> None:
        self.batches.append((self.end, self.end + offsets - 1, raw))
        self.end += offsets


@dataclass(slots=True)
class Logs:
    """A topic in memory, as its leaders send it: at most `batches_max` of a partition at once. `rounds` are the
    partitions of each request.
    """

    partitions: Sequence[Log]
    batches_max: int = 1_000
    rounds: list[list[int]] = field(default_factory=list)

    def begin_fetch(
        self, ranges: Mapping[int, FetchRange], bytes_max: int, timeout_s: float
    ) -> Callable[[], FetchResult]:
        self.rounds.append(list(ranges))
        fetched = {index: self._fetched(self.partitions[index], requested) for index, requested in ranges.items()}
        return lambda: FetchResult(partitions=fetched)

    def _fetched(self, log: Log, requested: FetchRange) -> FetchedPartition:
        raw, count = b"", 0
        for _, last, stored in log.batches:
            if last < requested.offset:
                continue
            if count == self.batches_max or (raw and len(raw) + len(stored) > requested.bytes_max):
                break
            raw, count = raw + stored, count + 1
        return FetchedPartition(batches=list(batches(raw)), size_bytes=len(raw), aborted=log.aborted)

    def bounds(self, partition: int) -> tuple[int, int, int] | None:
        return 0, self.partitions[partition].end, self.partitions[partition].end


def stored(
    records: Sequence[tuple[int, Written]],
    base: int,
    offsets: int,
    *,
    codec: int = 0,
    flags: int = 0,
    producer: int = -1,
) -> bytes:
    """Returns a batch of (offset delta, record), which may have gaps as compaction leaves them, and be empty."""
    first_ms = records[0][1].timestamp_ms if records else HOUR_MS
    block = b"".join(encode_record(record, delta, record.timestamp_ms - first_ms) for delta, record in records)
    codec = codec if records else 0
    payload = compress(codec, block)
    raw = bytearray(layout.HEADER_BYTES)
    layout.HEADER.pack_into(
        raw, 0, base, layout.HEADER_BYTES - layout.LOG_OVERHEAD_BYTES + len(payload), 0, layout.MAGIC, 0, flags | codec,
        offsets - 1, first_ms, max([first_ms, *(record.timestamp_ms for _, record in records)]), producer, 0, 0,
        len(records),
    )  # fmt: skip
    raw += payload
    layout.write_crc(raw)
    return bytes(raw)


def old(records: Sequence[Written], base: int, magic: int, codec: int) -> bytes:
    builder = LegacyRecordBatchBuilder(magic=magic, compression_type=codec, batch_size=1 << 20)
    for number, record in enumerate(records):
        at = number if magic or not codec else base + number
        builder.append(at if codec else base + number, record.timestamp_ms, record.key, record.value)
    raw = bytes(builder.build())
    return struct.pack(">q", base + len(records) - 1) + raw[8:] if codec else raw


@st.composite
def topics(draw: st.DrawFn, *, in_time: bool) -> Logs:
    """Topics of up to three partitions; `in_time`: the times of each rise with the offsets."""
    logs = []
    for _ in range(draw(st.integers(1, 3))):
        log, time_ms = Log(), HOUR_MS
        for _ in range(draw(st.integers(0, 4))):
            written = []
            for _ in range(draw(st.integers(1, 6))):
                time_ms = time_ms + draw(st.integers(0, 3)) if in_time else draw(st.integers(HOUR_MS, HOUR_MS + 9))
                written.append(Written(time_ms, draw(BYTES), draw(BYTES), draw(HEADERS)))
            kind = draw(st.sampled_from(["plain", "plain", "gaps", "old", "transaction"]))
            codec = draw(st.sampled_from([0, 0, 1, 3, 4]))
            if kind == "old":
                magic = draw(st.integers(0, 1))
                log.append(old(written, log.end, magic, codec if codec in (0, 1) else 0), len(written))
                continue
            flags = draw(st.sampled_from([0, 0, APPEND_TIME]))
            kept = [entry for entry in enumerate(written) if kind != "gaps" or draw(st.booleans())]
            if kind != "transaction":
                log.append(stored(kept, log.end, len(written), codec=codec, flags=flags), len(written))
                continue
            producer = draw(st.sampled_from([ABORTED_ID, COMMITTED_ID]))
            if producer == ABORTED_ID:
                log.aborted.append((producer, log.end))
            log.append(
                stored(kept, log.end, len(written), codec=codec, flags=flags | TRANSACTIONAL, producer=producer),
                len(written),
            )
            marker = Written(time_ms, struct.pack(">hh", 0, producer == COMMITTED_ID), b"\0" * 6)
            log.append(stored([(0, marker)], log.end, 1, flags=CONTROL | TRANSACTIONAL, producer=producer), 1)
        logs.append(log)
    return Logs(logs)


def pages(
    logs: Logs, texts: FilterTexts, direction: str, limit: int, *, searches: bool, window: int = 1_000
) -> Iterator[Page]:
    """Yields all pages of a scan, with the bytes of the filter or without."""
    record_filter = RecordFilter(texts)
    renderer = Renderer(NoSchemas(), Masks(), content.AUTO, limits.SHOWN_BYTES_MAX)
    literals = record_filter.literals(is_decoded=False) if searches else ()
    request = PageRequest(
        start=FROM_NEWEST, positions=None, partition=None, limit=limit,
        accepts=partial(record_filter.accepts, renderer), is_filtered=bool(texts), shown_bytes=lambda _record: 1,
        literals=literals,
    )  # fmt: skip
    positions = {index: 0 if direction == NEWER else log.end for index, log in enumerate(logs.partitions)}
    while True:
        cursors = [
            PartitionCursor(
                index, start=0, end=log.end, stable=log.end, position=positions[index], direction=direction,
                window=window, literals=literals,
            )
            for index, log in enumerate(logs.partitions)
        ]  # fmt: skip
        page = PageReader(logs, cursors, request, direction, lambda: 0.0, lambda _s: None).read()
        yield page
        if page.is_end:
            return
        assert page.reached != positions
        positions = dict(page.reached)


def read(
    logs: Logs, texts: FilterTexts, direction: str, limit: int, *, searches: bool, window: int = 1_000
) -> tuple[list[Record], int]:
    """Returns the records of all pages, and how many were looked at."""
    found = list(pages(logs, texts, direction, limit, searches=searches, window=window))
    assert found[-1].reached == {
        index: log.end if direction == NEWER else 0 for index, log in enumerate(logs.partitions)
    }  # fmt: skip
    assert not any(page.unreadable for page in found)
    return [record for page in found for record in page.records], sum(page.scanned for page in found)


@pytest.mark.parametrize("direction", [OLDER, NEWER])
@settings(max_examples=depth.examples(150), deadline=None)
@given(logs=topics(in_time=True), texts=FILTERS, limit=st.integers(1, 4))
def test_a_scan_finds_the_same_messages_in_the_same_order(
    direction: str, logs: Logs, texts: FilterTexts, limit: int
) -> None:
    expected, scanned = read(logs, texts, direction, limit, searches=False)
    assert read(logs, texts, direction, limit, searches=True) == (expected, scanned)


@settings(max_examples=depth.examples(60), deadline=None)
@given(logs=topics(in_time=False), texts=FILTERS, limit=st.integers(1, 4), direction=st.sampled_from([OLDER, NEWER]))
def test_a_scan_finds_the_same_messages_of_each_partition_where_times_go_back(
    logs: Logs, texts: FilterTexts, limit: int, direction: str
) -> None:
    expected, scanned = read(logs, texts, direction, limit, searches=False)
    found, looked_at = read(logs, texts, direction, limit, searches=True)
    assert looked_at == scanned
    for index in range(len(logs.partitions)):
        assert [r for r in found if r.partition == index] == [r for r in expected if r.partition == index]


@settings(max_examples=depth.examples(200), deadline=None)
@given(key=BYTES, value=BYTES, headers=HEADERS, texts=FILTERS)
def test_a_record_that_a_filter_takes_has_the_bytes_of_the_filter(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]], texts: FilterTexts
) -> None:
    renderer = Renderer(NoSchemas(), Masks(), content.AUTO, limits.SHOWN_BYTES_MAX)
    names = [(name.encode(), held) for name, held in headers]
    record = Record(
        partition=0, offset=0, timestamp_ms=0, is_append_time=False, key=key, value=value, headers=names
    )  # fmt: skip
    record_filter = RecordFilter(texts)
    fields = [key or b"", value or b"", *(part or b"" for header in names for part in header)]
    if record_filter.accepts(renderer, record):
        assert all(
            any(text in part for text in alternatives for part in fields)
            for alternatives in record_filter.literals(is_decoded=False)
        )


@pytest.mark.parametrize("direction", [OLDER, NEWER])
@settings(max_examples=depth.examples(150), deadline=None)
@given(
    logs=topics(in_time=True), texts=FILTERS, limit=st.integers(1, 4), window=st.integers(1, 9),
    batches_max=st.integers(1, 3), searches=st.booleans(),
)  # fmt: skip
def test_a_scan_that_reads_ahead_finds_the_same_messages_in_the_same_order(
    direction: str, logs: Logs, texts: FilterTexts, limit: int, window: int, batches_max: int, searches: bool
) -> None:
    expected = read(logs, texts, direction, limit, searches=False)
    in_parts = Logs(logs.partitions, batches_max)
    assert read(in_parts, texts, direction, limit, searches=searches, window=window) == expected


@pytest.mark.parametrize("direction", [OLDER, NEWER])
def test_a_scan_requests_all_partitions_at_once_and_ahead_of_what_it_needs(direction: str) -> None:
    """Partitions of equal size come to the end of what is loaded one after the other."""
    logs = []
    for _ in range(3):
        log = Log()
        for number in range(40):
            log.append(stored([(0, Written(HOUR_MS + number, None, b"hay"))], log.end, 1), 1)
        logs.append(log)
    # Towards older ones a window has to arrive complete: the windows grow from one offset on.
    topic = Logs(logs, batches_max=4 if direction == NEWER else 1_000)
    (page,) = pages(topic, FilterTexts(contains="needle"), direction, 50, searches=True, window=1)
    assert page.scanned == 120
    assert len(topic.rounds) <= 2 + 40 // 4 + 4, topic.rounds
    assert sum(map(len, topic.rounds)) / len(topic.rounds) >= 2


def test_a_page_that_is_soon_full_reads_nothing_ahead() -> None:
    log = Log()
    for number in range(200):
        log.append(stored([(0, Written(HOUR_MS + number, None, b"needle"))], log.end, 1), 1)
    topic = Logs([log], batches_max=10)
    page = next(pages(topic, FilterTexts(contains="needle"), NEWER, 4, searches=True, window=4))
    assert len(page.records) == 4
    assert topic.rounds == [[0]]


def test_a_batch_without_the_wanted_bytes_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[int] = []
    known = record_search.record_at

    def counted(partition: int, batch: Batch, body: bytes, at: int) -> Record:
        parsed.append(at)
        return known(partition, batch, body, at)

    monkeypatch.setattr(record_search, "record_at", counted)
    log = Log()
    for value in (b"one", b"two", b"a needle", b"three"):
        written = [(delta, Written(HOUR_MS, None, value if delta == 3 else b"hay")) for delta in range(10)]
        log.append(stored(written, log.end, 10), 10)
    for direction in (OLDER, NEWER):
        found, scanned = read(Logs([log]), FilterTexts(contains="needle"), direction, 50, searches=True)
        assert [record.offset for record in found] == [23]
        assert scanned == 40
    assert len(parsed) == 2


def test_a_partition_without_matches_does_not_hold_up_the_matches_of_another() -> None:
    """Passing over keeps to the order of time: a page does not read all of one partition before it shows the others."""
    barren, fertile = Log(), Log()
    for number in range(500):
        hay, needle = ([(0, Written(HOUR_MS + number, None, value))] for value in (b"hay", b"needle"))
        barren.append(stored(hay, barren.end, 1), 1)
        fertile.append(stored(needle, fertile.end, 1), 1)
    page = next(pages(Logs([barren, fertile]), FilterTexts(contains="needle"), NEWER, 50, searches=True))
    assert len(page.records) == 50
    assert page.scanned <= 100


def test_damaged_batches_are_named_even_if_they_could_not_match() -> None:
    log = Log()
    written = [(delta, Written(HOUR_MS, None, b"hay")) for delta in range(10)]
    raw = bytearray(stored(written, 0, 10))
    raw[-1] ^= 1
    log.append(bytes(raw), 10)
    (page,) = pages(Logs([log]), FilterTexts(contains="needle"), NEWER, 50, searches=True)
    assert [(batch.offset, batch.last_offset) for batch in page.unreadable] == [(0, 9)]
