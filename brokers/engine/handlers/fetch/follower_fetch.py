"""Fetch by another broker of the cluster: reads up to the log end, checked by leader epoch, in the follower's own
session (REP-6, REP-7, REP-10, REP-15, WIRE-30).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from brokers.engine.handlers.common.background import serve_in_background
from brokers.engine.handlers.common.peer_brokers import is_named_broker, peer_error
from brokers.engine.handlers.fetch.request import NO_SESSION, TOPIC_IDS_FROM, Diverging, PartitionResult
from brokers.engine.handlers.fetch.waits import PREFETCH_ROUNDS_MAX, UncachedRead, prefetch
from brokers.engine.handlers.services import BrokerServices, StorageServices
from brokers.engine.handlers.session import Session
from brokers.engine.partitions.follower_session import NOT_REPORTED, FollowedPartition, FollowerSession
from brokers.engine.partitions.partition import LOG_END, NO_EPOCH, Partition
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.fast_codec_fetch import FetchFrame
from brokers.engine.protocol.fast_codec_fetch_response import (
    FetchExtras,
    encode_fetch_response,
    encode_full_fetch_response,
)
from brokers.engine.records import error_codes

# First version in which a replica sends its broker epoch (KIP-903).
EPOCHS_FROM: Final = 15
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
EPOCH_MAX: Final = 2**31 - 1


class FollowerRead:
    """Result of a read for a follower: the partitions of one response."""

    __slots__ = ("diverging", "has_records", "is_urgent", "read_partitions", "results", "uncached_reads")

    def __init__(self) -> None:
        self.results: dict[bytes, list[PartitionResult]] = {}
        self.diverging: Diverging = {}
        self.uncached_reads: list[UncachedRead] = []
        self.read_partitions: list[FollowedPartition] = []
        self.has_records = False
        # True if the response has more than new high watermarks.
        self.is_urgent = False

    def add(self, followed: FollowedPartition, result: PartitionResult) -> None:
        topic_id = followed.key[0]
        results = self.results.get(topic_id)
        if results is None:
            self.results[topic_id] = [result]
        else:
            results.append(result)

    def release(self) -> None:
        for results in self.results.values():
            for result in results:
                if result[6] is not None:
                    result[6].release()


class FollowerFetch:
    """A fetch request of a follower, with its fetch session."""

    __slots__ = ("correlation_id", "fetch_session", "frame", "session", "version")

    def __init__(
        self, session: Session, version: int, correlation_id: int, frame: FetchFrame, fetch_session: FollowerSession
    ) -> None:
        self.session = session
        self.version = version
        self.correlation_id = correlation_id
        self.frame = frame
        self.fetch_session = fetch_session

    @property
    def limit_bytes(self) -> int:
        return min(self.frame.max_bytes, self.session.services.storage.fetch_bytes_max)


def fetch_as_follower(session: Session, version: int, correlation_id: int, frame: FetchFrame) -> None:
    """Serves a fetch that names its replica, which only that broker may send, in its current epoch (REP-24)."""
    error = _peer_error(session, version, frame)
    if error:
        respond_error(session, version, correlation_id, error)
        return
    fetch_session = _find_session(session.storage, frame)
    if isinstance(fetch_session, int):
        respond_error(session, version, correlation_id, fetch_session)
        return
    _apply_request(session, fetch_session, frame)
    serve(FollowerFetch(session, version, correlation_id, frame, fetch_session), may_delay=True)


def serve(request: FollowerFetch, *, may_delay: bool) -> None:
    """Answers with the partitions that are ready, or, with `may_delay`, waits for an append."""
    session, fetch_session = request.session, request.fetch_session
    may_delay = may_delay and request.frame.max_wait_ms > 0
    may_delay = may_delay and not (fetch_session.has_pending_check or fetch_session.has_urgent_watermark)
    if may_delay and not fetch_session.has_ready:
        DelayedFollowerFetch(request)
        return
    read_result = _read(session.services, fetch_session, request.limit_bytes, wait=False)
    if read_result.uncached_reads:
        read_result.release()
        fetch_session.requeue(read_result.read_partitions)
        serve_in_background(session, _serve_from_disk(request, read_result.uncached_reads))
    elif may_delay and not read_result.is_urgent:
        DelayedFollowerFetch(request)
    else:
        _respond(request, read_result)


async def _serve_from_disk(request: FollowerFetch, uncached_reads: Sequence[UncachedRead]) -> None:
    """Responds after the records of `uncached_reads` were read into the page cache."""
    services, fetch_session = request.session.services, request.fetch_session
    for round_number in range(1, PREFETCH_ROUNDS_MAX + 1):
        await prefetch(services, uncached_reads)
        read_result = _read(services, fetch_session, request.limit_bytes, wait=round_number == PREFETCH_ROUNDS_MAX)
        if not read_result.uncached_reads:
            break
        read_result.release()
        fetch_session.requeue(read_result.read_partitions)
        uncached_reads = read_result.uncached_reads
    request.session.cancel = None
    _respond(request, read_result)


class DelayedFollowerFetch:
    """A follower's fetch that waits for an append, for the end of a leadership, or for the follower's next request."""

    __slots__ = ("_is_superseded", "_request", "_tick")

    def __init__(self, request: FollowerFetch) -> None:
        self._request = request
        self._is_superseded = False
        session = request.session
        self._tick = session.services.deadlines.add(self, request.frame.max_wait_ms)
        request.fetch_session.wait(self.expire)
        session.on_next_request = self._on_superseded
        session.cancel = self._leave

    def expire(self) -> None:
        """Ends the wait."""
        session = self._request.session
        self._leave()
        # Not inside the append that woke the fetch: the producer's response is sent first, and the same request may
        # append more bytes.
        session.cancel = session.services.loop.call_soon(self._complete).cancel

    def _on_superseded(self) -> None:
        """Answers without records, which go with the follower's next request. If they were sent here as well, the
        follower would report its new offsets beside that request, and from then on two requests would be in flight.
        """
        self._is_superseded = True
        self.expire()

    def _leave(self) -> None:
        session = self._request.session
        session.services.deadlines.drop(self, self._tick)
        session.on_next_request = None
        self._request.fetch_session.stop_waiting()

    def _complete(self) -> None:
        self._request.session.cancel = None
        if self._is_superseded:
            _respond(self._request, FollowerRead())
        else:
            serve(self._request, may_delay=False)


def _peer_error(session: Session, version: int, frame: FetchFrame) -> int:
    """Returns the error code of a peer that is not the named broker, or begins a session in another epoch, else 0."""
    if version < TOPIC_IDS_FROM or not is_named_broker(session.services, session.principal, frame.replica_id):
        return int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if version < EPOCHS_FROM or frame.session_epoch not in (INITIAL_EPOCH, FINAL_EPOCH):
        return 0
    return peer_error(session.services, session.principal, frame.replica_id, frame.replica_epoch)


def respond_error(session: Session, version: int, correlation_id: int, error: int) -> None:
    """Responds with an error code for the whole request."""
    session.channel.respond_parts(encode_fetch_response(version, correlation_id, 0, error, NO_SESSION, []))


def _find_session(storage: StorageServices, frame: FetchFrame) -> FollowerSession | int:
    """Returns the session that the request belongs to or begins, or an error code."""
    followers = storage.followers
    known = followers.get(frame.replica_id)
    epoch = frame.session_epoch
    if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
        if known is not None:
            known.close()
            del followers[frame.replica_id]
        session = FollowerSession(NO_SESSION, frame.replica_id, frame.replica_epoch)
        if epoch == INITIAL_EPOCH:
            storage.last_follower_session_id = session.id = storage.last_follower_session_id % EPOCH_MAX + 1
            session.epoch = 1
            followers[frame.replica_id] = session
        return session
    if known is None or known.id != frame.session_id:
        return int(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    if known.epoch != epoch:
        return int(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
    known.epoch = epoch % EPOCH_MAX + 1
    return known


def _apply_request(session: Session, fetch_session: FollowerSession, frame: FetchFrame) -> None:
    services = session.services
    now_ms = fetch_session.fetched_ms = services.clock.monotonic_ms()
    fetch_session.on_request(not frame.topics and not frame.forgotten)
    if frame.forgotten:
        for topic_id, indexes in frame.forgotten:
            for index in indexes:
                fetch_session.remove((topic_id, index))
    for topic_id, requested_partitions in frame.topics:
        for requested_partition in requested_partitions:
            key = (topic_id, requested_partition[0])
            known = fetch_session.partitions.get(key)
            partition = None if known is None else known.partition
            result = (
                partition
                if partition is not None
                else _find(services.storage, session, topic_id, requested_partition[0])
            )
            if fetch_session.update_position(key, requested_partition, result, now_ms) and not isinstance(result, int):
                services.storage.may_join_isr(result)
    if services.storage.leadership_checks.is_waiting:
        services.storage.leadership_checks.evaluate()


def _find(storage: StorageServices, session: Session, topic_id: bytes, index: int) -> Partition | int:
    topic = session.view().image.topics_by_id.get(topic_id)
    if topic is None:
        return int(ErrorCode.UNKNOWN_TOPIC_ID)
    partition = storage.find(topic, index)
    if isinstance(partition, int) or partition.topic_id == topic_id:
        return partition
    return int(ErrorCode.INCONSISTENT_TOPIC_ID)


def _respond(request: FollowerFetch, read_result: FollowerRead) -> None:
    """Sends the result of the read, with the partitions whose high watermark or log start have changed."""
    session, fetch_session = request.session, request.fetch_session
    services = session.services
    for followed in fetch_session.pop_changed():
        partition = followed.partition
        if partition is not None and followed.key not in read_result.diverging:
            read_result.add(followed, _without_records(followed, partition))
    fetch_session.on_response(services.storage.leadership_checks.last_number)
    if fetch_session.id == NO_SESSION:
        fetch_session.close()
    topic_results = list(read_result.results.items())
    version, correlation_id = request.version, request.correlation_id
    if read_result.diverging:
        extras = FetchExtras(diverging=read_result.diverging)
        parts = encode_full_fetch_response(version, correlation_id, 0, 0, fetch_session.id, topic_results, extras)
    else:
        parts = encode_fetch_response(version, correlation_id, 0, 0, fetch_session.id, topic_results)
    session.channel.respond_parts(parts)


def _read(services: BrokerServices, fetch_session: FollowerSession, limit_bytes: int, *, wait: bool) -> FollowerRead:
    """Reads the partitions that are ready, longest waiting first, until the response is full."""
    read_result = FollowerRead()
    remaining = limit_bytes
    while remaining > 0:
        followed = fetch_session.pop_ready()
        if followed is None:
            break
        read_result.read_partitions.append(followed)
        partition = followed.partition
        if followed.code or partition is None:
            _add_error(read_result, followed, followed.code or error_codes.NOT_LEADER_OR_FOLLOWER)
        elif followed.diverging is not None:
            read_result.is_urgent = True
            read_result.diverging[followed.key] = followed.diverging
            read_result.add(followed, _without_records(followed, partition))
            # The partition is queued again, and its response has nothing else.
            followed.sent_high_watermark = followed.sent_start_offset = NOT_REPORTED
        else:
            is_throttled = partition.config.leader_throttled is not None and _is_throttled(
                services.storage, fetch_session, partition
            )
            if is_throttled and _exceeds_throttle(services, fetch_session, followed):
                continue
            room_bytes = (
                min(remaining, services.storage.replication_throttle.chunk_bytes) if is_throttled else remaining
            )
            length = _read_records(read_result, fetch_session, followed, partition, room_bytes, is_throttled, wait)
            if length < 0:
                break
            remaining -= length
            if is_throttled:
                services.storage.replication_throttle.record(length, services.clock.monotonic_ms())
    if read_result.diverging and not read_result.uncached_reads:
        _requeue_records(read_result, fetch_session)
    return read_result


def _read_records(
    read_result: FollowerRead,
    fetch_session: FollowerSession,
    followed: FollowedPartition,
    partition: Partition,
    room_bytes: int,
    min_one_batch: bool,
    wait: bool,
) -> int:
    """Returns the number of bytes read, -1 if the next batch does not fit. With `min_one_batch` it always fits."""
    index, leader_epoch, offset, _, _, bytes_max = followed.request
    code, high_watermark, stable_offset, start_offset, records, uncached = partition.read(
        offset,
        bytes_max if bytes_max < room_bytes else room_bytes,
        min_one_batch=min_one_batch or not read_result.has_records,
        isolation=LOG_END,
        current_leader_epoch=leader_epoch if leader_epoch >= 0 else NO_EPOCH,
        may_wait=wait,
    )
    if uncached is not None:
        read_result.uncached_reads.append(UncachedRead(partition, uncached))
    elif code:
        followed.code = code
        _add_error(read_result, followed, code)
    elif records is not None:
        followed.sent_high_watermark, followed.sent_start_offset = high_watermark, start_offset
        read_result.is_urgent = read_result.has_records = True
        read_result.add(followed, (index, 0, high_watermark, stable_offset, start_offset, records.length, records))
        return records.length
    elif offset < partition.log_end_offset:
        read_result.read_partitions.pop()
        fetch_session.requeue([followed])
        return -1
    else:
        fetch_session.mark_idle(followed)
    return 0


def _is_throttled(storage: StorageServices, fetch_session: FollowerSession, partition: Partition) -> bool:
    """True for a throttled replica of the topic that is not in sync (QUO-60). Replicas in sync are never throttled."""
    throttled_replicas = partition.config.leader_throttled
    if (
        throttled_replicas is None
        or not storage.replication_throttle.is_limited
        or fetch_session.replica in partition.isr
    ):
        return False
    return throttled_replicas.includes(partition.index, fetch_session.replica)


def _exceeds_throttle(services: BrokerServices, fetch_session: FollowerSession, followed: FollowedPartition) -> bool:
    """True if the throttle is exceeded. The partition becomes ready again when the throttle allows more bytes."""
    delay_ms = services.storage.replication_throttle.delay_ms(services.clock.monotonic_ms())
    if delay_ms > 0:
        services.loop.call_later(delay_ms / 1000, fetch_session.mark_ready, followed)
    return delay_ms > 0


def _add_error(read_result: FollowerRead, followed: FollowedPartition, code: int) -> None:
    read_result.is_urgent = True
    read_result.add(followed, (followed.key[1], code, -1, -1, -1, 0, None))


def _without_records(followed: FollowedPartition, partition: Partition) -> PartitionResult:
    high_watermark = followed.sent_high_watermark = partition.high_watermark
    start_offset = followed.sent_start_offset = partition.log_start_offset
    return followed.key[1], 0, high_watermark, high_watermark, start_offset, 0, None


def _requeue_records(read_result: FollowerRead, fetch_session: FollowerSession) -> None:
    """Removes the records from a response with diverging logs: they go with the next response."""
    read_result.release()
    diverging = read_result.diverging
    fetch_session.requeue(
        [followed for followed in read_result.read_partitions if not followed.code and followed.key not in diverging]
    )
    for topic_id, results in read_result.results.items():
        read_result.results[topic_id] = [result for result in results if result[6] is None]
