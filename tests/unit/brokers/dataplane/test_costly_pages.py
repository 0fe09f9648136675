"""Pages whose messages are costly to look at: they end on time after any message, and go on at the next one."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random

import pytest
from kafka.record.memory_records import MemoryRecordsBuilder

from brokers.dataplane.message_cursor import FetchRange, PartitionCursor
from brokers.dataplane.message_pages import FetchedPartition, FetchResult, PageReader
from brokers.dataplane.record_batches import batches
from instances.messages import content, limits
from instances.messages.interfaces import FROM_NEWEST, NEWER, OLDER, PageRequest, Record
from instances.messages.masks import Masks
from instances.messages.record_filter import FilterTexts, RecordFilter
from instances.messages.rendering import Renderer
from instances.messages.schemas.sources import NoSchemas

COUNT = 300
COST_S = 0.05
SMALL = [str(number).encode() for number in range(COUNT)]


class Kept:
    """One partition in memory, and a clock that only costly messages move."""

    def __init__(self, values: Sequence[bytes] = SMALL) -> None:
        builder = MemoryRecordsBuilder(2, 0, 1 << 26)
        for number, value in enumerate(values):
            builder.append(timestamp=number, key=None, value=value)
        builder.close()
        self._raw = bytes(builder.buffer())
        self._count = len(values)
        self.now_s = 0.0

    def begin_fetch(
        self, ranges: Mapping[int, FetchRange], bytes_max: int, timeout_s: float
    ) -> Callable[[], FetchResult]:
        fetched = FetchedPartition(batches=list(batches(self._raw)), size_bytes=len(self._raw))
        return lambda: FetchResult(partitions={0: fetched})

    def bounds(self, partition: int) -> tuple[int, int, int] | None:
        return 0, self._count, self._count

    def accepts(self, _record: Record) -> bool:
        self.now_s += COST_S
        return False


@pytest.mark.parametrize("direction", [OLDER, NEWER])
def test_a_page_ends_on_time_after_any_costly_message_and_none_is_passed_over(direction: str) -> None:
    kept, seen, position = Kept(), 0, 0 if direction == NEWER else COUNT
    for _ in range(COUNT):
        cursor = PartitionCursor(
            0, start=0, end=COUNT, stable=COUNT, position=position, direction=direction, window=COUNT
        )  # fmt: skip
        request = PageRequest(
            start=FROM_NEWEST, positions=None, partition=None, limit=50, accepts=kept.accepts, is_filtered=True,
            shown_bytes=lambda _record: 0, is_costly=True,
        )  # fmt: skip
        began_s = kept.now_s
        page = PageReader(kept, [cursor], request, direction, lambda: kept.now_s, lambda _s: None).read()
        assert kept.now_s - began_s <= limits.READ_S_MAX + 2 * COST_S
        assert page.scanned >= 1
        seen += page.scanned
        position = page.reached[0]
        if page.is_end:
            break
    assert seen == COUNT


@pytest.mark.parametrize("expression", ["[ab]*a[ab]{200}c", "(?:a[ab]{1,90}a){1,3}c"])
def test_the_worst_legal_expression_over_large_values_ends_on_time_beside_a_neighbour(expression: str) -> None:
    """The neighbour is another thread of the process, as another tenant's page is: it renders a message."""
    large = [bytes(Random(7).choices(b"ab", k=900_000))] * 40
    kept, renderer = Kept(large), Renderer(NoSchemas(), Masks(), content.AUTO, limits.SHOWN_BYTES_MAX)
    accepts = partial(RecordFilter(FilterTexts(matches=expression)).accepts, renderer)
    waits_s: list[float] = []
    is_over = threading.Event()

    def render_beside() -> None:
        own = Renderer(NoSchemas(), Masks(), content.AUTO, limits.SHOWN_BYTES_MAX)
        small = Record(partition=0, offset=0, timestamp_ms=1, is_append_time=False, key=b"k", value=b'{"a": [1, 2]}')
        while not is_over.is_set():
            began_s = time.monotonic()
            time.sleep(0.005)
            assert own.show(small).value.format == content.JSON
            waits_s.append(time.monotonic() - began_s)

    thread = threading.Thread(target=render_beside)
    thread.start()
    try:
        seen = position = 0
        while seen < len(large):
            cursor = PartitionCursor(
                0, start=0, end=len(large), stable=len(large), position=position, direction=NEWER, window=len(large)
            )  # fmt: skip
            request = PageRequest(
                start=FROM_NEWEST, positions=None, partition=None, limit=50, accepts=accepts, is_filtered=True,
                shown_bytes=lambda _record: 0, is_costly=True,
            )  # fmt: skip
            began_s = time.thread_time()  # which other programs do not move
            page = PageReader(kept, [cursor], request, NEWER, time.thread_time, time.sleep).read()
            assert time.thread_time() - began_s < limits.READ_S_MAX + 1
            assert page.scanned >= 1 and not page.records
            seen, position = seen + page.scanned, page.reached[0]
    finally:
        is_over.set()
        thread.join(20)
    assert len(waits_s) >= 50
    # A held interpreter shows in most of them, a machine with other work to do in a few.
    assert statistics.quantiles(waits_s, n=20)[-1] < 0.5
