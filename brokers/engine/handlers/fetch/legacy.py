"""Fetch versions 0 to 3: record batches as messages of format 0 (versions 0 and 1) or 1 (2 and 3) (REC-31, WIRE-28,
QUO-20).

Batches are converted in a thread. A response has at most `READ_BYTES_MAX` bytes of the log, which conversion may
multiply. Versions before 3 have no limit for the response, and never return a batch larger than the partition's limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from brokers.engine.handlers.client import ClientContext
from brokers.engine.handlers.common.background import answer_in_turns
from brokers.engine.handlers.common.long_requests import LINES_AT_ONCE_MAX, encoded_in_chunks
from brokers.engine.handlers.fetch.answering import charge_for, meter
from brokers.engine.handlers.fetch.repeats import without_repeats_of_old
from brokers.engine.handlers.fetch.request import bytes_still_missing, may_be_delayed
from brokers.engine.handlers.fetch.waits import ROUNDS_MAX, InTurn, Missing, prefetch
from brokers.engine.handlers.session import RawRequest, Session, decode_in_pieces
from brokers.engine.partitions.delayed_operations import DelayedRead
from brokers.engine.partitions.old_readers import Converted, read_messages, read_whole_batches
from brokers.engine.partitions.partition import READ_UNCOMMITTED, Partition
from brokers.engine.partitions.results import ReadResult
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.codec import DECODED_AT_ONCE_BYTES_MAX, decode_request, encode_response
from brokers.engine.protocol.errors import ErrorCode, downgraded
from brokers.engine.protocol.headers import encode_response_frame
from brokers.engine.protocol.lengths import NAME_BYTES_PER_ITEM
from brokers.engine.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchPartitionData,
    FetchRequest,
    FetchResponse,
)
from brokers.engine.records.compression import DECOMPRESSED_BYTES_MAX, ZSTD
from brokers.engine.records.conversion import ConversionBudget
from brokers.engine.scheduling.permits import Permit
from brokers.engine.scheduling.time_slice import TimeSlice, free_incrementally, yield_to_others
from brokers.engine.throttling.charging import Limiter, fetch_cap_bytes
from brokers.engine.throttling.usage import UsageCounter
from brokers.engine.throttling.waits import Mute

MAGIC_1_FROM: Final = 2
ANSWER_LIMIT_FROM: Final = 3
READ_BYTES_MAX: Final = 8 * 1024 * 1024
UNDEFINED: Final = -1
# Maximum number of times that one request skips batches without messages for an old reader, such as transaction
# markers.
SKIPPED_MAX: Final = 64
# Errors of records that cannot be down-converted; these records are returned as null, not as an empty set.
UNREADABLE: Final = (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, ErrorCode.UNSUPPORTED_VERSION)


@dataclass(slots=True)
class _PartitionRead:
    """One partition of the response, and what was read for it."""

    wanted: FetchPartition
    line: FetchPartitionData
    usage: UsageCounter | None = None
    limiter: Limiter | None = None
    partition: Partition | None = None
    result: ReadResult | None = None
    converted: Converted | None = None


_Topics = list[tuple[str, list[_PartitionRead]]]


def _all(topics: _Topics) -> Iterator[_PartitionRead]:
    return (part for _, parts in topics for part in parts)


def fetch_old(session: Session, raw: RawRequest) -> None:
    """Serves a Fetch of versions 0 to 3 in a task."""
    if raw.size_bytes > DECODED_AT_ONCE_BYTES_MAX:
        session.channel.charge_request_copy(raw.size_bytes)
        answer_in_turns(session, int(ApiKey.FETCH), raw.client_id, _fetch_long(session, raw.copy()))
        return
    request: FetchRequest = decode_request(
        ApiKey.FETCH, raw.version, raw.buffer, raw.body, raw.end, session.fetch_items_max
    )
    instance_id = session.principal.instance_id
    memory = session.services.accounting.decode_memory
    permit = None if instance_id is None else memory.short_permit(instance_id, raw.size_bytes)
    work = _OldFetch(session, raw.version, raw.correlation_id, raw.client_id, request, permit)
    answer_in_turns(session, int(ApiKey.FETCH), raw.client_id, _fetch_short(work))


async def _fetch_short(work: _OldFetch) -> None:
    try:
        await work.run()
    finally:
        if work.permit is not None:
            work.permit.release()


async def _fetch_long(session: Session, raw: RawRequest) -> None:
    instance_id = session.principal.instance_id
    # The decoded request and its response take far more memory than the request has bytes.
    permit = (
        None
        if instance_id is None
        else await session.services.accounting.decode_memory.acquire(instance_id, raw.size_bytes)
    )
    try:
        request = await decode_in_pieces(ApiKey.FETCH, raw, session.fetch_items_max)
        session.channel.release_request_copy()
        await _OldFetch(session, raw.version, raw.correlation_id, raw.client_id, request, permit).run()
    finally:
        if permit is not None:
            permit.release()


class _OldFetch:
    """A Fetch of an old version. Its `permit` counts its memory; only internal requests have none."""

    def __init__(
        self,
        session: Session,
        version: int,
        correlation_id: int,
        client_id: str | None,
        request: FetchRequest,
        permit: Permit | None = None,
    ) -> None:
        self.session = session
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.request = request
        self.permit = permit
        self.must_answer = False
        self.has_waited = False

    async def run(self) -> None:
        if self.request.replica_id >= 0:
            await self._respond(await self._refused(int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)))
            return
        await without_repeats_of_old(self.request)
        topics = await self._converted(may_wait=True)
        for _ in range(SKIPPED_MAX):
            if not _skip(topics):
                break
            topics = await self._converted(may_wait=not self.has_waited)
        await self._complete(topics)
        await self._answer(topics)

    async def _converted(self, *, may_wait: bool) -> _Topics:
        topics, missing_bytes = await self._read_without_stalling()
        await yield_to_others()
        watched = [part.partition for part in _all(topics) if part.partition is not None]
        is_early = missing_bytes > 0 and self.request.max_wait_ms > 0 and not self.must_answer and bool(watched)
        if may_wait and is_early and self._begins_delay(topics):
            _release(topics)
            self.has_waited = True
            await self._waited(watched, missing_bytes)
            if self.permit is not None:
                await self.permit.end_delay()
            topics, _ = await self._read_without_stalling()
        magic = 1 if self.version >= MAGIC_1_FROM else 0
        services = self.session.services
        converting = services.loop.run_in_executor(services.storage.converters, _convert, topics, magic)
        # Files stay open as long as the thread reads them, even if the task was cancelled.
        converting.add_done_callback(lambda _: _release(topics))
        await asyncio.shield(converting)
        return topics

    def _begins_delay(self, topics: _Topics) -> bool:
        """True if the request may wait; others use the memory of its permit from then on."""
        may_wait = may_be_delayed(sum(len(parts) for _, parts in topics), self.session.view())
        return may_wait and (self.permit is None or self.permit.begin_delay())

    async def _complete(self, topics: _Topics) -> None:
        time_slice = TimeSlice()
        for _, parts in topics:
            await time_slice.pause()  # a topic may have no partitions
            for part in parts:
                await time_slice.pause()
                line, converted = part.line, part.converted
                if converted is not None:
                    line.error_code, line.records = converted.error_code, converted.records
                    if converted.failure is not None and part.partition is not None:
                        part.partition.storage_failed(converted.failure)
                if line.error_code:
                    line.error_code = downgraded(line.error_code, ApiKey.FETCH, self.version)
                    line.high_watermark = UNDEFINED
                if line.error_code in UNREADABLE:
                    line.records = None

    async def _refused(self, error: int) -> FetchResponse:
        time_slice = TimeSlice()
        responses = []
        for topic in self.request.topics:
            await time_slice.pause()
            lines = []
            for wanted in topic.partitions:
                await time_slice.pause()
                lines.append(_line(wanted.partition, error))
            responses.append(FetchableTopicResponse(topic=topic.topic, partitions=lines))
        return FetchResponse(responses=responses)

    async def _read_without_stalling(self) -> tuple[_Topics, int]:
        """Reads like `_read`, and prefetches records in a thread, so that the event loop serves others."""
        for _ in range(ROUNDS_MAX):
            topics, missing_bytes = await self._read(wait=False)
            missing = _missing(topics)
            if not missing:
                return topics, missing_bytes
            _release(topics)
            await prefetch(self.session.services, missing)
        return await self._read(wait=True)

    async def _read(self, *, wait: bool) -> tuple[_Topics, int]:
        """Reads all partitions in the order of the request. Also returns the number of bytes that `min_bytes` lacks."""
        client = self.session.client(self.client_id)
        wanted_bytes = min(self.request.max_bytes, self.session.storage.fetch_bytes_max, READ_BYTES_MAX)
        limit = remaining = fetch_cap_bytes(client.consume_limiters, wanted_bytes)
        nothing_yet = self.version >= ANSWER_LIMIT_FROM
        topics: _Topics = []
        readable_bytes = 0
        time_slice = TimeSlice()
        try:
            for topic in self.request.topics:
                parts: list[_PartitionRead] = []
                topics.append((topic.topic, parts))
                await time_slice.pause()
                for wanted in topic.partitions:
                    await time_slice.pause()
                    client = self.session.client(self.client_id)
                    part = self._part(client, topic.topic.encode(), wanted, remaining, nothing_yet, wait)
                    parts.append(part)
                    if part.result is not None and part.result.slice is not None:
                        length = part.result.slice.length
                        nothing_yet = False
                        readable_bytes += length
                        remaining = max(0, remaining - length)
        except BaseException:
            _release(topics)
            raise
        wanted_bytes = min(self.request.min_bytes, limit)
        if not 0 < readable_bytes < wanted_bytes:
            return topics, wanted_bytes - readable_bytes
        readable = [
            (part.partition, part.wanted.fetch_offset, part.wanted.partition_max_bytes)
            for part in _all(topics)
            if part.partition is not None and not part.line.error_code
        ]
        return topics, bytes_still_missing(readable, READ_UNCOMMITTED, wanted_bytes)

    def _part(
        self, client: ClientContext, name: bytes, wanted: FetchPartition, remaining: int, nothing_yet: bool, wait: bool
    ) -> _PartitionRead:
        route = client.consume_routes.get(name) or client.consume_route(name, by_id=False)
        line = _line(wanted.partition, route.error)
        if route.error:
            return _PartitionRead(wanted, line)
        partition = route.partitions.get(wanted.partition) or route.find(wanted.partition, self.session.storage)
        if isinstance(partition, int):
            self.must_answer = self.must_answer or partition != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            line.error_code = partition
            return _PartitionRead(wanted, line)
        part = _PartitionRead(wanted, line, route.usage, route.limiter, partition)
        if wanted.partition_max_bytes < 0 or self.request.max_bytes < 0:
            line.error_code = int(ErrorCode.UNKNOWN_SERVER_ERROR)
        elif partition.config.batch_rules.codec == ZSTD:
            line.error_code = int(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        elif not partition.config.converts_down:
            line.error_code = int(ErrorCode.UNSUPPORTED_VERSION)
        else:
            bytes_max = min(wanted.partition_max_bytes, remaining)
            if route.limiter is not None:
                bytes_max = fetch_cap_bytes((route.limiter,), bytes_max)
            result = read_whole_batches(partition, wanted.fetch_offset, bytes_max, min_one_batch=nothing_yet, wait=wait)
            line.error_code = result.error_code
            line.high_watermark = result.high_watermark
            part.result = result
        self.must_answer = self.must_answer or line.error_code != 0
        return part

    async def _waited(self, watched: list[Partition], missing_bytes: int) -> None:
        services, principal = self.session.services, self.session.principal
        woken = InTurn(services, None if principal.internal else principal.instance_id)
        operation = DelayedRead(woken.set, missing_bytes)
        with services.access.waiting_calls.holding(principal.instance_id, operation.end):
            await woken.wait(operation, watched, self.request.max_wait_ms)

    async def _answer(self, topics: _Topics) -> None:
        """Charges the response at its full size. Over the limits it is sent without records, uncharged (QUO-20)."""
        time_slice = TimeSlice()
        responses = []
        for name, parts in topics:
            await time_slice.pause()
            responses.append(FetchableTopicResponse(topic=name, partitions=[part.line for part in parts]))
        frame = await self._encoded(FetchResponse(responses=responses))
        await free_incrementally(responses, lambda response: response.partitions)
        limited, metered = [], []
        for part in _all(topics):
            await time_slice.pause()
            if part.line.records:
                metered.append((part.usage, len(part.line.records)))
                if part.limiter is not None:
                    limited.append((part.limiter, len(part.line.records)))
        await free_incrementally(topics, lambda topic: topic[1])
        await free_incrementally(self.request.topics, lambda topic: topic.partitions)
        client = self.session.client(self.client_id)
        if client.consume_limiters or client.request_limiter is not None or limited:
            delay_ms, mute = charge_for(self.session, client, len(frame), limited)
            if delay_ms:
                await self._respond(FetchResponse(throttle_time_ms=delay_ms), delay_ms, mute)
                return
        meter(self.session, client, metered, sum(size_bytes for _, size_bytes in metered))
        self.session.cancel = None
        self.session.channel.respond(frame)

    async def _respond(self, response: FetchResponse, delay_ms: int = 0, mute: Mute | None = None) -> None:
        frame = await self._encoded(response)
        self.session.cancel = None
        self.session.channel.respond(frame, delay_ms, mute)

    async def _encoded(self, response: FetchResponse) -> bytes:
        lines = sum(1 + len(topic.partitions) + len(topic.topic) // NAME_BYTES_PER_ITEM for topic in response.responses)
        if lines > LINES_AT_ONCE_MAX:
            body = (await encoded_in_chunks(ApiKey.FETCH, self.version, response)).body
            await yield_to_others()  # the frame copies the body
        else:
            body = encode_response(ApiKey.FETCH, self.version, response)
        return encode_response_frame(ApiKey.FETCH, self.version, self.correlation_id, body)


def _missing(topics: _Topics) -> list[Missing]:
    return [
        Missing(part.partition, part.result.uncached)
        for part in _all(topics)
        if part.partition is not None and part.result is not None and part.result.uncached is not None
    ]


def _line(index: int, error: int) -> FetchPartitionData:
    return FetchPartitionData(partition_index=index, error_code=error, high_watermark=UNDEFINED, records=b"")


def _convert(topics: _Topics, magic: int) -> None:
    work = ConversionBudget(DECOMPRESSED_BYTES_MAX)
    for part in _all(topics):
        if part.partition is not None and part.result is not None and part.result.slice is not None:
            part.converted = read_messages(part.partition, part.result.slice, magic, part.wanted.fetch_offset, work)


def _skip(topics: _Topics) -> bool:
    """True if the records read for some partition have nothing for an old reader. Its next read begins after them: a
    reader that gets no records would request the same offset again forever.
    """
    skipped = False
    for part in _all(topics):
        if part.converted is not None and part.converted.skipped_to > part.wanted.fetch_offset:
            part.wanted.fetch_offset = part.converted.skipped_to
            skipped = True
    return skipped


def _release(topics: _Topics) -> None:
    for part in _all(topics):
        if part.result is not None and part.result.slice is not None:
            part.result.slice.release()
