"""Fetch: read whole batches straight from the log, wait for more if asked to, charge, send (WIRE-27…33, QUO-19,
QUO-20).

Every answer is a full one: sessions (WIRE-30) are not given out, which the protocol allows; a client that asks for one
is answered with session id 0 and goes on with full requests. The session id of a full request names one to forget, and
there is none.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from brokers.engine.handlers.client import Client
from brokers.engine.handlers.common.background import answer_in_turns
from brokers.engine.handlers.fetch.current_leaders import LEADERS_FROM, find_leaders
from brokers.engine.handlers.fetch.delayed_fetch import DelayedFetch, bytes_still_missing, may_be_delayed
from brokers.engine.handlers.fetch.fetch_errors import NO_SESSION, READ_COMMITTED, PartitionResult, divergence, refused
from brokers.engine.handlers.fetch.follower_fetch import fetch_as_follower
from brokers.engine.handlers.fetch.long_fetch import READ_AT_ONCE_BYTES_MAX, decode_long, serve_long
from brokers.engine.handlers.fetch.prefetch import ROUNDS_MAX, Missing, prefetch_then
from brokers.engine.handlers.fetch.reading import Reading
from brokers.engine.handlers.fetch.repeats import without_repeats
from brokers.engine.handlers.raw_request import RawRequest
from brokers.engine.handlers.session import Session
from brokers.engine.partitions.committed import list_aborted
from brokers.engine.partitions.partition import NO_EPOCH, Partition
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode, downgraded
from brokers.engine.protocol.fast_codec import FetchFrame, decode_fetch, encode_fetch_response
from brokers.engine.records.compression import ZSTD
from brokers.engine.request_turns import Place
from brokers.engine.throttling.charging import Limiter, charge_fetch, fetch_cap_bytes
from brokers.engine.throttling.usage import UsageCounter
from brokers.engine.throttling.waits import Mute
from brokers.engine.values import Slice

TOPIC_IDS_FROM: Final = 13
SESSIONS_FROM: Final = 7
# Clients before this version cannot inflate zstd; a topic that forces it has nothing for them.
ZSTD_FROM: Final = 10
FULL_FETCH_EPOCHS: Final = (0, -1)
FRAME_SIZE_BYTES: Final = 4


def fetch(session: Session, raw: RawRequest) -> None:
    if raw.end - raw.start > READ_AT_ONCE_BYTES_MAX and not session.principal.internal:
        decode_long(session, raw, handle)
    else:
        frame = decode_fetch(raw.buffer, raw.body, raw.end, raw.version, session.fetch_items_max)
        if frame.replica_id < 0:
            frame = without_repeats(frame)
        handle(session, raw.client_id, raw.version, raw.correlation_id, frame, None)


def handle(
    session: Session, client_id: str | None, version: int, correlation_id: int, frame: FetchFrame, place: Place | None
) -> None:
    """`place`: of a long request, which is left when it is answered."""
    if not 0 <= frame.isolation <= READ_COMMITTED:
        answer_in_turns(
            session, int(ApiKey.FETCH), client_id, _refuse(session, version, correlation_id, frame),
            _nothing if place is None else place.leave,
        )  # fmt: skip
        return
    if frame.replica_id >= 0:
        fetch_as_follower(session, version, correlation_id, frame)
    elif frame.session_epoch not in FULL_FETCH_EPOCHS:
        error = int(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        session.channel.respond_parts(encode_fetch_response(version, correlation_id, 0, error, NO_SESSION, []))
    elif place is None:
        _serve(session, client_id, version, correlation_id, frame, True, 0)
        return
    else:
        serve_long(session, client_id, version, correlation_id, frame, read, send, place)
        return
    if place is not None:
        place.leave()


async def _refuse(session: Session, version: int, correlation_id: int, frame: FetchFrame) -> None:
    answer = await refused(version, correlation_id, int(ErrorCode.UNKNOWN_SERVER_ERROR), frame)
    session.cancel = None
    session.channel.respond(answer)


def _nothing() -> None:
    pass


def _serve(
    session: Session,
    client_id: str | None,
    version: int,
    correlation_id: int,
    frame: FetchFrame,
    may_delay: bool,
    round_number: int,
) -> None:
    """Answers with what there is, or waits: for the disk, or (`may_delay`) for more records."""
    client = session.client(client_id)
    limit = fetch_cap_bytes(client.consume_limiters, min(frame.max_bytes, session.engine.fetch_bytes_max))
    reading = read(client, session, frame, version, limit, round_number >= ROUNDS_MAX)
    if reading.missing:
        reading.release()
        again = partial(_serve, session, client_id, version, correlation_id, frame, may_delay, round_number + 1)
        prefetch_then(session, reading.missing, again)
        return
    if may_delay:
        missing_bytes = min(frame.min_bytes, limit) - reading.readable_bytes
        is_early = missing_bytes > 0 and frame.max_wait_ms > 0 and not reading.must_answer and bool(reading.watched)
        if is_early and reading.readable_bytes:
            asked = _asked(client, frame, reading)
            missing_bytes = bytes_still_missing(asked, frame.isolation, min(frame.min_bytes, limit))
            is_early = missing_bytes > 0
        if is_early and may_be_delayed(sum([len(wanted) for _, wanted in frame.topics]), client.view):
            reading.release()
            again = partial(_serve, session, client_id, version, correlation_id, frame, False, 0)
            is_committed = frame.isolation == READ_COMMITTED
            topics = [key for key, _ in frame.topics]
            DelayedFetch(
                session, again, frame.max_wait_ms, reading.watched, missing_bytes, is_committed,
                topics, version >= TOPIC_IDS_FROM,
            )  # fmt: skip
            return
    answer(session, client, version, correlation_id, frame, reading)


def _asked(client: Client, frame: FetchFrame, reading: Reading) -> list[tuple[Partition, int, int]]:
    """Which partitions were read without an error, each with the offset and the most bytes that are wanted of it."""
    asked = []
    for (key, wanted), (_, lines) in zip(frame.topics, reading.answers, strict=True):
        partitions = client.consume_routes[key].partitions
        for wish, line in zip(wanted, lines, strict=True):
            if not line[1]:
                asked.append((partitions[wish[0]], wish[2], wish[5]))
    return asked


def read(
    client: Client, session: Session, frame: FetchFrame, version: int, limit: int, wait: bool, nothing_yet: bool = True
) -> Reading:
    """Reads in the order of the request; with `nothing_yet` the first partition with data gives a whole batch."""
    engine = session.engine
    by_id = version >= TOPIC_IDS_FROM
    routes = client.consume_routes
    isolation = frame.isolation
    reading = Reading()
    watched = reading.watched
    remaining = limit
    is_unresolved = frame.max_bytes < 0 or version < ZSTD_FROM
    for key, wanted in frame.topics:
        route = routes.get(key)
        if route is None:
            route = client.consume_route(key, by_id)
        lines: list[PartitionResult] = []
        topic_bytes = 0
        held_back = 0 if route.limiter is None else remaining - fetch_cap_bytes((route.limiter,), remaining)
        remaining -= held_back
        for index, leader_epoch, offset, last_fetched_epoch, _, partition_bytes_max in wanted:
            if route.error:
                lines.append((index, route.error, -1, -1, -1, 0, None))
                continue
            partition = route.partitions.get(index)
            if partition is None:
                result = route.find(index, engine)
                if isinstance(result, int):
                    reading.must_answer = reading.must_answer or result != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    lines.append((index, result, -1, -1, -1, 0, None))
                    continue
                partition = result
            if (
                last_fetched_epoch >= 0
                or partition_bytes_max < 0
                or is_unresolved
                or (by_id and partition.topic_id != key)
            ):
                is_foreign = by_id and partition.topic_id != key
                is_negative = min(frame.max_bytes, partition_bytes_max) < 0
                code, offset = _resolve_read(
                    reading, partition, key, last_fetched_epoch, offset, version, is_negative, is_foreign
                )
                if code:
                    reading.must_answer = True
                    lines.append((index, code, -1, -1, -1, 0, None))
                    continue
            code, high_watermark, stable_offset, start_offset, records, uncached = partition.read(
                offset,
                partition_bytes_max if partition_bytes_max < remaining else remaining,
                min_one_batch=nothing_yet,
                isolation=isolation,
                current_leader_epoch=leader_epoch if leader_epoch >= 0 else NO_EPOCH,
                wait=wait,
            )
            if isolation and records is not None and partition.log.has_aborts:
                code, records, uncached = list_aborted(reading.aborted, key, partition, offset, records, wait)
            if records is not None:
                length = records.length
                remaining = remaining - length if remaining > length else 0
                nothing_yet = False
                topic_bytes += length
                lines.append((index, code, high_watermark, stable_offset, start_offset, length, records))
            else:
                if uncached is not None:
                    reading.missing.append(Missing(partition, uncached))
                if code:
                    reading.must_answer = True
                    code = downgraded(code, ApiKey.FETCH, version)
                lines.append((index, code, high_watermark, stable_offset, start_offset, 0, None))
            watched.append(partition)
        remaining += held_back
        reading.add_topic(key, lines, topic_bytes, route.usage, route.limiter)
    return reading


def _resolve_read(
    reading: Reading,
    partition: Partition,
    key: bytes,
    last_fetched_epoch: int,
    offset: int,
    version: int,
    is_negative: bool,
    is_foreign: bool,
) -> tuple[int, int]:
    """`(error, offset to read from)` of what few requests ask: a negative limit, records that the version's clients
    cannot read, another topic's id, a known epoch.
    """
    if is_negative:
        return int(ErrorCode.UNKNOWN_SERVER_ERROR), offset
    if version < ZSTD_FROM and partition.config.batch_rules.codec == ZSTD:
        return int(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE), offset
    if is_foreign:
        return int(ErrorCode.INCONSISTENT_TOPIC_ID), offset
    left = divergence(partition, last_fetched_epoch, offset) if last_fetched_epoch >= 0 else None
    if isinstance(left, int):
        return left, offset
    if left is None:
        return 0, offset
    reading.must_answer = True
    reading.diverging[key, partition.index] = left
    return 0, partition.log_end_offset


def answer(
    session: Session, client: Client, version: int, correlation_id: int, frame: FetchFrame, reading: Reading
) -> None:
    """Encodes the response, and sends it."""
    if reading.diverging:
        # Records wait for the next request, which the reader sends after it truncated.
        reading.release()
    is_committed = frame.isolation == READ_COMMITTED
    if reading.must_answer and version >= LEADERS_FROM:
        leaders, tagged = find_leaders(session.view(), version, reading.answers)
        parts = encode_fetch_response(
            version, correlation_id, 0, 0, NO_SESSION, reading.answers,
            read_committed=is_committed, aborted=reading.aborted, leaders=leaders, diverging=reading.diverging,
            tagged=tagged,
        )  # fmt: skip
    else:
        parts = encode_fetch_response(
            version, correlation_id, 0, 0, NO_SESSION, reading.answers,
            read_committed=is_committed, aborted=reading.aborted, diverging=reading.diverging,
        )  # fmt: skip
    send(session, client, version, correlation_id, reading, parts)


def send(
    session: Session, client: Client, version: int, correlation_id: int, reading: Reading, parts: list[bytes | Slice]
) -> None:
    """Charges the response as it is; too much, and it goes without data and uncounted (QUO-20)."""
    engine = session.engine
    limited = [] if reading.diverging else reading.limited
    if client.consume_limiters or client.request_limiter is not None or limited:
        head = parts[0]
        assert isinstance(head, bytes), "a frame begins with its size"
        size_bytes = FRAME_SIZE_BYTES + int.from_bytes(head[:FRAME_SIZE_BYTES], "big")
        delay_ms, limiter = charge_for(session, client, size_bytes, limited)
        if limiter is not None:
            reading.release()
            client.remember_delay(limiter, delay_ms, engine.clock.now_ms())
            session.channel.respond_parts(
                encode_fetch_response(version, correlation_id, delay_ms, 0, NO_SESSION, []), delay_ms,
                mute=None if limiter is client.request_limiter else Mute(limiter, delay_ms, engine.loop_clock),
            )  # fmt: skip
            return
    if not reading.metered or reading.diverging:
        session.channel.respond_parts(parts)
        return
    session.channel.respond_parts(parts, 0, partial(meter, session, client, reading.metered))


def charge_for(
    session: Session, client: Client, size_bytes: int, limited: list[tuple[Limiter, int]]
) -> tuple[int, Limiter | None]:
    """Returns how long a response of `size_bytes` waits, and for which limiter; `limited` are those of its topics."""
    now_ms = session.engine.clock.monotonic_ms()
    request_limiter = client.request_limiter
    time_ms = 0 if request_limiter is None else session.time_delay_ms(request_limiter)
    charged = [(limiter, size_bytes) for limiter in client.consume_limiters] + limited
    delay_ms, limiter = charge_fetch(charged, now_ms, time_ms > 0)
    return (time_ms, request_limiter) if time_ms > delay_ms else (delay_ms, limiter)


def meter(session: Session, client: Client, metered: list[tuple[UsageCounter | None, int]], count: int) -> None:
    """`count` bytes of records went out, in the order of the answer."""
    if not count:
        return
    engine = session.engine
    engine.totals.consume_bytes += count
    if client.accounting is not None:
        client.accounting.traffic.consumed(count, engine.clock.now_ms())
    for usage, length in metered:
        written = length if length < count else count
        if usage is not None and written:
            usage.add(written)
        count -= written
