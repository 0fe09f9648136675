"""State of a Produce from version 3 on: its decoded frame, the results of its stages, and the charges of a Produce of
any version to its client, its topics and its instance (QUO-18, QUO-32).
"""

from __future__ import annotations

from typing import Final

from brokers.engine.handlers.client import ClientContext
from brokers.engine.handlers.common.background import PARTITIONS_PER_TURN_MAX
from brokers.engine.handlers.context import RetainedFrame
from brokers.engine.handlers.session import RawRequest, Session
from brokers.engine.handlers.throttle_time import Reason, Throttle, apply_longest
from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.results import AppendResult
from brokers.engine.partitions.verification import OPEN
from brokers.engine.protocol.fast_codec_produce import ProduceDecoder, ProduceFrame, ProduceTopic, decode_produce
from brokers.engine.records.batch import ATTRIBUTES_AT, HEADER_BYTES, TRANSACTIONAL
from brokers.engine.records.validation import DECOMPRESSED_AT_ONCE_BYTES_MAX, DecompressionBudget, Prechecked
from brokers.engine.throttling.charging import Limiter, charge, find_longest_debt
from brokers.engine.throttling.waits import Mute

# Index, error code, base offset, append time, log start offset, message. The codec takes plain tuples: a NamedTuple
# costs three times as much, and nearly every request makes one.
PartitionResult = tuple[int, int, int, int, int, str | None]
TopicResult = tuple[bytes, list[PartitionResult]]
# Some topics of a response, and their encoding.
EncodedPart = tuple[list[TopicResult], bytes]
ProduceTopics = list[ProduceTopic]
# Maximum number of topics and partitions that are decoded at once; longer requests are decoded in turns.
DECODED_AT_ONCE_MAX: Final = 500
# Weight of one append, which takes 10 to 30 us; the first one to a partition, which creates its files, up to 300 us.
BATCH_WEIGHT: Final = 8
# Requests with more batches are appended in turns. Producers send one batch for each partition that a broker leads.
BATCHES_AT_ONCE_MAX: Final = PARTITIONS_PER_TURN_MAX // BATCH_WEIGHT
# Requests with several batches of more bytes together are appended in turns.
BYTES_AT_ONCE_MAX: Final = 1024 * 1024
# Partition with an append that is not yet committed, and its last offset.
Appended = tuple[Partition, int]
# Topic name and partition index, as sent by the client.
NamedPartition = tuple[bytes, int]


