"""A Produce on its way through its stages (`produce`): what it asks, and what came of it so far."""

from __future__ import annotations

from typing import Final

from brokers.engine.handlers.client import Client
from brokers.engine.handlers.context import HeldFrame
from brokers.engine.handlers.raw_request import RawRequest
from brokers.engine.handlers.session import Session
from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.results import AppendResult
from brokers.engine.partitions.verification import OPEN
from brokers.engine.protocol.fast_codec import ProduceDecoder, ProduceFrame, decode_produce
from brokers.engine.protocol.fast_codec_produce import ProduceTopic
from brokers.engine.records.batch import ATTRIBUTES_AT, HEADER_BYTES
from brokers.engine.records.validation import INFLATED_AT_ONCE_BYTES_MAX, CheckedAhead, InflationBudget
from brokers.engine.throttling.charging import Limiter, charge, in_debt
from brokers.engine.throttling.waits import Mute

# Index, error, base offset, append time, log start offset, message. A plain tuple, as the codec takes it: a named one
# costs three times as much, and nearly every request makes one.
PartitionResult = tuple[int, int, int, int, int, str | None]
TopicResult = tuple[bytes, list[PartitionResult]]
# Some topics of an answer, and as they are encoded.
EncodedPart = tuple[list[TopicResult], bytes]
ProduceTopics = list[ProduceTopic]
# Topics and partitions together; requests of more are decoded in turns.
DECODED_AT_ONCE_MAX: Final = 500
# What is appended and not yet committed, with its last offset.
Appended = tuple[Partition, int]
# Name and index of a partition, as the client says it.
Place = tuple[bytes, int]


class TransactionVerification:
    """What one request may append: a token for each partition (`partitions.transactions`), or the result that refuses
    it. For all others `otherwise` is the token. With `refused_with`, an error code, it may append nothing.
    """

    __slots__ = ("otherwise", "refusals", "refused_with", "verification_tokens")

    def __init__(self, otherwise: int = OPEN, refused_with: int = 0) -> None:
        self.otherwise = otherwise
        self.refused_with = refused_with
        self.verification_tokens: dict[Place, int] = {}
        self.refusals: dict[Place, PartitionResult] = {}

    def verification_token(self, name: bytes, index: int) -> int:
        return self.verification_tokens.get((name, index), self.otherwise)

    def refuse(self, place: Place, code: int, message: str | None = None) -> None:
        self.refusals[place] = (place[1], code, -1, -1, -1, message)

    def refusal(self, name: bytes, index: int) -> PartitionResult | None:
        if self.refused_with:
            return index, self.refused_with, -1, -1, -1, None
        return self.refusals.get((name, index))


