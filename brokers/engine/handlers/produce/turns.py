"""Long Produce requests are appended some batches at a time, and other requests come in between (decision 89)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter

from brokers.engine.handlers.common.background import answer_in_background
from brokers.engine.handlers.produce.request import (
    BYTES_PER_TURN_MAX,
    PARTITIONS_PER_TURN_MAX,
    ProduceRequest,
    TopicResult,
)
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.fast_codec_produce import ProduceTopic

Topics = list[ProduceTopic]


def append_in_turns(
    request: ProduceRequest,
    append: Callable[[Topics], object],
    complete: Callable[[], object],
    charge: Callable[[], object],
) -> bool:
    """Whether this request is so long: then `append` is called for each part of its topics, and `complete` at the end.
    Where the client goes meanwhile, what was appended stays, and its instance is charged for the request all the same.
    """
    parts = parts_of(request.topics)
    if len(parts) == 1:
        return False
    request.keep()
    answer_in_background(request.session, _append(request, append, complete, charge))
    return True


async def _append(
    request: ProduceRequest,
    append: Callable[[Topics], object],
    complete: Callable[[], object],
    charge: Callable[[], object],
) -> None:
    session = request.session
    engine, instance_id = session.engine, session.principal.instance_id
    try:
        for part in parts_of(request.topics):
            began_s = perf_counter()
            append(part)
            engine.loop_turns.record(int(ApiKey.PRODUCE), instance_id, perf_counter() - began_s)
            await asyncio.sleep(0)
    except asyncio.CancelledError:
        charge()
        raise
    session.cancel = None
    request.results = _merged(request.results)
    complete()


def _merged(results: list[TopicResult]) -> list[TopicResult]:
    """One for each topic again, where parts of it follow each other."""
    merged: list[TopicResult] = []
    for name, lines in results:
        if merged and merged[-1][0] == name:
            merged[-1][1].extend(lines)
        else:
            merged.append((name, lines))
    return merged


def parts_of(topics: Topics) -> list[Topics]:
    """`topics` in parts of so many partitions and bytes at most, or of one partition with more."""
    parts: list[Topics] = [[]]
    partitions = size_bytes = 0
    for name, wanted in topics:
        begin = 0
        for at, (_, start, end) in enumerate(wanted):
            set_bytes = max(0, end - start)
            is_full = partitions >= PARTITIONS_PER_TURN_MAX or size_bytes + set_bytes > BYTES_PER_TURN_MAX
            if is_full and partitions:
                if at > begin:
                    parts[-1].append((name, wanted[begin:at]))
                parts.append([])
                begin, partitions, size_bytes = at, 0, 0
            partitions += 1
            size_bytes += set_bytes
        parts[-1].append((name, wanted[begin:]))
    return parts
