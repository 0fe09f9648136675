"""Produce, in stages: wait for what is owed, verify the transaction, recompress, append in place, complete (REP-12,
QUO-18, QUO-32).

Stages before the append may wait for others: then the stage after them is called once they did their part. A debt that
others ran into meanwhile is waited for again before the append.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from brokers.engine.handlers.client import Client, Route
from brokers.engine.handlers.common.admission import Admission
from brokers.engine.handlers.produce.delayed_produce import DelayedProduce
from brokers.engine.handlers.produce.long_produce import (
    BATCHES_AT_ONCE_MAX,
    BYTES_AT_ONCE_MAX,
    append_in_turns,
    decode_in_turns,
)
from brokers.engine.handlers.produce.recompression import (
    LOOKED_AT_BYTES_MIN,
    recompress_in_background,
    recompress_in_turns,
)
from brokers.engine.handlers.produce.request import (
    PartitionResult,
    ProduceRequest,
    ProduceTopics,
    TransactionVerification,
)
from brokers.engine.handlers.produce.response import DelayedProduceResponse, encode
from brokers.engine.handlers.produce.transaction_verification import verify_in_turns, verify_transactions
from brokers.engine.handlers.raw_request import RawRequest
from brokers.engine.handlers.session import Session
from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.results import AppendResult
from brokers.engine.partitions.verification import NO_TXN_ID
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode, downgraded
from brokers.engine.records.batch import CODEC_MASK, TRANSACTIONAL
from brokers.engine.records.rejections import TOO_MUCH_INFLATED
from brokers.engine.throttling.charging import Limiter, charge
from brokers.engine.throttling.waits import Mute

ACKS_ALL: Final = -1
NULL_RECORDS: Final = "The record set is null."


def produce(session: Session, raw: RawRequest) -> None:
    """Appends the records before this ends, or once others did their part."""
    request = ProduceRequest(session, raw)
    limiter = request.in_debt()
    if limiter is None:
        begin(request)
    else:
        wait_until_paid(request, limiter, begin)


def begin(request: ProduceRequest) -> None:
    """Handles a request whose client owes nothing."""
    if request.is_long:
        decode_in_turns(request, verify)
    else:
        verify(request)


def wait_until_paid(request: ProduceRequest, limiter: Limiter, stage: Callable[[ProduceRequest], object]) -> None:
    """Calls `stage` with the request when `limiter`, and every other of its limiters, is paid."""
    if request.is_long:
        request.copy_frame()
    else:
        request.keep()
    Admission(
        request.session, int(ApiKey.PRODUCE), request.raw.client_id, request.limiters, partial(stage, request)
    ).wait_for(limiter)


def verify(request: ProduceRequest) -> None:
    if request.transactional_id is None and not request.attributes & TRANSACTIONAL:
        recompress(request)
    elif request.is_long:
        verify_in_turns(request, partial(_verified, request))
    else:
        verify_transactions(request, partial(_verified, request))


def _verified(request: ProduceRequest, verification: TransactionVerification | None) -> None:
    request.verification = verification
    request.session.in_turn(partial(recompress, request))


def recompress(request: ProduceRequest) -> None:
    raw = request.raw
    may_be_slow = (
        raw.end - raw.start >= LOOKED_AT_BYTES_MIN
        or request.attributes & CODEC_MASK
        or request.session.engine.table.recompresses
    )
    if request.is_long:
        recompress_in_turns(request, partial(append, request))
    elif not may_be_slow or not recompress_in_background(request, partial(_recompressed, request)):
        append(request)


def _recompressed(request: ProduceRequest) -> None:
    request.session.in_turn(partial(append, request))


def append(request: ProduceRequest) -> None:
    limiter = request.in_debt() if request.is_kept else None
    if limiter is not None:
        wait_until_paid(request, limiter, append)
        return
    raw, batches = request.raw, request.batch_count
    charge_received(request, request.client())
    # A long one may name very many topics, and have few batches.
    is_long = request.is_long or batches > BATCHES_AT_ONCE_MAX
    if is_long or (batches > 1 and raw.end - raw.start > BYTES_AT_ONCE_MAX):
        append_in_turns(request, append_topics, complete, charge_for)
    else:
        client = request.client()
        append_topics(request, client, request.topics)
        complete(request, client)


def append_topics(request: ProduceRequest, client: Client, topics: ProduceTopics) -> None:
    """Appends the batches of `topics`, which are some of the request's."""
    engine = request.session.engine
    request.now_ms = now_ms = engine.clock.now_ms()
    if now_ms - engine.stall_detector.checked_ms > engine.stall_detector.pause_ms_max:
        engine.stall_detector.check(now_ms)
    acks, verification, budget = request.acks, request.verification, request.inflation_budget
    for name, wanted in topics:
        route = client.produce_routes.get(name)
        if route is None:
            route = client.produce_route(name)
        error, topic_bytes = route.error, 0
        results: list[PartitionResult] = []
        for index, records_start, records_end in wanted:
            partition = route.partitions.get(index)
            if partition is None or error or records_start < 0 or verification is not None or budget.left_bytes < 0:
                matching = _resolve_partition(request, route, name, index, records_start)
                if isinstance(matching, tuple):
                    request.failed = True
                    results.append(matching)
                    continue
                partition = matching
            result = _append_batch(request, partition, name, index, records_start, records_end, now_ms)
            code, base_offset, append_ms, log_start_offset, message, appended_bytes, last_offset, wrong = result
            if code:
                request.failed = True
                code = downgraded(code, ApiKey.PRODUCE, request.raw.version)
                if wrong:
                    if request.detailed is None:
                        request.detailed = {}
                    request.detailed[name, index] = result
            else:
                topic_bytes += appended_bytes
                if acks == ACKS_ALL and partition.high_watermark <= last_offset:
                    request.pending.append((partition, last_offset))
            results.append((index, code, base_offset, append_ms, log_start_offset, message))
        if topic_bytes:
            request.accepted_bytes += topic_bytes
            if route.usage is not None:
                route.usage.add(topic_bytes)
            if route.limiter is not None:
                request.charge_topic(route.limiter, topic_bytes)
        request.results.append((name, results))


