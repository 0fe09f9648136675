"""Fetch by another broker of the cluster: reads up to the log end, checked by leader epoch, in the follower's own
session (REP-6, REP-7, REP-10, REP-15, WIRE-30).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from brokers.engine.handlers.common.background import answer_in_background
from brokers.engine.handlers.common.peer_brokers import is_speaker, speaker_error
from brokers.engine.handlers.fetch.request import NO_SESSION, TOPIC_IDS_FROM, Diverging, PartitionResult
from brokers.engine.handlers.fetch.waits import ROUNDS_MAX, Missing, prefetch
from brokers.engine.handlers.services import BrokerServices, StorageServices
from brokers.engine.handlers.session import Session
from brokers.engine.partitions.follower_session import NOT_REPORTED, FollowedPartition, FollowerSession
from brokers.engine.partitions.partition import LOG_END, NO_EPOCH, Partition
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.fast_codec import (
    FetchExtras,
    FetchFrame,
    encode_fetch_response,
    encode_full_fetch_response,
)
from brokers.engine.records import error_codes

# First version in which a replica sends its broker epoch (KIP-903).
EPOCHS_FROM: Final = 15
FULL: Final = 0
SESSIONLESS: Final = -1
EPOCH_MAX: Final = 2**31 - 1


class FollowerRead:
    """Result of a read for a follower: the partitions of one response."""

    __slots__ = ("diverging", "has_records", "is_urgent", "missing", "results", "taken")

    def __init__(self) -> None:
        self.results: dict[bytes, list[PartitionResult]] = {}
        self.diverging: Diverging = {}
        self.missing: list[Missing] = []
        self.taken: list[FollowedPartition] = []
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

    __slots__ = ("correlation_id", "fetches", "frame", "session", "version")

    def __init__(
        self, session: Session, version: int, correlation_id: int, frame: FetchFrame, fetches: FollowerSession
    ) -> None:
        self.session = session
        self.version = version
        self.correlation_id = correlation_id
        self.frame = frame
        self.fetches = fetches

    @property
    def limit_bytes(self) -> int:
        return min(self.frame.max_bytes, self.session.services.storage.fetch_bytes_max)


def fetch_as_follower(session: Session, version: int, correlation_id: int, frame: FetchFrame) -> None:
    """Serves a fetch that names its replica, which only that broker may send, in its current epoch (REP-24)."""
    error = _speaker_error(session, version, frame)
    if error:
        refuse(session, version, correlation_id, error)
        return
    fetches = _session(session.storage, frame)
    if isinstance(fetches, int):
        refuse(session, version, correlation_id, fetches)
        return
    _apply_request(session, fetches, frame)
    serve(FollowerFetch(session, version, correlation_id, frame, fetches), True)


def serve(request: FollowerFetch, may_delay: bool) -> None:
    """Answers with the partitions that are ready, or, with `may_delay`, waits for an append."""
    session, fetches = request.session, request.fetches
    may_delay = may_delay and request.frame.max_wait_ms > 0
    may_delay = may_delay and not (fetches.has_pending_check or fetches.has_urgent_watermark)
    if may_delay and not fetches.has_ready:
        DelayedFollowerFetch(request)
        return
    read_result = _read(session.services, fetches, request.limit_bytes, False)
    if read_result.missing:
        read_result.release()
        fetches.requeue(read_result.taken)
        answer_in_background(session, _serve_from_disk(request, read_result.missing))
    elif may_delay and not read_result.is_urgent:
        DelayedFollowerFetch(request)
    else:
        _answer(request, read_result)


async def _serve_from_disk(request: FollowerFetch, missing: Sequence[Missing]) -> None:
    """Answers after the `missing` parts of logs were read into the page cache."""
    services, fetches = request.session.services, request.fetches
    for round_number in range(1, ROUNDS_MAX + 1):
        await prefetch(services, missing)
        read_result = _read(services, fetches, request.limit_bytes, round_number == ROUNDS_MAX)
        if not read_result.missing:
            break
        read_result.release()
        fetches.requeue(read_result.taken)
        missing = read_result.missing
    request.session.cancel = None
    _answer(request, read_result)


class DelayedFollowerFetch:
    """A follower's fetch that waits for an append, for the end of a leadership, or for the follower's next request."""

    __slots__ = ("_is_superseded", "_request", "_tick")

    def __init__(self, request: FollowerFetch) -> None:
        self._request = request
        self._is_superseded = False
        session = request.session
        self._tick = session.services.deadlines.add(self, request.frame.max_wait_ms)
        request.fetches.wait(self.expire)
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
        self._request.fetches.stop_waiting()

    def _complete(self) -> None:
        self._request.session.cancel = None
        if self._is_superseded:
            _answer(self._request, FollowerRead())
        else:
            serve(self._request, False)


def _speaker_error(session: Session, version: int, frame: FetchFrame) -> int:
    """Returns the error code if the peer is not the broker that the request names, else 0. A request that begins a
    session is also checked for its broker epoch.
    """
    if version < TOPIC_IDS_FROM or not is_speaker(session.services, session.principal, frame.replica_id):
        return int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if version < EPOCHS_FROM or frame.session_epoch not in (FULL, SESSIONLESS):
        return 0
    return speaker_error(session.services, session.principal, frame.replica_id, frame.replica_epoch)


def refuse(session: Session, version: int, correlation_id: int, error: int) -> None:
    session.channel.respond_parts(encode_fetch_response(version, correlation_id, 0, error, NO_SESSION, []))


def _session(storage: StorageServices, frame: FetchFrame) -> FollowerSession | int:
    """Returns the session that the request belongs to or begins, or an error code."""
    followers = storage.followers
    known = followers.get(frame.replica_id)
    epoch = frame.session_epoch
    if epoch in (FULL, SESSIONLESS):
        if known is not None:
            known.close()
            del followers[frame.replica_id]
        session = FollowerSession(NO_SESSION, frame.replica_id, frame.replica_epoch)
        if epoch == FULL:
            storage.follower_sessions_made = session.id = storage.follower_sessions_made % EPOCH_MAX + 1
            session.epoch = 1
            followers[frame.replica_id] = session
        return session
    if known is None or known.id != frame.session_id:
        return int(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    if known.epoch != epoch:
        return int(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
    known.epoch = epoch % EPOCH_MAX + 1
    return known


def _apply_request(session: Session, fetches: FollowerSession, frame: FetchFrame) -> None:
    services = session.services
    now_ms = fetches.fetched_ms = services.clock.monotonic_ms()
    fetches.on_request(not frame.topics and not frame.forgotten)
    if frame.forgotten:
        for topic_id, indexes in frame.forgotten:
            for index in indexes:
                fetches.remove((topic_id, index))
    for topic_id, wanted in frame.topics:
        for partition_wanted in wanted:
            key = (topic_id, partition_wanted[0])
            known = fetches.partitions.get(key)
            partition = None if known is None else known.partition
            result = (
                partition if partition is not None else _find(services.storage, session, topic_id, partition_wanted[0])
            )
            if fetches.update_position(key, partition_wanted, result, now_ms) and not isinstance(result, int):
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


def _answer(request: FollowerFetch, read_result: FollowerRead) -> None:
    """Sends the result of the read, with the partitions whose high watermark or log start have changed."""
    session, fetches = request.session, request.fetches
    services = session.services
    for followed in fetches.take_changed():
        partition = followed.partition
        if partition is not None and followed.key not in read_result.diverging:
            read_result.add(followed, _without_records(followed, partition))
    fetches.on_response(services.storage.leadership_checks.last_number)
    if fetches.id == NO_SESSION:
        fetches.close()
    answers = list(read_result.results.items())
    version, correlation_id = request.version, request.correlation_id
    if read_result.diverging:
        extras = FetchExtras(diverging=read_result.diverging)
        parts = encode_full_fetch_response(version, correlation_id, 0, 0, fetches.id, answers, extras)
    else:
        parts = encode_fetch_response(version, correlation_id, 0, 0, fetches.id, answers)
    session.channel.respond_parts(parts)


def _read(services: BrokerServices, fetches: FollowerSession, limit_bytes: int, wait: bool) -> FollowerRead:
    """Reads the partitions that are ready, longest waiting first, until the response is full."""
    read_result = FollowerRead()
    remaining = limit_bytes
    while remaining > 0:
        followed = fetches.next_ready()
        if followed is None:
            break
        read_result.taken.append(followed)
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
                services.storage, fetches, partition
            )
            if is_throttled and _is_held_back(services, fetches, followed):
                continue
            room_bytes = (
                min(remaining, services.storage.replication_throttle.chunk_bytes) if is_throttled else remaining
            )
            length = _read_records(read_result, fetches, followed, partition, room_bytes, is_throttled, wait)
            if length < 0:
                break
            remaining -= length
            if is_throttled:
                services.storage.replication_throttle.record(length, services.clock.monotonic_ms())
    if read_result.diverging and not read_result.missing:
        _requeue_records(read_result, fetches)
    return read_result


def _read_records(
    read_result: FollowerRead,
    fetches: FollowerSession,
    followed: FollowedPartition,
    partition: Partition,
    room_bytes: int,
    one_batch: bool,
    wait: bool,
) -> int:
    """Returns the number of bytes read, -1 if the next batch does not fit. With `one_batch` it always fits."""
    index, leader_epoch, offset, _, _, bytes_max = followed.request
    code, high_watermark, stable_offset, start_offset, records, uncached = partition.read(
        offset,
        bytes_max if bytes_max < room_bytes else room_bytes,
        min_one_batch=one_batch or not read_result.has_records,
        isolation=LOG_END,
        current_leader_epoch=leader_epoch if leader_epoch >= 0 else NO_EPOCH,
        wait=wait,
    )
    if uncached is not None:
        read_result.missing.append(Missing(partition, uncached))
    elif code:
        followed.code = code
        _add_error(read_result, followed, code)
    elif records is not None:
        followed.sent_high_watermark, followed.sent_start_offset = high_watermark, start_offset
        read_result.is_urgent = read_result.has_records = True
        read_result.add(followed, (index, 0, high_watermark, stable_offset, start_offset, records.length, records))
        return records.length
    elif offset < partition.log_end_offset:
        read_result.taken.pop()
        fetches.requeue([followed])
        return -1
    else:
        fetches.mark_idle(followed)
    return 0


def _is_throttled(storage: StorageServices, fetches: FollowerSession, partition: Partition) -> bool:
    """True for a throttled replica of the topic that is not in sync (QUO-60). Replicas in sync are never throttled."""
    named = partition.config.leader_throttled
    if named is None or not storage.replication_throttle.is_limited or fetches.replica in partition.isr:
        return False
    return named.holds(partition.index, fetches.replica)


def _is_held_back(services: BrokerServices, fetches: FollowerSession, followed: FollowedPartition) -> bool:
    """True if the throttle is exceeded; the partition becomes ready again when the throttle allows more bytes."""
    delay_ms = services.storage.replication_throttle.delay_ms(services.clock.monotonic_ms())
    if delay_ms > 0:
        services.loop.call_later(delay_ms / 1000, fetches.ready, followed)
    return delay_ms > 0


def _add_error(read_result: FollowerRead, followed: FollowedPartition, code: int) -> None:
    read_result.is_urgent = True
    read_result.add(followed, (followed.key[1], code, -1, -1, -1, 0, None))


def _without_records(followed: FollowedPartition, partition: Partition) -> PartitionResult:
    high_watermark = followed.sent_high_watermark = partition.high_watermark
    start_offset = followed.sent_start_offset = partition.log_start_offset
    return followed.key[1], 0, high_watermark, high_watermark, start_offset, 0, None


def _requeue_records(read_result: FollowerRead, fetches: FollowerSession) -> None:
    """Removes the records from a response with diverging logs: they go with the next response."""
    read_result.release()
    diverging = read_result.diverging
    fetches.requeue([followed for followed in read_result.taken if not followed.code and followed.key not in diverging])
    for topic_id, results in read_result.results.items():
        read_result.results[topic_id] = [result for result in results if result[6] is None]