class ProduceRequest:
    """`topics` holds positions in the buffer of `raw`: whatever processes them later calls `keep` first."""

    __slots__ = (
        "accepted_bytes",
        "acks",
        "attributes",
        "batch_count",
        "checking_delay_ms",
        "delay_ms",
        "detailed",
        "encoded",
        "failed",
        "held",
        "inflation_budget",
        "is_charged",
        "is_copied",
        "is_kept",
        "is_long",
        "limiter",
        "mute",
        "now_ms",
        "pending",
        "raw",
        "recompressed",
        "results",
        "session",
        "timeout_ms",
        "topic_delay_ms",
        "topic_limiter",
        "topics",
        "transactional_id",
        "verification",
    )

    def __init__(self, session: Session, raw: RawRequest) -> None:
        self.session = session
        self.raw = raw
        self.is_charged = self.is_copied = self.is_kept = False
        self.held: HeldFrame | None = None
        decoder = ProduceDecoder(raw.buffer, raw.body, raw.end, raw.version, session.produce_items_max)
        # Not all of it is decoded: `long_produce.decode_in_turns` goes on.
        self.is_long = not decoder.advance(DECODED_AT_ONCE_MAX)
        self.transactional_id: str | None = None
        self.acks = self.timeout_ms = self.attributes = self.batch_count = 0
        self.topics: ProduceTopics = []
        if not self.is_long:
            self.decoded(decoder.frame())
        # By the verify stage; None: nothing of a transaction.
        self.verification: TransactionVerification | None = None
        # By the recompress stage, by where the record sets begin; None: nothing.
        self.recompressed: dict[int, CheckedAhead] | None = None
        # By the append stage; wall time, of its last turn.
        self.now_ms = 0
        self.inflation_budget = InflationBudget(batch_bytes_max=INFLATED_AT_ONCE_BYTES_MAX)
        self.results: list[TopicResult] = []
        self.detailed: dict[Place, AppendResult] | None = None
        # `results` in parts, of a long one.
        self.encoded: list[EncodedPart] | None = None
        self.pending: list[Appended] = []
        self.failed = False
        self.accepted_bytes = 0
        # The delay that the bytes received bring, and its limiter.
        self.delay_ms = 0
        self.limiter: Limiter | None = None
        # Set with the delay that follows the response.
        self.mute: Mute | None = None
        # For what the recompress stage took of the instance's share of time.
        self.checking_delay_ms = 0
        # The longest delay that one of its topics asks for, and whose it is.
        self.topic_delay_ms = 0
        self.topic_limiter: Limiter | None = None

    def decoded(self, frame: ProduceFrame) -> None:
        self.transactional_id, self.acks, self.timeout_ms, self.topics = frame
        # Those that any of its batches has, as far as it has a header.
        self.attributes, self.batch_count = _attributes(self.raw.buffer, self.topics)

    def limiters(self, client: Client) -> list[Limiter]:
        """All byte limits that this request is charged to, as far as it is decoded."""
        result = list(client.produce_limiters)
        if client.charged is not None and len(client.charged.topic_quotas):
            for name, _ in self.topics:
                route = client.produce_routes.get(name) or client.produce_route(name)
                if route.limiter is not None:
                    result.append(route.limiter)
        return result

    def in_debt(self) -> Limiter | None:
        """Returns the limiter to wait for before anything is appended, None if everything is paid."""
        client = self.client()
        if not client.produce_limiters and client.charged is None:
            return None
        return in_debt(self.limiters(client), self.session.engine.clock.monotonic_ms())

    def charge_topic(self, limiter: Limiter, appended_bytes: int) -> None:
        """Batches of so many bytes went to a topic that has a limit."""
        delay_ms, _ = charge((limiter,), appended_bytes, self.session.engine.clock.monotonic_ms())
        if delay_ms > self.topic_delay_ms:
            self.topic_delay_ms, self.topic_limiter = delay_ms, limiter

    def client(self) -> Client:
        """As the cluster is at this moment: what a stage waited for may have taken long."""
        return self.session.client(self.raw.client_id)

    def copy_frame(self) -> None:
        """Makes the frame outlive its processing. The positions in `topics` are those of before until `keep`."""
        if self.is_copied or self.held is not None:
            return
        self.held = self.session.channel.hold_frame()
        if self.held is None:
            self.is_copied = True
            self.session.channel.hold(self.raw.size_bytes)
            self.raw = self.raw.copy()

    def keep(self) -> None:
        """Makes the request outlive the processing of its frame."""
        if self.is_kept:
            return
        self.copy_frame()
        self.is_kept = True
        if self.is_copied:
            raw = self.raw
            self.topics = decode_produce(raw.buffer, raw.body, raw.end, raw.version).topics

    def release(self) -> None:
        """Nobody looks into the frame any more."""
        if self.held is not None:
            self.held.release()
        elif self.is_copied:
            self.session.channel.release()


def _attributes(buffer: memoryview, topics: list[ProduceTopic]) -> tuple[int, int]:
    """All attributes of the batches, and how many batches there are."""
    attributes = count = 0
    for _, wanted in topics:
        count += len(wanted)
        for _, start, end in wanted:
            if start >= 0 and end - start >= HEADER_BYTES:
                attributes |= buffer[start + ATTRIBUTES_AT]
    return attributes, count
