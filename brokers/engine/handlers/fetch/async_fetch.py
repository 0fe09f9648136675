"""Fetch requests that are not answered in one turn, since they wait for the disk or name many partitions; also those
of followers, and invalid ones, for which no client reads anything.

Partitions are decoded, read and encoded in parts, and other requests are served between the parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from brokers.engine.handlers.common.background import serve_in_background, serve_in_turns, split_into_parts
from brokers.engine.handlers.common.long_requests import encode_in_chunks
from brokers.engine.handlers.fetch.follower_fetch import fetch_as_follower, respond_error
from brokers.engine.handlers.fetch.reading import read
from brokers.engine.handlers.fetch.request import (
    NO_SESSION,
    READ_COMMITTED,
    TOPIC_IDS_FROM,
    UNDEFINED,
    FetchReadResult,
    FetchRequest,
    without_repeats_in_turns,
)
from brokers.engine.handlers.fetch.response import LEADERS_FROM, find_leaders, send
from brokers.engine.handlers.fetch.waits import PREFETCH_ROUNDS_MAX, TurnEvent, UncachedRead, charge_long_turn, prefetch
from brokers.engine.handlers.session import RawRequest, Session
from brokers.engine.partitions.delayed_operations import DelayedCommittedRead, DelayedRead
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.fast_codec_fetch import FetchDecoder, FetchFrame
from brokers.engine.protocol.fast_codec_fetch_response import FetchResponseEncoder, fetch_response_head
from brokers.engine.protocol.headers import encode_response_frame
from brokers.engine.protocol.messages.fetch import FetchableTopicResponse, FetchPartitionData, FetchResponse
from brokers.engine.scheduling.permits import Permit
from brokers.engine.scheduling.time_slice import TimeSlice, free_incrementally, yield_to_others

FULL_FETCH_EPOCHS: Final = (0, -1)
# Requests of more bytes are processed in turns; this is the size of about 500 partitions.
SYNCHRONOUS_REQUEST_BYTES_MAX: Final = 16 * 1024
# Maximum number of topics and partitions that are decoded in one turn of the event loop.
DECODED_AT_ONCE_MAX: Final = 1_000
ENCODED_AT_ONCE_MAX: Final = 1_000
# Approximate maximum number of partitions with records in one response, because each needs its own sendfile call. The
# other partitions come first in the client's next request.
SLICES_MAX: Final = 500
NO_LEADERS: Final[dict[tuple[bytes, int], tuple[int, int]]] = {}


def serve_special(session: Session, raw: RawRequest, frame: FetchFrame) -> bool:
    """Serves a follower's request or an invalid one. Returns False for all others, which `fetch.serve` serves."""
    if not 0 <= frame.isolation <= READ_COMMITTED:
        serve_in_turns(session, int(ApiKey.FETCH), raw.client_id, _reject_isolation(session, raw, frame))
    elif frame.replica_id >= 0:
        fetch_as_follower(session, raw.version, raw.correlation_id, frame)
    elif frame.session_epoch not in FULL_FETCH_EPOCHS:
        respond_error(session, raw.version, raw.correlation_id, int(ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
    else:
        return False
    return True


async def _reject_isolation(session: Session, raw: RawRequest, frame: FetchFrame) -> None:
    response = await encode_rejection(raw.version, raw.correlation_id, int(ErrorCode.UNKNOWN_SERVER_ERROR), frame)
    session.cancel = None
    session.channel.respond(response)


async def encode_rejection(version: int, correlation_id: int, error: int, frame: FetchFrame) -> bytes:
    """Returns the response that rejects the request; versions without topic ids repeat the error for each partition."""
    topics = []
    if version < TOPIC_IDS_FROM:
        time_slice = TimeSlice()
        for key, requested_partitions in frame.topics:
            await time_slice.pause()  # a topic may be named without partitions
            partitions = []
            for partition in requested_partitions:
                await time_slice.pause()
                partitions.append(
                    FetchPartitionData(
                        partition_index=partition[0],
                        error_code=error,
                        high_watermark=UNDEFINED,
                        aborted_transactions=[],
                        records=None,
                    )
                )
            topics.append(FetchableTopicResponse(topic=key.decode("utf-8", "replace"), partitions=partitions))
    response = FetchResponse(error_code=error, responses=topics)
    body = (await encode_in_chunks(ApiKey.FETCH, version, response)).body
    await free_incrementally(topics, lambda topic: topic.partitions)
    return encode_response_frame(ApiKey.FETCH, version, correlation_id, body)


def start_from_disk(request: FetchRequest, uncached_reads: Sequence[UncachedRead], *, may_delay: bool) -> None:
    """Serves a request that needs records from the disk, in a task that is cancelled when the connection closes."""
    serve_in_background(request.session, _serve_from_disk(request, uncached_reads, may_delay), _charge_turn)


def start_long(session: Session, raw: RawRequest) -> None:
    """Decodes and serves a request with many partitions, in a task that is cancelled when the connection closes."""
    session.channel.charge_request_copy(raw.size_bytes)
    serve_in_turns(session, int(ApiKey.FETCH), raw.client_id, _serve_long(session, raw.copy()))


def _charge_turn(session: Session, spent_s: float) -> None:
    session.record_time(spent_s)
    charge_long_turn(session, spent_s)


async def _serve_from_disk(request: FetchRequest, uncached_reads: Sequence[UncachedRead], may_delay: bool) -> None:
    session = request.session
    instance_id = session.principal.instance_id
    if instance_id is None:
        await _serve(request, uncached_reads, permit=None, may_delay=may_delay)
        return
    permit = session.services.accounting.decode_memory.short_permit(instance_id, request.size_bytes)
    try:
        await _serve(request, uncached_reads, permit=permit, may_delay=may_delay)
    finally:
        permit.release()


async def _serve_long(session: Session, raw: RawRequest) -> None:
    instance_id = session.principal.instance_id
    assert instance_id is not None, "only internal requests have no instance"
    # The decoded request and its response take far more memory than the request has bytes.
    permit = await session.services.accounting.decode_memory.acquire(instance_id, raw.size_bytes)
    try:
        frame = await _decode(session, raw)
        session.channel.release_request_copy()
        # `serve_special` responds or starts another task, whose `cancel` is then the session's.
        cancel_task, session.cancel = session.cancel, None
        if not serve_special(session, raw, frame):
            session.cancel = cancel_task
            await _serve(FetchRequest(session, raw, frame), (), permit=permit, may_delay=True)
    finally:
        permit.release()


async def _decode(session: Session, raw: RawRequest) -> FetchFrame:
    decoder = FetchDecoder(raw.buffer, raw.body, raw.end, raw.version, session.fetch_items_max)
    is_done = decoder.advance(DECODED_AT_ONCE_MAX)
    while not is_done:
        await yield_to_others()
        is_done = decoder.advance(DECODED_AT_ONCE_MAX)
    return await without_repeats_in_turns(decoder.frame())


async def _serve(
    request: FetchRequest, uncached_reads: Sequence[UncachedRead], *, permit: Permit | None, may_delay: bool
) -> None:
    """Reads, waits if too few bytes are readable (WIRE-27), encodes and sends.

    Other requests use the memory of the `permit` during the wait. If too many decoded requests of the instance wait,
    this one is answered at once.
    """
    session = request.session
    readable = TurnEvent(session.services, session.principal.instance_id)
    # Any change of rights ends the wait, even during the read: the request names too many topics to check each.
    with session.services.access.waiting_calls.checking_on_change(session.principal.instance_id, readable.set):
        read_result = await _read_in_turns(request, uncached_reads)
        client = request.client()
        missing_bytes = request.missing_bytes(client, read_result, request.limit_bytes(client)) if may_delay else 0
        if missing_bytes and (permit is None or permit.begin_delay()):
            watched = read_result.watched
            read_result.release()
            del read_result  # it takes as much memory as the request
            delayed_read_class = DelayedCommittedRead if request.frame.isolation == READ_COMMITTED else DelayedRead
            await readable.wait(delayed_read_class(readable.set, missing_bytes), watched, request.frame.max_wait_ms)
            if permit is not None:
                await permit.end_delay()
            read_result = await _read_in_turns(request, ())
    try:
        parts = await _encode(request, read_result)
    except BaseException:
        read_result.release()
        raise
    session.cancel = None
    send(request, request.client(), read_result, parts)


async def _read_in_turns(request: FetchRequest, uncached_reads: Sequence[UncachedRead]) -> FetchReadResult:
    """Reads all partitions. `uncached_reads` are those of an earlier read: they are prefetched into the page cache, and
    all partitions are read again, until no record is missing there.
    """
    for round_number in range(PREFETCH_ROUNDS_MAX + 1):
        if uncached_reads:
            await prefetch(request.session.services, uncached_reads)
        read_result = await _read_all(request, wait=round_number == PREFETCH_ROUNDS_MAX)
        uncached_reads = read_result.uncached_reads
        if not uncached_reads:
            return read_result
        read_result.release()
    raise AssertionError("a read that waits for the disk has nothing uncached")


async def _read_all(request: FetchRequest, *, wait: bool) -> FetchReadResult:
    read_result, limit_bytes = FetchReadResult(), request.limit_bytes(request.client())
    try:
        for topics, is_continuation in split_into_parts(request.frame.topics):
            has_room = read_result.slices < SLICES_MAX
            remaining_bytes = max(limit_bytes - read_result.readable_bytes, 0) if has_room else 0
            part = read(
                request,
                request.client(),
                topics,
                remaining_bytes,
                wait=wait,
                min_one_batch=not read_result.readable_bytes,
            )
            read_result.extend(part, is_continuation=is_continuation)
            await yield_to_others()
    except BaseException:
        read_result.release()
        raise
    return read_result


async def _encode(request: FetchRequest, read_result: FetchReadResult) -> list[Any]:
    """Returns the parts of the response. If a log diverges, no records are sent: the reader has to truncate first, and
    its next request gets them.
    """
    version, diverging = request.version, read_result.diverging
    if diverging:
        read_result.release()
    leaders, tagged_fields = NO_LEADERS, b"\x00"
    if read_result.must_respond and version >= LEADERS_FROM:
        leaders, tagged_fields = find_leaders(request.session.view(), version, read_result.topic_results)
        await yield_to_others()
    is_committed = request.frame.isolation == READ_COMMITTED
    encoder = FetchResponseEncoder(
        version, is_committed, read_result.aborted, leaders, diverging, read_result.preferred
    )
    room_in_turn = ENCODED_AT_ONCE_MAX
    for key, results in read_result.topic_results:
        encoder.begin_topic(key, len(results))
        for begin in range(0, len(results), ENCODED_AT_ONCE_MAX):
            part = results[begin : begin + ENCODED_AT_ONCE_MAX]
            encoder.add(key, part)
            room_in_turn -= len(part)
            if room_in_turn <= 0:
                room_in_turn = ENCODED_AT_ONCE_MAX
                encoder.compact()
                await yield_to_others()
        room_in_turn -= 1
        encoder.end_topic()
    head = fetch_response_head(version, request.correlation_id, 0, 0, NO_SESSION, len(read_result.topic_results))
    await yield_to_others()
    return encoder.finish(head, tagged_fields)
