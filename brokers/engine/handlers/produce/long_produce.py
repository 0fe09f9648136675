"""A Produce of very many batches: decoded and appended some at a time, and other requests come in between (I.6)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from brokers.engine.handlers.client import Client
from brokers.engine.handlers.common.background import PARTITIONS_PER_TURN_MAX, answer_in_turns, parts_of
from brokers.engine.handlers.produce.request import (
    DECODED_AT_ONCE_MAX,
    EncodedPart,
    ProduceRequest,
    ProduceTopics,
    TopicResult,
)
from brokers.engine.handlers.produce.response import is_long
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.fast_codec import ProduceDecoder, encode_produced_topics
from brokers.engine.protocol.fast_codec_produce import ProducePartition
from brokers.engine.scheduling.time_slice import free_incrementally, yield_to_others

# What an append counts as: it takes 10 to 30 us, and the first one to a partition, which makes its files, up to 300 us.
BATCH_WEIGHT: Final = 8
# Requests of more batches take turns. Producers send one for each partition that a broker leads.
BATCHES_AT_ONCE_MAX: Final = PARTITIONS_PER_TURN_MAX // BATCH_WEIGHT
# The same of several batches that are longer together.
BYTES_AT_ONCE_MAX: Final = 1024 * 1024
# To check and append so many bytes takes about as long as to read a partition.
BYTES_OF_WEIGHT: Final = 8 * 1024
# Topics and partitions of an answer.
ENCODED_AT_ONCE_MAX: Final = 1_000


AppendTopics = Callable[[ProduceRequest, Client, ProduceTopics], object]
Complete = Callable[[ProduceRequest, Client], object]


def append_in_turns(
    request: ProduceRequest, append_topics: AppendTopics, complete: Complete, charge_for: Complete
) -> None:
    """`append_topics` with some of the request's topics at a time, then `complete`. Where the client goes meanwhile,
    what was appended stays, and is charged.
    """
    request.copy_frame()
    work = _append_in_turns(request, append_topics, complete)

    def charge_at_the_end() -> None:
        if not request.is_charged:
            request.now_ms = request.session.engine.clock.now_ms()
            charge_for(request, request.client())

    answer_in_turns(request.session, int(ApiKey.PRODUCE), request.raw.client_id, work, charge_at_the_end)


def decode_in_turns(request: ProduceRequest, on_decoded: Callable[[ProduceRequest], object]) -> None:
    """`on_decoded` with the request once all of it is decoded."""
    request.copy_frame()
    answer_in_turns(request.session, int(ApiKey.PRODUCE), request.raw.client_id, _decode_in_turns(request, on_decoded))


async def _decode_in_turns(request: ProduceRequest, on_decoded: Callable[[ProduceRequest], object]) -> None:
    raw, session = request.raw, request.session
    request.is_kept = True  # its positions are those of the frame that was kept
    decoder = ProduceDecoder(raw.buffer, raw.body, raw.end, raw.version, session.produce_items_max)
    is_over = decoder.advance(DECODED_AT_ONCE_MAX)
    while not is_over:
        await yield_to_others()
        is_over = decoder.advance(DECODED_AT_ONCE_MAX)
    request.decoded(decoder.frame())
    await yield_to_others()
    session.cancel = None
    on_decoded(request)


async def _append_in_turns(request: ProduceRequest, append_topics: AppendTopics, complete: Complete) -> None:
    request.keep()
    await yield_to_others()
    for part, goes_on in parts_of(request.topics, _weigh):
        before = len(request.results)
        append_topics(request, request.client(), part)
        if goes_on:
            rest = request.results.pop(before)
            request.results[before - 1][1].extend(rest[1])
        await yield_to_others()
    # Who waits for the last offset of a partition has waited for those before.
    request.pending = list(dict(request.pending).items())
    await free_incrementally(request.topics, lambda topic: topic[1])
    if request.acks and is_long(request.results):
        request.encoded = await _encoded(request.raw.version, request.results)
    request.session.cancel = None
    complete(request, request.client())


async def _encoded(version: int, results: list[TopicResult]) -> list[EncodedPart]:
    encoded: list[EncodedPart] = []
    part: list[TopicResult] = []
    lines = 0
    for result in results:
        part.append(result)
        lines += 1 + len(result[1])
        if lines > ENCODED_AT_ONCE_MAX:
            encoded.append((part, encode_produced_topics(version, part)))
            part, lines = [], 0
            await yield_to_others()
    encoded.append((part, encode_produced_topics(version, part)))
    await yield_to_others()
    return encoded


def _weigh(wanted: ProducePartition) -> int:
    _, records_start, records_end = wanted
    return BATCH_WEIGHT + max(0, records_end - records_start) // BYTES_OF_WEIGHT
