"""Batches that their topic wants behind another codec (`compression.type`), recompressed in a thread before anything of
their request is appended: gzip takes 60 ms for a megabyte, and all other tenants would wait that long.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from brokers.engine.handlers.client import Client
from brokers.engine.handlers.common.background import answer_in_background
from brokers.engine.handlers.produce.transaction_verification import Topics, TransactionVerification
from brokers.engine.handlers.session import Session
from brokers.engine.records import batch as layout
from brokers.engine.records.validation import BatchRules, CheckedAhead, Inflated

# What is not compressed and no larger is recompressed at once: the way through a thread and back would take as long.
RECOMPRESSED_AT_ONCE_BYTES_MAX: Final = 16 * 1024

# By where their record sets begin in the frame.
Recompressed = dict[int, CheckedAhead]
_Sets = list[tuple[int, int, BatchRules]]


def recompress_in_background(
    session: Session,
    client: Client,
    version: int,
    topics: Topics,
    buffer: memoryview,
    start: int,
    end: int,
    again: Callable[[memoryview, TransactionVerification | None, Recompressed], object],
    verification: TransactionVerification | None,
) -> bool:
    """Whether batches of this request are recompressed in a thread: then `again` is called with a copy of its frame,
    `buffer[start:end]`, with `verification`, and with what was recompressed.
    """
    sets: _Sets = []
    for name, wanted in topics:
        route = client.produce_routes.get(name) or client.produce_route(name)
        if route.error:
            continue
        for index, records_start, records_end in wanted:
            partition = route.partitions.get(index) or route.find(index, session.engine)
            if isinstance(partition, int):
                continue
            rules = partition.config.batch_rules
            if rules.codec is None or records_start < 0 or partition.offline or not partition.is_leader:
                continue
            if _is_slow_to_compress(buffer[records_start:records_end], rules.codec):
                sets.append((records_start - start, records_end - start, rules))
    if sets:
        frame = memoryview(bytearray(buffer[start:end]))
        answer_in_background(session, _recompress(session, version, sets, frame, partial(again, frame, verification)))
    return bool(sets)


def _is_slow_to_compress(records: memoryview, wanted_codec: int) -> bool:
    if len(records) < layout.HEADER_BYTES or records[layout.MAGIC_AT] != layout.MAGIC:
        return False
    codec = records[layout.ATTRIBUTES_AT] & layout.CODEC_MASK
    return codec != wanted_codec and (codec != 0 or len(records) > RECOMPRESSED_AT_ONCE_BYTES_MAX)


async def _recompress(
    session: Session, version: int, sets: _Sets, frame: memoryview, again: Callable[[Recompressed], object]
) -> None:
    engine = session.engine
    recompressed: Recompressed = {}
    now_ms = engine.clock.now_ms()
    try:
        await engine.loop.run_in_executor(engine.converters, _check, sets, frame, version, now_ms, recompressed)
    finally:
        sets.clear()  # of a client that is gone, the thread packs no more
    session.cancel = None
    again(recompressed)


def _check(sets: _Sets, frame: memoryview, version: int, now_ms: int, recompressed: Recompressed) -> None:
    inflated = Inflated()
    for start, end, rules in sets:
        recompressed[start] = CheckedAhead(frame[start:end], version, rules, now_ms, inflated)
