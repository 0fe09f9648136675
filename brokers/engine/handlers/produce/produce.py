"""Produce: find the partition by the bytes of the wire, append in place, charge, answer (REP-12, QUO-18, QUO-32)."""

from __future__ import annotations

from functools import partial
from typing import Final

from brokers.engine.handlers.client import Client, Route
from brokers.engine.handlers.context import Engine
from brokers.engine.handlers.produce.delayed_produce import Owing
from brokers.engine.handlers.produce.delayed_produce_legacy import PartitionErrors, when_complete
from brokers.engine.handlers.produce.error_details import encode as encode_detailed
from brokers.engine.handlers.produce.recompression import Recompressed, recompress_in_background
from brokers.engine.handlers.produce.transaction_verification import (
    Topics,
    TransactionVerification,
    nothing_allowed,
    verify_transactions,
)
from brokers.engine.handlers.session import Session
from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.results import AppendResult
from brokers.engine.partitions.verification import NO_TXN_ID
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode, downgraded
from brokers.engine.protocol.fast_codec import decode_produce, encode_produce_response
from brokers.engine.records.batch import ATTRIBUTES_AT, HEADER_BYTES, TRANSACTIONAL
from brokers.engine.records.rejections import TOO_MUCH_INFLATED
from brokers.engine.records.validation import INFLATED, INFLATED_PER_REQUEST_MAX, claims_transaction
from brokers.engine.throttling.charging import charge

ACKS_ALL: Final = -1
NULL_RECORDS: Final = "The record set is null."
# From this version on an answer can say which record was wrong, and from the other who leads instead.
_RECORD_ERRORS_FROM: Final = 8
_LEADERS_FROM: Final = 10

PartitionAnswer = tuple[int, int, int, int, int, str | None]
TopicAnswer = tuple[bytes, list[PartitionAnswer]]


def produce(
    session: Session,
    version: int,
    correlation_id: int,
    client_id: str | None,
    buffer: memoryview,
    body: int,
    start: int,
    end: int,
    verification: TransactionVerification | None = None,
    recompressed: Recompressed | None = None,
) -> None:
    """`buffer[start:end]` is the frame; its records are appended before this ends, or once others did their part."""
    engine = session.engine
    transactional_id, acks, timeout_ms, topics = decode_produce(buffer, body, end, version)
    client = session.client(client_id)
    if transactional_id is None:
        verification = _unnamed(buffer, topics)
    elif verification is None:
        again = partial(_produce_kept, session, version, correlation_id, client_id, body - start)
        verification = verify_transactions(
            session, client, version, transactional_id, topics, buffer, start, end, again
        )
        if verification is None:
            return
    if recompressed is None and engine.table.recompresses:
        once_recompressed = partial(_produce_kept, session, version, correlation_id, client_id, body - start)
        if recompress_in_background(
            session, client, version, topics, buffer, start, end, once_recompressed, verification
        ):
            return
    now_ms = engine.clock.now_ms()
    if now_ms - engine.stall_detector.checked_ms > engine.stall_detector.pause_ms_max:
        engine.stall_detector.check(now_ms)
    answers: list[TopicAnswer] = []
    detailed: dict[tuple[bytes, int], AppendResult] = {}
    pending: list[tuple[Partition, int]] = []
    failed, accepted_bytes, inflated_max = False, 0, INFLATED.bytes + INFLATED_PER_REQUEST_MAX
    for name, wanted in topics:
        route = client.produce_routes.get(name)
        if route is None:
            route = client.produce_route(name)
        error, topic_bytes = route.error, 0
        lines: list[PartitionAnswer] = []
        for index, records_start, records_end in wanted:
            partition = route.partitions.get(index)
            if partition is None or error or records_start < 0 or verification or INFLATED.bytes > inflated_max:
                refusal = None if verification is None else verification.refusals.get((name, index))
                found = refusal or _resolve_partition(engine, route, error, index, records_start, inflated_max)
                if isinstance(found, tuple):
                    failed = True
                    lines.append(found)
                    continue
                partition = found
            verification_token = NO_TXN_ID if verification is None else verification.verification_token(name, index)
            records = buffer[records_start:records_end]
            ahead = None if recompressed is None else recompressed.get(records_start)
            result = partition.append(
                records, now_ms, acks=acks, produce_version=version, verification_token=verification_token, ahead=ahead
            )
            code, base_offset, append_ms, log_start_offset, message, appended_bytes, last_offset, wrong = result
            if code:
                failed = True
                code = downgraded(code, ApiKey.PRODUCE, version)
                if wrong:
                    detailed[name, index] = result
            else:
                topic_bytes += appended_bytes
                if acks == ACKS_ALL and partition.high_watermark <= last_offset:
                    pending.append((partition, last_offset))
            lines.append((index, code, base_offset, append_ms, log_start_offset, message))
        if topic_bytes:
            accepted_bytes += topic_bytes
            if route.usage is not None:
                route.usage.add(topic_bytes)
        answers.append((name, lines))
    delay_ms = _charged(session, client, accepted_bytes, end - start, now_ms)
    if acks == 0:
        _end_without_answer(session, failed, delay_ms)
    elif pending:
        LateAnswer(session, version, correlation_id, answers, delay_ms).wait_for(pending, timeout_ms)
    elif failed and _needs_detail(version, answers, detailed):
        frame = encode_detailed(session.view(), version, correlation_id, answers, detailed, delay_ms)
        session.channel.respond(frame, delay_ms)
    else:
        session.channel.respond(encode_produce_response(version, correlation_id, answers, delay_ms), delay_ms)


