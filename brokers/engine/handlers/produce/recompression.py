"""Checks and recompresses slow batches in a thread before any batch of their request is appended. A batch is slow if it
decompresses to many bytes, if it has many records or headers, or if its topic requires another codec
(`compression.type`). gzip takes 60 ms for a megabyte, which on the event loop would delay all other tenants. The thread
time is charged to the instance.
"""

from __future__ import annotations

from time import thread_time
from typing import Final

from brokers.engine.handlers.common.background import run_in_converter_thread
from brokers.engine.handlers.produce.request import ProduceRequest, ProduceTopics
from brokers.engine.records import batch as layout
from brokers.engine.records.compression import declares_at_most
from brokers.engine.records.validation import (
    DECOMPRESSED_AT_ONCE_BYTES_MAX,
    WALKED_RECORDS_MAX,
    BatchRules,
    DecompressionBudget,
    Prechecked,
)
from brokers.engine.records.walk import has_headers_at_most

# Uncompressed batches up to this size are recompressed on the event loop: passing them to a thread takes as long.
RECOMPRESSED_AT_ONCE_BYTES_MAX: Final = 16 * 1024
# Uncompressed requests below this size are never inspected.
INSPECTED_REQUEST_BYTES_MIN: Final = 16 * 1024
# Limits of one batch on the event loop: skipping over or inspecting this number of records takes up to 5 ms.
SKIPPED_AT_ONCE_RECORDS_MAX: Final = 32_768
WALKED_AT_ONCE_RECORDS_MAX: Final = 4_096
HEADERS_AT_ONCE_MAX: Final = 4_096
WALKED_AT_ONCE_DECOMPRESSED_BYTES_MAX: Final = 64 * 1024

# Start and end of the batches in the frame, with the batch rules of their topics.
SlowBatches = list[tuple[int, int, BatchRules]]


def may_be_slow(request: ProduceRequest) -> bool:
    """True if batches of this request may be slow to check; `find_slow_batches` finds which."""
    if request.size_bytes >= INSPECTED_REQUEST_BYTES_MIN or request.attributes & layout.CODEC_MASK:
        return True
    return bool(request.session.storage.table.recompresses)


def find_slow_batches(request: ProduceRequest, topics: ProduceTopics) -> SlowBatches:
    """Returns the batches of these topics that are slow to check."""
    client = request.client()
    raw = request.raw
    slow_batches: SlowBatches = []
    for name, partitions in topics:
        topic = client.produce_topics.get(name) or client.resolve_produce_topic(name)
        if topic.error:
            continue
        for index, records_start, records_end in partitions:
            partition = topic.partitions.get(index) or topic.find(index, request.session.storage)
            if isinstance(partition, int):
                continue
            rules = partition.config.batch_rules
            if records_start < 0 or partition.offline or not partition.is_leader:
                continue
            if _is_slow(raw.buffer[records_start:records_end], rules):
                slow_batches.append((records_start - raw.start, records_end - raw.start, rules))
    return slow_batches


def _is_slow(records: memoryview, rules: BatchRules) -> bool:
    if len(records) < layout.HEADER_BYTES or records[layout.MAGIC_AT] != layout.MAGIC:
        return False
    codec = records[layout.ATTRIBUTES_AT] & layout.CODEC_MASK
    block = records[layout.HEADER_BYTES :]
    if rules.codec is not None and codec != rules.codec:
        return codec != 0 or len(records) > RECOMPRESSED_AT_ONCE_BYTES_MAX
    if codec != 0 and not declares_at_most(codec, block, DECOMPRESSED_AT_ONCE_BYTES_MAX):
        return True
    count = layout.record_count(records)
    if rules.walks_all:
        return count > WALKED_AT_ONCE_RECORDS_MAX or _may_have_headers(codec, block, count)
    if count <= WALKED_RECORDS_MAX:
        return _may_have_headers(codec, block, count)
    return count > SKIPPED_AT_ONCE_RECORDS_MAX


def _may_have_headers(codec: int, block: memoryview, count: int) -> bool:
    """True if the records may have more headers than are inspected on the event loop; a header takes two bytes."""
    if codec != 0:
        return not declares_at_most(codec, block, WALKED_AT_ONCE_DECOMPRESSED_BYTES_MAX)
    return len(block) > 2 * HEADERS_AT_ONCE_MAX and not has_headers_at_most(block, count, HEADERS_AT_ONCE_MAX)


async def check_in_thread(request: ProduceRequest, slow_batches: SlowBatches) -> None:
    """Checks and recompresses `slow_batches` in a thread, and stores the results in the request for its append."""
    session, raw = request.session, request.raw
    checked_batches: dict[int, Prechecked] = {}
    now_ms = session.services.clock.now_ms()
    try:
        request.checking_delay_ms = await run_in_converter_thread(
            session,
            raw.client_id,
            lambda: _check(slow_batches, raw.buffer, raw.version, now_ms, checked_batches),
            request.held_frame,
        )
    finally:
        slow_batches.clear()  # the thread stops recompressing for a client that disconnected
    request.checked_batches = checked_batches


def _check(
    slow_batches: SlowBatches, frame: memoryview, version: int, now_ms: int, checked_batches: dict[int, Prechecked]
) -> float:
    """Checks and recompresses the batches; runs in a thread. Returns the CPU seconds used."""
    began_s, budget = thread_time(), DecompressionBudget()
    for start, end, rules in slow_batches:
        checked_batches[start] = Prechecked(frame[start:end], version, rules, now_ms, budget)
    return thread_time() - began_s