class ProduceCharges:
    """Charges of one Produce request: the bytes sent and appended, and the throttle delays that they cause."""

    __slots__ = (
        "accepted_bytes", "acks", "checking_delay_ms", "client_id", "delay_ms", "is_admitted", "is_charged",
        "is_received_charged", "limiter", "mute", "now_ms", "session", "size_bytes", "topic_delay_ms", "topic_limiter",
    )  # fmt: skip

    def __init__(self, session: Session, client_id: str | None, size_bytes: int) -> None:
        self.session = session
        self.client_id = client_id
        self.size_bytes = size_bytes
        self.acks = 0
        # Wall-clock time of the last append.
        self.now_ms = 0
        self.accepted_bytes = 0
        # True once no earlier debt is left: from then on the request is charged even if its client disconnects.
        self.is_admitted = False
        self.is_charged = self.is_received_charged = False
        # Delay caused by the bytes received, and the limiter that caused it.
        self.delay_ms = 0
        self.limiter: Limiter | None = None
        # Set together with the delay that follows the response.
        self.mute: Mute | None = None
        # Delay for the thread time that checking or conversion took from the instance's share.
        self.checking_delay_ms = 0
        # Longest delay required by one of the topics, and the limiter of that topic.
        self.topic_delay_ms = 0
        self.topic_limiter: Limiter | None = None

    def charge_received(self, client: ClientContext) -> None:
        """Charges the bytes of the request before its records are appended, so that no other is admitted meanwhile."""
        self.is_received_charged = True
        if client.produce_limiters:
            now_ms = self.session.services.clock.monotonic_ms()
            self.delay_ms, self.limiter = charge(client.produce_limiters, self.size_bytes, now_ms)

    def charge_topic(self, limiter: Limiter, appended_bytes: int) -> None:
        """Charges bytes that were appended to a topic with a byte limit."""
        delay_ms, _ = charge((limiter,), appended_bytes, self.session.services.clock.monotonic_ms())
        if delay_ms > self.topic_delay_ms:
            self.topic_delay_ms, self.topic_limiter = delay_ms, limiter

    def charge_abandoned(self) -> None:
        """Charges the work done for a client that disconnected before the response, unless it is already charged."""
        if self.is_charged or not self.is_admitted:
            return
        client = self.session.client(self.client_id)
        if not self.is_received_charged:
            self.charge_received(client)
        self.now_ms = self.session.services.clock.now_ms()
        self.charge_appended(client)

    def charge_appended(self, client: ClientContext) -> int:
        """Charges the appended bytes and the request's time. Returns the client's delay after the response in ms."""
        self.is_charged = True
        services, accepted_bytes, now_ms = self.session.services, self.accepted_bytes, self.now_ms
        if accepted_bytes:
            self.session.accounting.totals.produce_bytes += accepted_bytes
            if client.accounting is not None:
                client.accounting.traffic.add_produced(accepted_bytes, now_ms)
        # A topic that stores records uncompressed may append far more bytes than were sent.
        more_bytes = accepted_bytes - self.size_bytes
        if more_bytes > 0:
            delay_ms, limiter = charge(client.produce_limiters, more_bytes, services.clock.monotonic_ms())
        else:
            delay_ms, limiter = self.delay_ms, self.limiter
        time_delay_ms, request_limiter = 0, client.request_limiter
        if request_limiter is not None:
            if self.acks == 0:
                self.session.leave_turn_uncharged()
            else:
                time_delay_ms = self.session.time_delay_ms(request_limiter)
        if not (delay_ms or time_delay_ms or self.topic_delay_ms or self.checking_delay_ms):
            return 0
        throttles = (
            Throttle(delay_ms, Reason.BYTES, limiter),
            Throttle(self.topic_delay_ms, Reason.BYTES, self.topic_limiter),
            Throttle(time_delay_ms, Reason.CLIENT_QUOTA, request_limiter),
            Throttle(self.checking_delay_ms, Reason.REQUEST_TIME),
        )
        delay_ms, self.mute = apply_longest(services, client, throttles)
        return delay_ms


class TransactionVerification:
    """Verification result of a request: for each partition either a token (`partitions.transactions`) or the result
    that rejects it. Partitions without either have the token `default_token`. A `request_error_code` other than 0
    rejects the whole request.
    """

    __slots__ = ("default_token", "refusals", "request_error_code", "verification_tokens")

    def __init__(self, default_token: int = OPEN, request_error_code: int = 0) -> None:
        self.default_token = default_token
        self.request_error_code = request_error_code
        self.verification_tokens: dict[NamedPartition, int] = {}
        self.refusals: dict[NamedPartition, PartitionResult] = {}

    def verification_token(self, name: bytes, index: int) -> int:
        return self.verification_tokens.get((name, index), self.default_token)

    def refuse(self, named_partition: NamedPartition, code: int, message: str | None = None) -> None:
        self.refusals[named_partition] = (named_partition[1], code, -1, -1, -1, message)

    def refusal(self, name: bytes, index: int) -> PartitionResult | None:
        if self.request_error_code:
            return index, self.request_error_code, -1, -1, -1, None
        return self.refusals.get((name, index))


