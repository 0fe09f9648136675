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
from brokers.engine.handlers.common.background import serve_in_turns
from brokers.engine.handlers.common.long_requests import ELEMENTS_AT_ONCE_MAX, encode_in_chunks
from brokers.engine.handlers.fetch.request import bytes_still_missing, may_be_delayed, without_repeats_in_legacy_request
from brokers.engine.handlers.fetch.response import charge_response, meter
from brokers.engine.handlers.fetch.waits import PREFETCH_ROUNDS_MAX, TurnEvent, UncachedRead, prefetch
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
RESPONSE_LIMIT_FROM: Final = 3
READ_BYTES_MAX: Final = 8 * 1024 * 1024
UNDEFINED: Final = -1
# Maximum number of times that one request skips batches without messages for an old reader, such as transaction
# markers.
SKIPS_MAX: Final = 64
# Errors of records that cannot be down-converted; these records are returned as null, not as an empty set.
NOT_DOWN_CONVERTIBLE: Final = (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, ErrorCode.UNSUPPORTED_VERSION)


@dataclass(slots=True)
class _PartitionRead:
    """One partition of the response, and what was read for it."""

    requested_partition: FetchPartition
    response: FetchPartitionData
    usage: UsageCounter | None = None
    limiter: Limiter | None = None
    partition: Partition | None = None
    result: ReadResult | None = None
    converted: Converted | None = None


_Topics = list[tuple[str, list[_PartitionRead]]]


def _all_partitions(topics: _Topics) -> Iterator[_PartitionRead]:
    return (partition_read for _, partition_reads in topics for partition_read in partition_reads)


def fetch_old(session: Session, raw: RawRequest) -> None:
    """Serves a Fetch of versions 0 to 3 in a task."""
    request: FetchRequest | None = None
    if raw.size_bytes > DECODED_AT_ONCE_BYTES_MAX:
        session.channel.charge_request_copy(raw.size_bytes)
        raw = raw.copy()
    else:
        request = decode_request(ApiKey.FETCH, raw.version, raw.buffer, raw.body, raw.end, session.fetch_items_max)
    serve_in_turns(session, int(ApiKey.FETCH), raw.client_id, _serve(session, raw, request))


async def _serve(session: Session, raw: RawRequest, request: FetchRequest | None) -> None:
    """Serves a request; a long one (None) is first decoded from its copy."""
    instance_id, memory, permit = session.principal.instance_id, session.services.accounting.decode_memory, None
    if instance_id is not None and request is not None:
        permit = memory.short_permit(instance_id, raw.size_bytes)
    elif instance_id is not None:
        # The decoded request and its response take far more memory than the request has bytes.
        permit = await memory.acquire(instance_id, raw.size_bytes)
    try:
        if request is None:
            request = await decode_in_pieces(ApiKey.FETCH, raw, session.fetch_items_max)
            session.channel.release_request_copy()
        await _OldFetch(session, raw, request, permit).run()
    finally:
        if permit is not None:
            permit.release()