def _end_without_answer(session: Session, failed: bool, delay_ms: int) -> None:
    if failed:
        session.channel.close("an append without acknowledgement failed")
    else:
        session.channel.finish_without_response(delay_ms)


def _unnamed(buffer: memoryview, topics: Topics) -> TransactionVerification | None:
    """The refusal of a request in which a partition is given a batch of a transaction that nobody names: REC-44 is for
    all of them, and comes before whatever else is wrong.
    """
    if len(topics) == 1 and len(topics[0][1]) == 1:
        _, start, end = topics[0][1][0]
        if end - start < HEADER_BYTES or not buffer[start + ATTRIBUTES_AT] & TRANSACTIONAL:
            return None  # nearly every request
    for _, wanted in topics:
        for _, start, end in wanted:
            if start >= 0 and claims_transaction(buffer[start:end]):
                return nothing_allowed(topics, int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    return None


def _produce_kept(
    session: Session,
    version: int,
    correlation_id: int,
    client_id: str | None,
    body: int,
    frame: memoryview,
    verification: TransactionVerification | None,
    recompressed: Recompressed | None = None,
) -> None:
    """A frame that was kept while the coordinator was asked, or its batches were recompressed."""
    produce(session, version, correlation_id, client_id, frame, body, 0, len(frame), verification, recompressed)


def _charged(session: Session, client: Client, accepted_bytes: int, frame_bytes: int, now_ms: int) -> int:
    """How long the client is to be left in silence for this request, in milliseconds."""
    engine = session.engine
    if accepted_bytes:
        engine.totals.produce_bytes += accepted_bytes
        if client.accounting is not None:
            client.accounting.traffic.produced(accepted_bytes, now_ms)
    if not client.produce_limiters:
        return 0
    delay_ms, limiter = charge(client.produce_limiters, frame_bytes, engine.clock.monotonic_ms())
    if limiter is not None:
        client.remember_delay(limiter, delay_ms, now_ms)
    return delay_ms


def _resolve_partition(
    engine: Engine, route: Route, error: int, index: int, records_start: int, inflated_max: int
) -> Partition | PartitionAnswer:
    """The partition at its first use, or the line of the answer that refuses it."""
    if error:
        return index, error, -1, -1, -1, None
    found = route.partitions.get(index) or route.find(index, engine)
    if isinstance(found, int):
        return index, found, -1, -1, -1, None
    if records_start < 0:
        return index, int(ErrorCode.INVALID_RECORD), -1, -1, -1, NULL_RECORDS
    if INFLATED.bytes > inflated_max:
        return index, int(ErrorCode.MESSAGE_TOO_LARGE), -1, -1, -1, TOO_MUCH_INFLATED
    return found


def _needs_detail(version: int, answers: list[TopicAnswer], detailed: object) -> bool:
    if detailed and version >= _RECORD_ERRORS_FROM:
        return True
    moved = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return version >= _LEADERS_FROM and any(line[1] == moved for _, lines in answers for line in lines)


class LateAnswer:
    """What is left to say of a produce once it is known how each of its partitions ended."""

    __slots__ = ("_answers", "_correlation_id", "_delay_ms", "_session", "_version")

    def __init__(
        self, session: Session, version: int, correlation_id: int, answers: list[TopicAnswer], delay_ms: int
    ) -> None:
        self._session = session
        self._version = version
        self._correlation_id = correlation_id
        self._answers = answers
        self._delay_ms = delay_ms

    def wait_for(self, pending: list[tuple[Partition, int]], timeout_ms: int) -> None:
        if self._delay_ms:
            # The silence begins with the answer (QUO-30), so nothing else is processed before it.
            when_complete(self._session, pending, timeout_ms, self.respond)
        else:
            Owing(self._session, pending, timeout_ms, self.frame_of)

    def frame_of(self, partition_errors: PartitionErrors) -> bytes:
        version, correlation_id, delay_ms = self._version, self._correlation_id, self._delay_ms
        if not partition_errors:
            return encode_produce_response(version, correlation_id, self._answers, delay_ms)
        view = self._session.view()
        final: list[TopicAnswer] = []
        for name, lines in self._answers:
            topic = view.namespace.topics.get(name)
            internal = topic.name if topic is not None else ""
            final.append(
                (
                    name,
                    [
                        (line[0], code, line[2], line[3], line[4], None)
                        if not line[1] and (code := partition_errors.get((internal, line[0]), 0))
                        else line
                        for line in lines
                    ],
                )
            )
        if _needs_detail(version, final, None):
            return encode_detailed(view, version, correlation_id, final, {}, delay_ms)
        return encode_produce_response(version, correlation_id, final, delay_ms)

    def respond(self, partition_errors: PartitionErrors) -> None:
        self._session.channel.respond(self.frame_of(partition_errors), self._delay_ms)