class ProduceRequest(ProduceCharges):
    """A decoded request. Its `topics` contain positions in the buffer of `raw`. That buffer is reused for another
    request when the call that received it returns, unless `retain_frame` was called.
    """

    __slots__ = (
        "attributes", "batch_count", "checked_batches", "decompression_budget", "detailed_results", "encoded_parts",
        "has_errors", "held_frame", "internal_names", "is_copied", "is_long", "pending_appends", "raw", "results",
        "timeout_ms", "topics", "transactional_id", "verification",
    )  # fmt: skip

    def __init__(self, session: Session, raw: RawRequest) -> None:
        super().__init__(session, raw.client_id, raw.end - raw.start)
        self.raw = raw
        self.is_copied = False
        self.held_frame: RetainedFrame | None = None
        decoder = ProduceDecoder(raw.buffer, raw.body, raw.end, raw.version, session.produce_items_max)
        # True if the frame is only partly decoded: `async_produce` decodes the rest.
        self.is_long = not decoder.advance(DECODED_AT_ONCE_MAX)
        self.transactional_id: str | None = None
        self.timeout_ms = self.attributes = self.batch_count = 0
        self.topics: ProduceTopics = []
        if not self.is_long:
            self.set_frame(decoder.frame())
        # Set by the verify stage; None without transactional batches.
        self.verification: TransactionVerification | None = None
        # Checked batches by the start of their record set, set by the recompress stage; None if no batch was slow.
        self.checked_batches: dict[int, Prechecked] | None = None
        self.decompression_budget = DecompressionBudget(batch_bytes_max=DECOMPRESSED_AT_ONCE_BYTES_MAX)
        self.results: list[TopicResult] = []
        # Results with record errors.
        self.detailed_results: dict[NamedPartition, AppendResult] | None = None
        # Encoded parts of `results`, for a long request.
        self.encoded_parts: list[EncodedPart] | None = None
        self.pending_appends: list[Appended] = []
        # Internal names of the topics in `pending_appends`, by the client's name: the metadata may lose a topic during
        # the wait.
        self.internal_names: dict[bytes, str] = {}
        self.has_errors = False

    def set_frame(self, frame: ProduceFrame) -> None:
        """Sets the fields of the decoded frame."""
        self.transactional_id, self.acks, self.timeout_ms, self.topics = frame
        # The attributes of all batches that have a header, combined with OR.
        self.attributes, self.batch_count = _attributes(self.raw.buffer, self.topics)

    def limiters(self, client: ClientContext) -> list[Limiter]:
        """Returns all byte limiters that this request is charged to, as far as it is decoded."""
        result = list(client.produce_limiters)
        if client.charged_accounting is not None and len(client.charged_accounting.topic_quotas):
            for name, _ in self.topics:
                topic = client.produce_topics.get(name) or client.resolve_produce_topic(name)
                if topic.limiter is not None:
                    result.append(topic.limiter)
        return result

    def in_debt(self) -> Limiter | None:
        """Returns the limiter to wait for before the append, None if none is in debt."""
        client = self.client()
        if not client.produce_limiters and client.charged_accounting is None:
            return None
        return find_longest_debt(self.limiters(client), self.session.services.clock.monotonic_ms())

    def is_transactional(self) -> bool:
        return self.transactional_id is not None or bool(self.attributes & TRANSACTIONAL)

    def is_appended_in_turns(self) -> bool:
        """True if the batches are too many, or too long together, to be appended in one turn of the loop."""
        # A long request may name many topics and have few batches.
        if self.is_long or self.batch_count > BATCHES_AT_ONCE_MAX:
            return True
        return self.batch_count > 1 and self.size_bytes > BYTES_AT_ONCE_MAX

    def client(self) -> ClientContext:
        """Returns the client with the current state of the cluster: a stage may have waited long."""
        return self.session.client(self.raw.client_id)

    def retain_frame(self) -> None:
        """Retains or copies the frame for stages after the call that received it; a long copy is decoded later."""
        self.held_frame = self.session.channel.retain_frame()
        if self.held_frame is None:
            self.is_copied = True
            self.session.channel.charge_request_copy(self.raw.size_bytes)
            self.raw = raw = self.raw.copy()
            if not self.is_long:
                self.topics = decode_produce(raw.buffer, raw.body, raw.end, raw.version).topics

    def release(self) -> None:
        """Releases the frame or its copy, which must not be read afterwards."""
        if self.held_frame is not None:
            self.held_frame.release()
        elif self.is_copied:
            self.session.channel.release_request_copy()


def _attributes(buffer: memoryview, topics: list[ProduceTopic]) -> tuple[int, int]:
    """Returns the attributes of all batches combined with OR, and the number of batches."""
    attributes = count = 0
    for _, partitions in topics:
        count += len(partitions)
        for _, start, end in partitions:
            if start >= 0 and end - start >= HEADER_BYTES:
                attributes |= buffer[start + ATTRIBUTES_AT]
    return attributes, count
