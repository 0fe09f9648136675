"""Batches that take long to check: those that inflate to much, and those that their topic wants behind another codec
(`compression.type`). They are checked and recompressed in a thread before anything of their request is appended: gzip
takes 60 ms for a megabyte, and all other tenants would wait that long. The thread's time is charged to the instance.
"""

from __future__ import annotations

from collections.abc import Callable
from time import thread_time
from typing import Final

from brokers.engine.handlers.common.background import answer_in_background
from brokers.engine.handlers.produce.request import ProduceRequest
from brokers.engine.records import batch as layout
from brokers.engine.records.compression import declares_at_most
from brokers.engine.records.validation import (
    INFLATED_AT_ONCE_BYTES_MAX,
    BatchRules,
    CheckedAhead,
    InflationBudget,
)

# What is not compressed and no larger is recompressed at once: the way through a thread and back would take as long.
RECOMPRESSED_AT_ONCE_BYTES_MAX: Final = 16 * 1024

_Sets = list[tuple[int, int, BatchRules]]


def recompress_in_background(request: ProduceRequest, on_recompressed: Callable[[], object]) -> bool:
    """Whether batches of this request are recompressed in a thread: then the request is kept, and `on_recompressed` is
    called when it knows what they became.
    """
    engine, client = request.session.engine, request.client()
    raw = request.raw
    sets: _Sets = []
    for name, wanted in request.topics:
        route = client.produce_routes.get(name) or client.produce_route(name)
        if route.error:
            continue
        for index, records_start, records_end in wanted:
            partition = route.partitions.get(index) or route.find(index, engine)
            if isinstance(partition, int):
                continue
            rules = partition.config.batch_rules
            if records_start < 0 or partition.offline or not partition.is_leader:
                continue
            if _is_slow(raw.buffer[records_start:records_end], rules.codec):
                sets.append((records_start - raw.start, records_end - raw.start, rules))
    if sets:
        request.keep()
        answer_in_background(request.session, _recompress(request, sets, on_recompressed))
    return bool(sets)


def _is_slow(records: memoryview, wanted_codec: int | None) -> bool:
    if len(records) < layout.HEADER_BYTES or records[layout.MAGIC_AT] != layout.MAGIC:
        return False
    codec = records[layout.ATTRIBUTES_AT] & layout.CODEC_MASK
    if wanted_codec is not None and codec != wanted_codec:
        return codec != 0 or len(records) > RECOMPRESSED_AT_ONCE_BYTES_MAX
    return codec != 0 and not declares_at_most(codec, records[layout.HEADER_BYTES :], INFLATED_AT_ONCE_BYTES_MAX)


async def _recompress(request: ProduceRequest, sets: _Sets, on_recompressed: Callable[[], object]) -> None:
    session, raw = request.session, request.raw
    engine = session.engine
    recompressed: dict[int, CheckedAhead] = {}
    now_ms = engine.clock.now_ms()
    try:
        spent_s = await engine.loop.run_in_executor(
            engine.converters, _check, sets, raw.buffer, raw.version, now_ms, recompressed
        )
    finally:
        sets.clear()  # of a client that is gone, the thread packs no more
    session.cancel = None
    accounting = request.client().accounting
    if accounting is not None:
        monotonic_ms = engine.clock.monotonic_ms()
        request.checking_delay_ms = accounting.request_time.charge(round(spent_s * 1e6), monotonic_ms)
    request.recompressed = recompressed
    on_recompressed()


def _check(sets: _Sets, frame: memoryview, version: int, now_ms: int, recompressed: dict[int, CheckedAhead]) -> float:
    """In a thread; how many seconds of the processor it took."""
    began_s, budget = thread_time(), InflationBudget()
    for start, end, rules in sets:
        recompressed[start] = CheckedAhead(frame[start:end], version, rules, now_ms, budget)
    return thread_time() - began_s
