"""The asynchronous path of a Produce that waits for debt, verification or recompression, or that carries many batches.
One coroutine, `run`, serves all versions.

Requests with many batches are decoded and appended in parts, and other requests are served between the parts.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final, Protocol

from brokers.engine.handlers.client import ClientContext
from brokers.engine.handlers.common.background import charged_turn, run_in_turns, serve_in_background, split_into_parts
from brokers.engine.handlers.produce.append import append_topics, respond
from brokers.engine.handlers.produce.recompression import SlowBatches, check_in_thread, find_slow_batches, may_be_slow
from brokers.engine.handlers.produce.request import (
    BATCH_WEIGHT,
    DECODED_AT_ONCE_MAX,
    EncodedPart,
    ProduceCharges,
    ProduceRequest,
    TopicResult,
)
from brokers.engine.handlers.produce.response import is_long
from brokers.engine.handlers.produce.transaction_verification import TransactionClaims, gather_claims
from brokers.engine.handlers.services import BrokerServices
from brokers.engine.handlers.session import Session
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.fast_codec_produce import ProduceDecoder, ProducePartition, encode_produced_topics
from brokers.engine.scheduling.inline_wakeup import InlineWakeup
from brokers.engine.scheduling.time_slice import free_incrementally, yield_to_others
from brokers.engine.throttling.charging import Limiter, find_longest_debt
from brokers.engine.throttling.waits import find_or_create_queue

# Returns the limiters that a request is charged to, given its client with the current metadata.
LimitersOf = Callable[[ClientContext], Iterable[Limiter]]
# Checking and appending this number of bytes takes about as long as reading one partition.
BYTES_PER_WEIGHT: Final = 8 * 1024
# Maximum number of topics and partitions of a response that are encoded in one turn of the event loop.
ENCODED_AT_ONCE_MAX: Final = 1_000


class PayingSession(Protocol):
    """The session of a produce that waits for earlier debt."""

    channel: Any

    @property
    def services(self) -> BrokerServices: ...
    def client(self, client_id: str | None) -> ClientContext: ...


def limiter_in_debt(session: PayingSession, client_id: str | None, limiters_of: LimitersOf) -> Limiter | None:
    """Returns the limiter that a request has to wait for now, None if none is in debt."""
    return find_longest_debt(tuple(limiters_of(session.client(client_id))), session.services.clock.monotonic_ms())


async def wait_until_paid(session: PayingSession, client_id: str | None, limiters_of: LimitersOf) -> None:
    """Waits until no limiter is in debt, for a request that is served by a task and continues in the turn of its
    instance. The wait is cancelled with the task.
    """
    services = session.services
    while (limiter := limiter_in_debt(session, client_id, limiters_of)) is not None:
        now_ms = services.clock.monotonic_ms()
        debt_ms = limiter.debt_ms(now_ms)
        if debt_ms:
            limiter.record_wait(debt_ms, now_ms)
            session.client(client_id).record_throttle(limiter, debt_ms, services.clock.now_ms())
        admitted = InlineWakeup(services.loop)
        wait = find_or_create_queue(limiter, services.loop_clock).admit(admitted.wake, session.channel.turns)
        try:
            await admitted
        finally:
            wait.cancel()


class Stages(Protocol):
    """Stages of a Produce in the format of its version. `append_and_answer` charges the request before it responds."""

    session: Session

    @property
    def charges(self) -> ProduceCharges: ...
    def limiters(self, client: ClientContext) -> Iterable[Limiter]: ...
    async def decode(self) -> None: ...
    async def verify(self) -> None: ...
    async def recompress(self) -> None: ...
    async def append_and_answer(self) -> None: ...


def start(stages: Stages) -> None:
    """Runs the stages in a task that is cancelled when the connection closes. A client that disconnects is charged for
    the bytes that it sent and for the records that were appended, which are retained. A client that disconnects while
    it waits for earlier debt is not charged.
    """
    session, charges = stages.session, stages.charges
    charges.is_admitted = limiter_in_debt(session, charges.client_id, stages.limiters) is None
    serve_in_background(session, run(stages), None, charges.charge_abandoned)


async def run(stages: Stages) -> None:
    """Runs the stages in order."""
    session, charges = stages.session, stages.charges
    if not charges.is_admitted:
        await wait_until_paid(session, charges.client_id, stages.limiters)
        charges.is_admitted = True
    await stages.decode()
    await stages.verify()
    await stages.recompress()
    # Other requests may have put the limiters into debt in the meantime.
    await wait_until_paid(session, charges.client_id, stages.limiters)
    charges.charge_received(session.client(charges.client_id))
    await stages.append_and_answer()


class AsyncProduce:
    """Stages of a Produce from version 3 on. `claims` and `slow_batches` are None if they are not yet computed."""

    def __init__(
        self, request: ProduceRequest, claims: TransactionClaims | None, slow_batches: SlowBatches | None
    ) -> None:
        self.session = request.session
        self._request = request
        self._claims = claims
        self._slow_batches = slow_batches

    @property
    def charges(self) -> ProduceCharges:
        return self._request

    def limiters(self, client: ClientContext) -> list[Limiter]:
        return self._request.limiters(client)

    async def decode(self) -> None:
        if self._request.is_long:
            await self._in_turns(self._decode_in_turns())

    async def verify(self) -> None:
        request = self._request
        if not request.is_transactional():
            return
        if request.is_long:
            await self._in_turns(self._gather_in_turns())
        elif self._claims is None:
            with charged_turn(self.session, int(ApiKey.PRODUCE)):
                self._claims = gather_claims(request)
        if self._claims is not None and self._claims.unverified:
            await self._claims.verify()

    async def recompress(self) -> None:
        """Checks and recompresses slow batches in a thread."""
        request = self._request
        if request.is_long:
            await self._in_turns(self._find_slow_batches())
        elif self._slow_batches is None and may_be_slow(request):
            with charged_turn(self.session, int(ApiKey.PRODUCE)):
                self._slow_batches = find_slow_batches(request, request.topics)
        if self._slow_batches:
            await check_in_thread(request, self._slow_batches)

    async def append_and_answer(self) -> None:
        request = self._request
        if request.is_appended_in_turns():
            await self._in_turns(self._append_in_turns())
            return
        self.session.cancel = None
        with charged_turn(self.session, int(ApiKey.PRODUCE)):
            client = request.client()
            append_topics(request, client, request.topics)
            respond(request, client)

    async def _in_turns(self, work: Coroutine[Any, Any, None]) -> None:
        await run_in_turns(self.session, int(ApiKey.PRODUCE), self._request.client_id, work)

    async def _decode_in_turns(self) -> None:
        request, raw = self._request, self._request.raw
        decoder = ProduceDecoder(raw.buffer, raw.body, raw.end, raw.version, self.session.produce_items_max)
        is_done = decoder.advance(DECODED_AT_ONCE_MAX)
        while not is_done:
            await yield_to_others()
            is_done = decoder.advance(DECODED_AT_ONCE_MAX)
        request.set_frame(decoder.frame())
        await yield_to_others()

    async def _gather_in_turns(self) -> None:
        self._claims = claims = TransactionClaims(self._request)
        for topics, _ in split_into_parts(self._request.topics):
            claims.add(topics)
            await yield_to_others()
        claims.finish()

    async def _find_slow_batches(self) -> None:
        self._slow_batches = slow_batches = []
        for topics, _ in split_into_parts(self._request.topics):
            slow_batches += find_slow_batches(self._request, topics)
            await yield_to_others()

    async def _append_in_turns(self) -> None:
        request = self._request
        for part, is_continuation in split_into_parts(request.topics, _append_weight):
            previous_count = len(request.results)
            append_topics(request, request.client(), part)
            if is_continuation:
                _, partition_results = request.results.pop(previous_count)
                request.results[previous_count - 1][1].extend(partition_results)
            await yield_to_others()
        # Replication of a partition's last offset covers its earlier offsets.
        request.pending_appends = list(dict(request.pending_appends).items())
        await free_incrementally(request.topics, lambda topic: topic[1])
        if request.acks and is_long(request.results):
            request.encoded_parts = await _encode_in_parts(request.raw.version, request.results)
        self.session.cancel = None
        respond(request, request.client())


async def _encode_in_parts(version: int, results: list[TopicResult]) -> list[EncodedPart]:
    encoded: list[EncodedPart] = []
    part: list[TopicResult] = []
    item_count = 0
    for result in results:
        part.append(result)
        item_count += 1 + len(result[1])
        if item_count > ENCODED_AT_ONCE_MAX:
            encoded.append((part, encode_produced_topics(version, part)))
            part, item_count = [], 0
            await yield_to_others()
    encoded.append((part, encode_produced_topics(version, part)))
    await yield_to_others()
    return encoded


def _append_weight(partition: ProducePartition) -> int:
    """Returns the number of partitions of a Fetch that take as long as this append (`split_into_parts`)."""
    _, records_start, records_end = partition
    return BATCH_WEIGHT + max(0, records_end - records_start) // BYTES_PER_WEIGHT
