"""Batches that their topic wants behind another codec (`compression.type`), recompressed in a thread before anything of
their request is appended: gzip takes 60 ms for a megabyte, and all other tenants would wait that long.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from brokers.engine.handlers.common.background import answer_in_background
from brokers.engine.handlers.produce.request import ProduceRequest
from brokers.engine.records import batch as layout
from brokers.engine.records.validation import BatchRules, CheckedAhead, InflationBudget

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
            if rules.codec is None or records_start < 0 or partition.offline or not partition.is_leader:
                continue
            if _is_slow_to_compress(raw.buffer[records_start:records_end], rules.codec):
                sets.append((records_start - raw.start, records_end - raw.start, rules))
    if sets:
        request.keep()
        answer_in_background(request.session, _recompress(request, sets, on_recompressed))
    return bool(sets)


def _is_slow_to_compress(records: memoryview, wanted_codec: int) -> bool:
    if len(records) < layout.HEADER_BYTES or records[layout.MAGIC_AT] != layout.MAGIC:
        return False
    codec = records[layout.ATTRIBUTES_AT] & layout.CODEC_MASK
    return codec != wanted_codec and (codec != 0 or len(records) > RECOMPRESSED_AT_ONCE_BYTES_MAX)


async def _recompress(request: ProduceRequest, sets: _Sets, on_recompressed: Callable[[], object]) -> None:
    session, raw = request.session, request.raw
    engine = session.engine
    recompressed: dict[int, CheckedAhead] = {}
    now_ms = engine.clock.now_ms()
    try:
        await engine.loop.run_in_executor(
            engine.converters, _check, sets, raw.buffer, raw.version, now_ms, recompressed
        )
    finally:
        sets.clear()  # of a client that is gone, the thread packs no more
    session.cancel = None
    request.recompressed = recompressed
    on_recompressed()


def _check(sets: _Sets, frame: memoryview, version: int, now_ms: int, recompressed: dict[int, CheckedAhead]) -> None:
    budget = InflationBudget()
    for start, end, rules in sets:
        recompressed[start] = CheckedAhead(frame[start:end], version, rules, now_ms, budget)
