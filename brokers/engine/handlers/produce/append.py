"""Appends the batches of a Produce request and answers it (REP-12)."""

from __future__ import annotations

from typing import Final

from brokers.engine.handlers.client import ClientContext, ResolvedTopic
from brokers.engine.handlers.produce.delayed_produce import DelayedProduce
from brokers.engine.handlers.produce.request import PartitionResult, ProduceRequest, ProduceTopics
from brokers.engine.handlers.produce.response import DelayedProduceResponse, encode, join_encoded
from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.results import AppendResult
from brokers.engine.partitions.verification import NO_TXN_ID
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode, downgraded
from brokers.engine.records.rejections import TOO_MUCH_DECOMPRESSED

ACKS_ALL: Final = -1
NULL_RECORDS: Final = "The record set is null."


def append_topics(request: ProduceRequest, client: ClientContext, topics: ProduceTopics) -> None:
    """Appends the batches of `topics`, a subset of the request's topics, and adds their results to the request."""
    session = request.session
    detector = session.storage.stall_detector
    request.now_ms = now_ms = session.services.clock.now_ms()
    if now_ms - detector.checked_ms > detector.pause_ms_max:
        detector.check(now_ms)
    acks, verification, budget = request.acks, request.verification, request.decompression_budget
    for name, partitions in topics:
        topic = client.produce_topics.get(name)
        if topic is None:
            topic = client.resolve_produce_topic(name)
        error, topic_bytes = topic.error, 0
        results: list[PartitionResult] = []
        for index, records_start, records_end in partitions:
            partition = topic.partitions.get(index)
            if (
                partition is None
                or error
                or records_start < 0
                or verification is not None
                or budget.remaining_bytes < 0
            ):
                resolved = _resolve_partition(request, topic, name, index, records_start)
                if isinstance(resolved, tuple):
                    request.has_errors = True
                    results.append(resolved)
                    continue
                partition = resolved
            result = _append_batch(request, partition, name, index, records_start, records_end, now_ms)
            code, base_offset, append_ms, log_start_offset, message, appended_bytes, last_offset, record_errors = result
            if code:
                request.has_errors = True
                code = downgraded(code, ApiKey.PRODUCE, request.raw.version)
                if record_errors:
                    if request.detailed_results is None:
                        request.detailed_results = {}
                    request.detailed_results[name, index] = result
            else:
                topic_bytes += appended_bytes
                if acks == ACKS_ALL and partition.high_watermark <= last_offset:
                    request.pending_appends.append((partition, last_offset))
                    request.internal_names[name] = partition.topic
            results.append((index, code, base_offset, append_ms, log_start_offset, message))
        if topic_bytes:
            request.accepted_bytes += topic_bytes
            if topic.usage is not None:
                topic.usage.add(topic_bytes)
            if topic.limiter is not None:
                request.charge_topic(topic.limiter, topic_bytes)
        request.results.append((name, results))


def respond(request: ProduceRequest, client: ClientContext) -> None:
    """Charges the request, and responds: at once, or when the records are committed, or not at all with acks=0."""
    session, raw = request.session, request.raw
    request.release()
    delay_ms = request.charge_appended(client)
    if request.has_errors:
        client.record_refusals(
            ((result[1], result[5]) for _, results in request.results for result in results), request.now_ms
        )
    if request.acks == 0:
        if request.has_errors:
            session.channel.close("an append without acknowledgement failed")
        else:
            session.channel.finish_without_response(delay_ms, request.mute)
    elif request.pending_appends:
        response = DelayedProduceResponse(request, delay_ms)
        # The throttle delay begins with the response (QUO-30): no further request is processed before it is sent.
        DelayedProduce(
            session, request.pending_appends, request.timeout_ms, response.frame_of, delay_ms, request.mute,
            holds_connection=delay_ms > 0,
        )  # fmt: skip
    else:
        if request.encoded_parts is not None:
            count = len(request.results)
            frame = join_encoded(raw.version, raw.correlation_id, count, request.encoded_parts, delay_ms)
        else:
            frame = encode(
                session,
                raw.version,
                raw.correlation_id,
                request.results,
                request.detailed_results,
                request.has_errors,
                delay_ms,
            )
        session.channel.respond(frame, delay_ms, request.mute)


def _resolve_partition(
    request: ProduceRequest, topic: ResolvedTopic, name: bytes, index: int, records_start: int
) -> Partition | PartitionResult:
    """Returns the partition, resolved on first use, or the result that rejects it."""
    if request.verification is not None:
        refusal = request.verification.refusal(name, index)
        if refusal is not None:
            return refusal
    if topic.error:
        return index, topic.error, -1, -1, -1, None
    result = topic.partitions.get(index) or topic.find(index, request.session.storage)
    if isinstance(result, int):
        return index, result, -1, -1, -1, None
    if records_start < 0:
        return index, int(ErrorCode.INVALID_RECORD), -1, -1, -1, NULL_RECORDS
    if request.decompression_budget.remaining_bytes < 0:
        return index, int(ErrorCode.MESSAGE_TOO_LARGE), -1, -1, -1, TOO_MUCH_DECOMPRESSED
    return result


def _append_batch(
    request: ProduceRequest,
    partition: Partition,
    name: bytes,
    index: int,
    records_start: int,
    records_end: int,
    now_ms: int,
) -> AppendResult:
    verification, checked_batches = request.verification, request.checked_batches
    return partition.append(
        request.raw.buffer[records_start:records_end],
        now_ms,
        acks=request.acks,
        produce_version=request.raw.version,
        verification_token=NO_TXN_ID if verification is None else verification.verification_token(name, index),
        prechecked=None if checked_batches is None else checked_batches.get(records_start),
        budget=request.decompression_budget,
    )