class _OldFetch:
    """A Fetch of an old version. Its `permit` counts its memory; only internal requests have none."""

    def __init__(self, session: Session, raw: RawRequest, request: FetchRequest, permit: Permit | None) -> None:
        self.session = session
        self.version = raw.version
        self.correlation_id = raw.correlation_id
        self.client_id = raw.client_id
        self.request = request
        self.permit = permit
        self.must_respond = False
        self.has_waited = False

    async def run(self) -> None:
        if self.request.replica_id >= 0:
            await self._respond(await self._rejection(int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)))
            return
        await without_repeats_in_legacy_request(self.request)
        topics = await self._read_and_convert(may_wait=True)
        for _ in range(SKIPS_MAX):
            if not _skip_empty_batches(topics):
                break
            topics = await self._read_and_convert(may_wait=not self.has_waited)
        await self._set_errors(topics)
        await self._charge_and_respond(topics)

    async def _read_and_convert(self, *, may_wait: bool) -> _Topics:
        topics, missing_bytes = await self._read_without_stalling()
        await yield_to_others()
        watched = [
            partition_read.partition
            for partition_read in _all_partitions(topics)
            if partition_read.partition is not None
        ]
        lacks_bytes = missing_bytes > 0 and self.request.max_wait_ms > 0 and not self.must_respond and bool(watched)
        if may_wait and lacks_bytes and self._begin_delay(topics):
            _release(topics)
            self.has_waited = True
            await self._wait_for_records(watched, missing_bytes)
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

    def _begin_delay(self, topics: _Topics) -> bool:
        """True if the request may wait; others use the memory of its permit from then on."""
        may_wait = may_be_delayed(sum(len(partition_reads) for _, partition_reads in topics), self.session.view())
        return may_wait and (self.permit is None or self.permit.begin_delay())

    async def _set_errors(self, topics: _Topics) -> None:
        time_slice = TimeSlice()
        for _, partition_reads in topics:
            await time_slice.pause()  # a topic may have no partitions
            for partition_read in partition_reads:
                await time_slice.pause()
                response, converted = partition_read.response, partition_read.converted
                if converted is not None:
                    response.error_code, response.records = converted.error_code, converted.records
                    if converted.failure is not None and partition_read.partition is not None:
                        partition_read.partition.on_storage_failure(converted.failure)
                if response.error_code:
                    response.error_code = downgraded(response.error_code, ApiKey.FETCH, self.version)
                    response.high_watermark = UNDEFINED
                if response.error_code in NOT_DOWN_CONVERTIBLE:
                    response.records = None

    async def _rejection(self, error: int) -> FetchResponse:
        time_slice = TimeSlice()
        responses = []
        for topic in self.request.topics:
            await time_slice.pause()
            partitions = []
            for requested_partition in topic.partitions:
                await time_slice.pause()
                partitions.append(_empty_response(requested_partition.partition, error))
            responses.append(FetchableTopicResponse(topic=topic.topic, partitions=partitions))
        return FetchResponse(responses=responses)

    async def _read_without_stalling(self) -> tuple[_Topics, int]:
        """Reads like `_read`, and prefetches records in a thread, so that the event loop serves others."""
        for _ in range(PREFETCH_ROUNDS_MAX):
            topics, missing_bytes = await self._read(wait=False)
            uncached_reads = _uncached_reads(topics)
            if not uncached_reads:
                return topics, missing_bytes
            _release(topics)
            await prefetch(self.session.services, uncached_reads)
        return await self._read(wait=True)

    async def _read(self, *, wait: bool) -> tuple[_Topics, int]:
        """Reads all partitions in the order of the request. Also returns the number of bytes that `min_bytes` lacks."""
        client = self.session.client(self.client_id)
        bytes_max = min(self.request.max_bytes, self.session.storage.fetch_bytes_max, READ_BYTES_MAX)
        limit_bytes = remaining = fetch_cap_bytes(client.consume_limiters, bytes_max)
        min_one_batch = self.version >= RESPONSE_LIMIT_FROM
        topics: _Topics = []
        readable_bytes = 0
        time_slice = TimeSlice()
        try:
            for topic in self.request.topics:
                partition_reads: list[_PartitionRead] = []
                topics.append((topic.topic, partition_reads))
                await time_slice.pause()
                for requested_partition in topic.partitions:
                    await time_slice.pause()
                    client = self.session.client(self.client_id)
                    partition_read = self._read_partition(
                        client, topic.topic.encode(), requested_partition, remaining, min_one_batch, wait
                    )
                    partition_reads.append(partition_read)
                    if partition_read.result is not None and partition_read.result.slice is not None:
                        length = partition_read.result.slice.length
                        min_one_batch = False
                        readable_bytes += length
                        remaining = max(0, remaining - length)
        except BaseException:
            _release(topics)
            raise
        wanted_bytes = min(self.request.min_bytes, limit_bytes)
        if not 0 < readable_bytes < wanted_bytes:
            return topics, wanted_bytes - readable_bytes
        readable = [
            (
                partition_read.partition,
                partition_read.requested_partition.fetch_offset,
                partition_read.requested_partition.partition_max_bytes,
            )
            for partition_read in _all_partitions(topics)
            if partition_read.partition is not None and not partition_read.response.error_code
        ]
        return topics, bytes_still_missing(readable, READ_UNCOMMITTED, wanted_bytes)

    def _read_partition(
        self,
        client: ClientContext,
        name: bytes,
        requested_partition: FetchPartition,
        remaining: int,
        min_one_batch: bool,
        wait: bool,
    ) -> _PartitionRead:
        resolved_topic = client.consume_topics.get(name) or client.resolve_consume_topic(name, by_id=False)
        response = _empty_response(requested_partition.partition, resolved_topic.error)
        if resolved_topic.error:
            return _PartitionRead(requested_partition, response)
        partition = resolved_topic.partitions.get(requested_partition.partition) or resolved_topic.find(
            requested_partition.partition, self.session.storage
        )
        if isinstance(partition, int):
            self.must_respond = self.must_respond or partition != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            response.error_code = partition
            return _PartitionRead(requested_partition, response)
        partition_read = _PartitionRead(
            requested_partition, response, resolved_topic.usage, resolved_topic.limiter, partition
        )
        if requested_partition.partition_max_bytes < 0 or self.request.max_bytes < 0:
            response.error_code = int(ErrorCode.UNKNOWN_SERVER_ERROR)
        elif partition.config.batch_rules.codec == ZSTD:
            response.error_code = int(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        elif not partition.config.converts_down:
            response.error_code = int(ErrorCode.UNSUPPORTED_VERSION)
        else:
            bytes_max = min(requested_partition.partition_max_bytes, remaining)
            if resolved_topic.limiter is not None:
                bytes_max = fetch_cap_bytes((resolved_topic.limiter,), bytes_max)
            result = read_whole_batches(
                partition, requested_partition.fetch_offset, bytes_max, min_one_batch=min_one_batch, may_wait=wait
            )
            response.error_code = result.error_code
            response.high_watermark = result.high_watermark
            partition_read.result = result
        self.must_respond = self.must_respond or response.error_code != 0
        return partition_read

    async def _wait_for_records(self, watched: list[Partition], missing_bytes: int) -> None:
        services, principal = self.session.services, self.session.principal
        woken = TurnEvent(services, None if principal.internal else principal.instance_id)
        operation = DelayedRead(woken.set, missing_bytes)
        with services.access.waiting_calls.checking_on_change(principal.instance_id, operation.end):
            await woken.wait(operation, watched, self.request.max_wait_ms)

    async def _charge_and_respond(self, topics: _Topics) -> None:
        """Charges the response at its full size. Over the limits it is sent without records, uncharged (QUO-20)."""
        time_slice = TimeSlice()
        responses = []
        for name, partition_reads in topics:
            await time_slice.pause()
            responses.append(
                FetchableTopicResponse(
                    topic=name, partitions=[partition_read.response for partition_read in partition_reads]
                )
            )
        frame = await self._encode_frame(FetchResponse(responses=responses))
        await free_incrementally(responses, lambda response: response.partitions)
        topic_charges, metered = [], []
        for partition_read in _all_partitions(topics):
            await time_slice.pause()
            if partition_read.response.records:
                metered.append((partition_read.usage, len(partition_read.response.records)))
                if partition_read.limiter is not None:
                    topic_charges.append((partition_read.limiter, len(partition_read.response.records)))
        await free_incrementally(topics, lambda topic: topic[1])
        await free_incrementally(self.request.topics, lambda topic: topic.partitions)
        client = self.session.client(self.client_id)
        if client.consume_limiters or client.request_limiter is not None or topic_charges:
            delay_ms, mute = charge_response(self.session, client, len(frame), topic_charges)
            if delay_ms:
                await self._respond(FetchResponse(throttle_time_ms=delay_ms), delay_ms, mute)
                return
        meter(self.session, client, metered, sum(size_bytes for _, size_bytes in metered))
        self.session.cancel = None
        self.session.channel.respond(frame)

    async def _respond(self, response: FetchResponse, delay_ms: int = 0, mute: Mute | None = None) -> None:
        frame = await self._encode_frame(response)
        self.session.cancel = None
        self.session.channel.respond(frame, delay_ms, mute)

    async def _encode_frame(self, response: FetchResponse) -> bytes:
        element_count = sum(
            1 + len(topic.partitions) + len(topic.topic) // NAME_BYTES_PER_ITEM for topic in response.responses
        )
        if element_count > ELEMENTS_AT_ONCE_MAX:
            body = (await encode_in_chunks(ApiKey.FETCH, self.version, response)).body
            await yield_to_others()  # the frame copies the body
        else:
            body = encode_response(ApiKey.FETCH, self.version, response)
        return encode_response_frame(ApiKey.FETCH, self.version, self.correlation_id, body)


def _uncached_reads(topics: _Topics) -> list[UncachedRead]:
    return [
        UncachedRead(partition_read.partition, partition_read.result.uncached)
        for partition_read in _all_partitions(topics)
        if partition_read.partition is not None
        and partition_read.result is not None
        and partition_read.result.uncached is not None
    ]


def _empty_response(index: int, error: int) -> FetchPartitionData:
    return FetchPartitionData(partition_index=index, error_code=error, high_watermark=UNDEFINED, records=b"")


def _convert(topics: _Topics, magic: int) -> None:
    conversion_budget = ConversionBudget(DECOMPRESSED_BYTES_MAX)
    for partition_read in _all_partitions(topics):
        if (
            partition_read.partition is not None
            and partition_read.result is not None
            and partition_read.result.slice is not None
        ):
            partition_read.converted = read_messages(
                partition_read.partition,
                partition_read.result.slice,
                magic,
                partition_read.requested_partition.fetch_offset,
                conversion_budget,
            )


def _skip_empty_batches(topics: _Topics) -> bool:
    """Skips batches without messages for an old reader, which would ask for them forever; False if there are none."""
    skipped = False
    for partition_read in _all_partitions(topics):
        if (
            partition_read.converted is not None
            and partition_read.converted.skipped_to > partition_read.requested_partition.fetch_offset
        ):
            partition_read.requested_partition.fetch_offset = partition_read.converted.skipped_to
            skipped = True
    return skipped


def _release(topics: _Topics) -> None:
    for partition_read in _all_partitions(topics):
        if partition_read.result is not None and partition_read.result.slice is not None:
            partition_read.result.slice.release()
