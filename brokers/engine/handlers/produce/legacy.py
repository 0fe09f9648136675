"""Produce versions 0 to 2: message sets of formats 0 and 1, stored as record batches (REC-30, REC-47 to REC-58,
REC-64).

Message sets are converted in a thread before any partition is changed; a batch of format 2 in such a request is stored
as it is. Everything else works like `produce`.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import thread_time
from typing import Final

from brokers.engine.handlers.client import ClientContext, ResolvedTopic
from brokers.engine.handlers.common.background import run_in_converter_thread
from brokers.engine.handlers.produce.async_produce import start
from brokers.engine.handlers.produce.delayed_produce import DelayedProduce, PartitionErrors
from brokers.engine.handlers.produce.request import ProduceCharges
from brokers.engine.handlers.session import RawRequest, Session
from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.results import AppendResult
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.codec import decode_request, encode_response
from brokers.engine.protocol.errors import ErrorCode, downgraded
from brokers.engine.protocol.framing import check_frame_size
from brokers.engine.protocol.headers import encode_response_frame
from brokers.engine.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from brokers.engine.records.batch import MAGIC
from brokers.engine.records.conversion import CheckedMessageSet, ConversionBudget, check_message_set, to_batch
from brokers.engine.records.rejections import BatchRejected
from brokers.engine.records.validation import (
    DECOMPRESSED_PER_REQUEST_MAX,
    PRODUCE_ZSTD_FROM,
    BatchRules,
    DecompressionBudget,
    Prechecked,
    claims_transaction,
)
from brokers.engine.scheduling.time_slice import yield_to_others
from brokers.engine.throttling.charging import Limiter

# An old request is decoded and copied in one piece: clients of these versions send a megabyte at most.
REQUEST_BYTES_MAX: Final = 8 * 1024 * 1024
ITEMS_MAX: Final = 5_000
# Partitions appended in one turn of the event loop: converted message sets have a megabyte at most, mostly much less.
PARTITIONS_PER_TURN_MAX: Final = 5

ACKS: Final = (-1, 0, 1)
ACKS_ALL: Final = -1

PartitionResult = PartitionProduceResponse
# Result of a message set that is appended and not yet committed, its partition and its last offset.
_PendingResult = tuple[PartitionResult, Partition, int]


@dataclass(slots=True)
class _MessageSet:
    """One record set in progress: its destination, its error so far, and the converted batch (None if it is empty)."""

    name: bytes
    index: int
    records: bytes | None
    error: int = 0
    rules: BatchRules | None = None
    batch: bytearray | None = None
    partition: Partition | None = None
    prechecked: Prechecked | None = None

    def convert(self, conversion: ConversionBudget, now_ms: int, decompression: DecompressionBudget) -> None:
        if self.error or self.rules is None or self.records is None:
            return
        try:
            old_set: CheckedMessageSet = check_message_set(self.records, self.rules.batch_bytes_max)
            if old_set.magic == MAGIC:
                self.batch = bytearray(self.records)
            elif old_set.entries:
                self.batch = to_batch(self.records, old_set, conversion, log_append_time=self.rules.log_append_time)
            if self.batch is not None and self.rules.codec is not None:
                batch = memoryview(self.batch)
                self.prechecked = Prechecked(batch, PRODUCE_ZSTD_FROM, self.rules, now_ms, decompression)
        except BatchRejected as rejection:
            self.error = rejection.code


def produce_old(session: Session, raw: RawRequest) -> None:
    """Handles a Produce of versions 0 to 2. Raises FrameTooLarge."""
    check_frame_size(raw.size_bytes, REQUEST_BYTES_MAX)
    request: ProduceRequest = decode_request(ApiKey.PRODUCE, raw.version, raw.buffer, raw.body, raw.end, ITEMS_MAX)
    start(_OldProduce(session, raw, request))


class _OldProduce:
    """Stages of a Produce with message sets (`async_produce.Stages`)."""

    def __init__(self, session: Session, raw: RawRequest, request: ProduceRequest) -> None:
        self.session = session
        self.version = raw.version
        self.correlation_id = raw.correlation_id
        self.client_id = raw.client_id
        self.request = request
        self.charges = ProduceCharges(session, raw.client_id, raw.size_bytes)
        self.charges.acks = request.acks
        self.topics: list[tuple[str, list[_MessageSet]]] = []

    async def decode(self) -> None:
        client = self.session.client(self.client_id)
        for topic in self.request.topic_data:
            name = topic.name.encode()
            self.topics.append((topic.name, [self._record_set(client, name, data) for data in topic.partition_data]))

    async def verify(self) -> None:
        record_sets = self._record_sets()
        if any(
            record_set.records is not None and claims_transaction(memoryview(record_set.records))
            for record_set in record_sets
        ):
            # A transaction cannot be named in these versions, so the whole request is rejected (REC-44).
            for record_set in record_sets:
                record_set.error = int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)

    async def recompress(self) -> None:
        record_sets, now_ms = self._record_sets(), self.session.services.clock.now_ms()
        try:
            delay_ms = await run_in_converter_thread(
                self.session, self.client_id, lambda: _convert(record_sets, now_ms)
            )
            self.charges.checking_delay_ms = delay_ms
        finally:
            record_sets.clear()  # the thread stops converting for a client that disconnected

    def _record_sets(self) -> list[_MessageSet]:
        return [record_set for _, record_sets in self.topics for record_set in record_sets]

    def limiters(self, client: ClientContext) -> list[Limiter]:
        resolved_topics = [self._resolve_topic(client, topic.name) for topic in self.request.topic_data]
        limiters = [resolved_topic.limiter for resolved_topic in resolved_topics if resolved_topic.limiter is not None]
        return [*client.produce_limiters, *limiters]

    def _record_set(self, client: ClientContext, name: bytes, data: PartitionProduceData) -> _MessageSet:
        """Returns the record set with its partition, or with the error code for which it is rejected."""
        resolved_topic = client.produce_topics.get(name) or client.resolve_produce_topic(name)
        record_set = _MessageSet(name, data.index, data.records, resolved_topic.error)
        if resolved_topic.error:
            return record_set
        partition = resolved_topic.partitions.get(data.index) or resolved_topic.find(data.index, self.session.storage)
        if isinstance(partition, int):
            record_set.error = partition
            return record_set
        record_set.partition = partition
        record_set.error = self._refusal(partition, data)
        record_set.rules = partition.config.batch_rules
        return record_set

    def _refusal(self, partition: Partition, data: PartitionProduceData) -> int:
        if self.request.acks not in ACKS:
            return int(ErrorCode.INVALID_REQUIRED_ACKS)
        if data.records is None:
            return int(ErrorCode.INVALID_RECORD)
        if partition.offline:
            return int(ErrorCode.KAFKA_STORAGE_ERROR)
        if not partition.is_leader:
            return int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if self.request.acks == ACKS_ALL and not partition.has_enough_replicas():
            return int(ErrorCode.NOT_ENOUGH_REPLICAS)
        return 0

    async def append_and_answer(self) -> None:
        session, services, charges = self.session, self.session.services, self.charges
        client = session.client(self.client_id)
        charges.now_ms = now_ms = services.clock.now_ms()
        if now_ms - services.storage.stall_detector.checked_ms > services.storage.stall_detector.pause_ms_max:
            services.storage.stall_detector.check(now_ms)
        pending: list[_PendingResult] = []
        topic_responses: list[TopicProduceResponse] = []
        refusals: list[tuple[int, str | None]] = []
        budget = DecompressionBudget(DECOMPRESSED_PER_REQUEST_MAX)
        remaining_in_turn = PARTITIONS_PER_TURN_MAX
        for name, record_sets in self.topics:
            partition_results: list[PartitionResult] = []
            # Again: the right to produce is checked at the time of the append.
            resolved_topic = self._resolve_topic(client, name)
            for record_set in record_sets:
                record_set.error = record_set.error or resolved_topic.error
                if budget.remaining_bytes < 0:
                    record_set.error = record_set.error or int(ErrorCode.MESSAGE_TOO_LARGE)
                remaining_in_turn -= 1
                if not remaining_in_turn:
                    remaining_in_turn = PARTITIONS_PER_TURN_MAX
                    await yield_to_others()
                result = self._append(record_set, now_ms, budget)
                code = downgraded(result.error_code, ApiKey.PRODUCE, self.version)
                partition_result = PartitionResult(
                    index=record_set.index,
                    error_code=code,
                    base_offset=result.base_offset,
                    log_append_time_ms=result.log_append_time_ms,
                )
                partition_results.append(partition_result)
                if code:
                    refusals.append((code, result.error_message))
                charges.accepted_bytes += result.appended_bytes
                if result.appended_bytes and resolved_topic.usage is not None:
                    resolved_topic.usage.add(result.appended_bytes)
                if result.appended_bytes and resolved_topic.limiter is not None:
                    charges.charge_topic(resolved_topic.limiter, result.appended_bytes)
                partition = record_set.partition
                if result.appended_bytes and partition is not None and partition.high_watermark <= result.last_offset:
                    pending.append((partition_result, partition, result.last_offset))
            topic_responses.append(TopicProduceResponse(name=name, partition_responses=partition_results))
        delay_ms = charges.charge_appended(client)
        client.record_refusals(refusals, now_ms)
        session.cancel = None
        if self.request.acks == 0:
            if any(result.error_code for topic in topic_responses for result in topic.partition_responses):
                session.channel.close("an append without acknowledgement failed")
            else:
                session.channel.finish_without_response(delay_ms, self.charges.mute)
        elif pending and self.request.acks == ACKS_ALL:
            self._delay(topic_responses, pending, delay_ms)
        else:
            session.channel.respond(self._encode_frame(topic_responses, delay_ms), delay_ms, self.charges.mute)

    def _append(self, record_set: _MessageSet, now_ms: int, budget: DecompressionBudget) -> AppendResult:
        if record_set.error or record_set.batch is None or record_set.partition is None:
            return AppendResult(record_set.error)
        records, acks = memoryview(record_set.batch), self.request.acks
        return record_set.partition.append(
            records,
            now_ms,
            acks=acks,
            produce_version=PRODUCE_ZSTD_FROM,
            prechecked=record_set.prechecked,
            budget=budget,
        )

    @staticmethod
    def _resolve_topic(client: ClientContext, name: str) -> ResolvedTopic:
        key = name.encode()
        return client.produce_topics.get(key) or client.resolve_produce_topic(key)

    def _delay(self, topic_responses: list[TopicProduceResponse], pending: list[_PendingResult], delay_ms: int) -> None:
        def frame_of(partition_errors: PartitionErrors) -> bytes:
            for result, partition, _ in pending:
                result.error_code = partition_errors.get((partition.topic, partition.index), 0)
            return self._encode_frame(topic_responses, delay_ms)

        appended = [(partition, last_offset) for _, partition, last_offset in pending]
        DelayedProduce(
            self.session,
            appended,
            self.request.timeout_ms,
            frame_of,
            delay_ms,
            self.charges.mute,
            holds_connection=True,
        )

    def _encode_frame(self, topic_responses: list[TopicProduceResponse], delay_ms: int) -> bytes:
        response = ProduceResponse(responses=topic_responses, throttle_time_ms=delay_ms)
        body = encode_response(ApiKey.PRODUCE, self.version, response)
        return encode_response_frame(ApiKey.PRODUCE, self.version, self.correlation_id, body)


def _convert(record_sets: list[_MessageSet], now_ms: int) -> float:
    """Converts the message sets; runs in a thread. Returns the CPU seconds used."""
    began_s = thread_time()
    conversion, decompression = ConversionBudget(DECOMPRESSED_PER_REQUEST_MAX), DecompressionBudget()
    for record_set in record_sets:
        record_set.convert(conversion, now_ms, decompression)
    return thread_time() - began_s