def complete(request: ProduceRequest, client: Client) -> None:
    """Charges, then answers, waits until what was appended is committed, or answers nothing at all."""
    session, raw = request.session, request.raw
    request.release()
    delay_ms = charge_for(request, client)
    if request.failed:
        client.remember_refusals(
            ((result[1], result[5]) for _, results in request.results for result in results), request.now_ms
        )
    if request.acks == 0:
        if request.failed:
            session.channel.close("an append without acknowledgement failed")
        else:
            session.channel.finish_without_response(delay_ms, request.mute)
    elif request.pending:
        # Not the request itself, which holds its frame.
        response = DelayedProduceResponse(
            session, raw.version, raw.correlation_id, request.results, delay_ms, request.encoded
        )
        # The silence begins with the answer (QUO-30), so nothing else is processed before it.
        DelayedProduce(
            session, request.pending, request.timeout_ms, response.frame_of, delay_ms, request.mute,
            holds_connection=delay_ms > 0,
        )  # fmt: skip
    else:
        frame = encode(
            session, raw.version, raw.correlation_id, request.results, request.detailed, request.failed, delay_ms,
            request.encoded,
        )  # fmt: skip
        session.channel.respond(frame, delay_ms, request.mute)


def _resolve_partition(
    request: ProduceRequest, route: Route, name: bytes, index: int, records_start: int
) -> Partition | PartitionResult:
    """The partition at its first use, or the result that refuses it."""
    if request.verification is not None:
        refusal = request.verification.refusal(name, index)
        if refusal is not None:
            return refusal
    if route.error:
        return index, route.error, -1, -1, -1, None
    result = route.partitions.get(index) or route.find(index, request.session.engine)
    if isinstance(result, int):
        return index, result, -1, -1, -1, None
    if records_start < 0:
        return index, int(ErrorCode.INVALID_RECORD), -1, -1, -1, NULL_RECORDS
    if request.inflation_budget.left_bytes < 0:
        return index, int(ErrorCode.MESSAGE_TOO_LARGE), -1, -1, -1, TOO_MUCH_INFLATED
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
    verification, recompressed = request.verification, request.recompressed
    return partition.append(
        request.raw.buffer[records_start:records_end],
        now_ms,
        acks=request.acks,
        produce_version=request.raw.version,
        verification_token=NO_TXN_ID if verification is None else verification.verification_token(name, index),
        ahead=None if recompressed is None else recompressed.get(records_start),
        budget=request.inflation_budget,
    )


def charge_received(request: ProduceRequest, client: Client) -> None:
    """Charges the bytes of the request before its records are appended: nobody else is admitted meanwhile."""
    if client.produce_limiters:
        raw, now_ms = request.raw, request.session.engine.clock.monotonic_ms()
        request.delay_ms, request.limiter = charge(client.produce_limiters, raw.end - raw.start, now_ms)


def charge_for(request: ProduceRequest, client: Client) -> int:
    """Charges what only the append made known; returns how long the client waits after the response, in ms."""
    request.is_charged = True
    engine, accepted_bytes, now_ms = request.session.engine, request.accepted_bytes, request.now_ms
    if accepted_bytes:
        engine.totals.produce_bytes += accepted_bytes
        if client.accounting is not None:
            client.accounting.traffic.produced(accepted_bytes, now_ms)
    checking_delay_ms = request.checking_delay_ms
    if checking_delay_ms and client.accounting is not None:
        client.accounting.remember_request_time(checking_delay_ms, client.user, client.client_id, now_ms)
    if not client.produce_limiters and client.request_limiter is None and request.topic_limiter is None:
        return checking_delay_ms
    raw = request.raw
    # What a topic wants uncompressed may be far more than what was sent.
    more_bytes = accepted_bytes - (raw.end - raw.start)
    if more_bytes > 0:
        delay_ms, limiter = charge(client.produce_limiters, more_bytes, engine.clock.monotonic_ms())
    else:
        delay_ms, limiter = request.delay_ms, request.limiter
    if request.topic_delay_ms > delay_ms:
        delay_ms, limiter = request.topic_delay_ms, request.topic_limiter
    if limiter is not None and delay_ms >= checking_delay_ms:
        request.mute = Mute(limiter, delay_ms, engine.loop_clock)
    request_limiter = client.request_limiter
    if request_limiter is not None:
        if request.acks == 0:
            request.session.leave_turn_uncharged()
        else:
            time_delay_ms = request.session.time_delay_ms(request_limiter)
            if time_delay_ms > delay_ms:
                delay_ms, limiter, request.mute = time_delay_ms, request_limiter, None
    if limiter is not None:
        client.remember_delay(limiter, delay_ms, now_ms)
    return max(delay_ms, checking_delay_ms)
