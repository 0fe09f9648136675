"""Follower of one leader broker: sends requests over one link and appends each response at once (REP-6 to REP-9).

It owns neither a socket nor a clock (`interfaces`). A request that waits at the leader for records is overtaken by a
second one for partitions that the first did not name: newly followed ones, and those whose delay is over.
"""

from __future__ import annotations

from collections import deque
from struct import Struct
from typing import Final, NamedTuple

import structlog

from brokers.engine.cluster.image import BrokerInfo
from brokers.engine.partitions.following import CorruptFetch, FollowerBehindLogStart, append_fetched, has_holes
from brokers.engine.partitions.partition import Partition
from brokers.engine.protocol.errors import ErrorCode, MalformedRequest
from brokers.engine.protocol.fast_codec_replica_fetch import FetchedPartition, ReplicaFetchEncoder, decode_replica_fetch
from brokers.engine.replication.fetch_plan import FIRST_EPOCH, FetchPlan, Key, PartitionFetchState, retry_delay_ms
from brokers.engine.replication.fetcher_context import FetcherContext, FollowerThrottle, PersistedLogStartOffsets
from brokers.engine.replication.interfaces import Link, Timer
from brokers.engine.replication.offsets_query import OffsetsQuery
from brokers.engine.replication.truncation import UNDEFINED, truncation_offset
from brokers.engine.storage.files import StorageFailed

log = structlog.get_logger(__name__)

# `replica.fetch.wait.max.ms`
WAIT_MS: Final = 500
# Maximum time without a response; the leader is then not just waiting for records.
RESPONSE_MS_MAX: Final = 10_000
# Maximum number of requests in flight, on which the leader relies (`partitions.follower_session`).
REQUESTS_MAX: Final = 2

_SESSION_ERRORS: Final = {
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
}
_BASE_OFFSET: Final = Struct(">q")


class _Request(NamedTuple):
    """A pending request; `query` is None for a Fetch, and `round_number` is that of the last fetch."""

    correlation_id: int
    round_number: int
    sent_ms: int
    session_epoch: int
    has_overtaken: bool
    query: OffsetsQuery | None


class Fetcher:
    """Fetches from one leader; `error` is the reason why it cannot be reached, "" if it can. Errors of single
    partitions are in `plan`.
    """

    def __init__(self, leader: int, context: FetcherContext) -> None:
        self.leader = leader
        self._throttle = FollowerThrottle(context)
        self.plan = FetchPlan(self._throttle.throttle_delay_ms, self._throttle.bytes_max)
        self._log_starts = PersistedLogStartOffsets(context.persist_log_start_offsets, self.plan, self._wake_soon)
        self.error = "not connected"
        self._context = context
        self._broker: BrokerInfo | None = None
        self._link: Link | None = None
        self._connecting_since_ms = 0
        self._is_up = False
        self._encoder: ReplicaFetchEncoder | None = None
        self._broker_epoch = UNDEFINED
        self._requests: deque[_Request] = deque()
        self._correlation_id = 0
        self._failures = 0
        self._paused_until_ms = 0
        self._out_of_range: dict[Key, PartitionFetchState] = {}
        self._query: OffsetsQuery | None = None
        self._timer: Timer | None = None
        self._timer_ms = 0

    # -- followed partitions and leader address ------------------------------------------------------------------------

    def follow(self, partition: Partition) -> None:
        if self.plan.follow(partition):
            self._out_of_range.pop((partition.topic_id, partition.index), None)
            self._wake_soon()
        self._log_starts.persist_if_advanced(self.plan.state_by_key[partition.topic_id, partition.index])

    def unfollow(self, key: Key) -> None:
        self.plan.unfollow(key)
        self._out_of_range.pop(key, None)

    def on_log_start_advanced(self, key: Key) -> None:
        """Reports a log start offset that local retention has advanced."""
        state = self.plan.state_by_key.get(key)
        if state is not None:
            self._log_starts.on_advanced(state)

    def on_broker(self, broker: BrokerInfo | None) -> None:
        """Sets the leader's address from the image, None if the broker is not alive."""
        previous = self._broker
        if previous == broker:
            return
        self._broker = broker
        if previous is not None and broker is not None and _address(previous) == _address(broker):
            return
        self.close()
        self._failures = self._paused_until_ms = 0
        self.error = "the broker is not alive" if broker is None else "not connected"
        if broker is not None and self.plan:
            self._wake_at(0)

    def close(self) -> None:
        """Closes the connection and forgets pending requests."""
        link, self._link = self._link, None
        self._is_up = False
        self._requests.clear()
        self._out_of_range.clear()
        self._query = None
        self.plan.on_session_lost()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if link is not None:
            link.close()

    # -- timers --------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Closes the connection if the leader does not respond or did not complete the handshake; called about every
        second.
        """
        if self._link is None:
            return
        now_ms = self._context.clock.monotonic_ms()
        authenticated_ms = now_ms if self._is_up else self._connecting_since_ms
        if now_ms - (self._requests[0].sent_ms if self._requests else authenticated_ms) > RESPONSE_MS_MAX:
            self._disconnect(f"no answer for {RESPONSE_MS_MAX} ms")
        else:
            self._link.trim()

    def _wake_at(self, due_ms: int) -> None:
        """Schedules `_on_timer` for that time (0: as soon as the caller returns), unless it is due earlier."""
        if self._timer is not None:
            if self._timer_ms <= due_ms:
                return
            self._timer.cancel()
        self._timer_ms = due_ms
        delay_ms = due_ms - self._context.clock.monotonic_ms() if due_ms else 0
        self._timer = self._context.call_later(max(delay_ms, 0), self._on_timer)

    def _wake_soon(self) -> None:
        self._wake_at(0)

    def _on_timer(self) -> None:
        self._timer = None
        if self._broker is None:
            return
        now_ms = self._context.clock.monotonic_ms()
        if now_ms < self._paused_until_ms:
            self._wake_at(self._paused_until_ms)
        elif self._link is None:
            if self.plan:
                self._connecting_since_ms = now_ms
                self._link = self._context.connect(self._broker, self)
        elif self._is_up:
            self._send_next(may_overtake=True)

    # -- connection ----------------------------------------------------------------------------------------------------

    def on_up(self) -> None:
        context = self._context
        self._is_up = True
        self._broker_epoch = context.broker_epoch()
        self._encoder = context.encoder(self._broker_epoch)
        log.info("follows_leader", leader=self.leader, partitions=len(self.plan))
        # Without waiting for records: a request can be overtaken only once there is a session.
        self._fetch(context.clock.monotonic_ms(), 0, has_overtaken=False)

    def on_down(self, reason: str) -> None:
        if self._failures == 0:
            log.warning("leader_not_reached", leader=self.leader, reason=reason)
        self._link = None
        self._pause(reason)

    def _disconnect(self, reason: str) -> None:
        if self._link is not None:
            self._link.close()
            self.on_down(reason)

    def _pause(self, reason: str) -> None:
        """Closes the link and schedules another attempt, with an increasing delay."""
        self.close()
        self.error = reason
        self._failures += 1
        self._paused_until_ms = self._context.clock.monotonic_ms() + retry_delay_ms(self._failures)
        if self.plan:
            self._wake_at(self._paused_until_ms)

    # -- requests ------------------------------------------------------------------------------------------------------

    def _send_next(self, *, may_overtake: bool = False) -> None:
        """Sends the next request, if something must be requested that no pending request asks for."""
        requests, plan = self._requests, self.plan
        if not self._is_up:
            return
        now_ms = self._context.clock.monotonic_ms()
        if self._query is not None or self._out_of_range:
            if not requests:
                self._query_offsets(now_ms)
        elif not requests:
            self._fetch(now_ms, WAIT_MS, has_overtaken=False)
        elif (
            may_overtake and len(requests) < REQUESTS_MAX and plan.has_session and plan.has_unrequested_changes(now_ms)
        ):
            self._fetch(now_ms, WAIT_MS, has_overtaken=True)
        if plan.has_delayed:
            due_ms = plan.due_ms()
            # A due partition that was not requested is named in the request after the next response.
            if due_ms is not None and due_ms > now_ms:
                self._wake_at(due_ms)

    def _fetch(self, now_ms: int, wait_ms: int, *, has_overtaken: bool) -> None:
        broker_epoch = self._context.broker_epoch()
        if broker_epoch != self._broker_epoch:
            # This broker has re-registered. A follower that fetches with an old broker epoch never joins an ISR again.
            self._broker_epoch = broker_epoch
            self._encoder = self._context.encoder(broker_epoch)
            self.plan.on_session_lost()
        link, encoder = self._link, self._encoder
        request = self.plan.next_round(now_ms)
        if request is None or link is None or encoder is None:
            return
        session_id, session_epoch, partitions, forgotten_partitions = request
        correlation_id = self._correlation_id = self._correlation_id + 1 & 0x7FFF_FFFF
        self._requests.append(_Request(correlation_id, self.plan.rounds, now_ms, session_epoch, has_overtaken, None))
        link.send(encoder.encode(correlation_id, wait_ms, session_id, session_epoch, partitions, forgotten_partitions))

    def _query_offsets(self, now_ms: int) -> None:
        query, self._query = self._query, None
        if query is None:
            query = OffsetsQuery(tuple(self._out_of_range.values()))
            self._out_of_range.clear()
        if self._link is not None:
            correlation_id = self._correlation_id = self._correlation_id + 1 & 0x7FFF_FFFF
            self._requests.append(_Request(correlation_id, self.plan.rounds, now_ms, FIRST_EPOCH, False, query))
            self._link.send(query.encode_frame(correlation_id, self._context.client_id, self._context.broker_id))

    # -- responses -----------------------------------------------------------------------------------------------------

    def on_frame(self, buffer: memoryview, start: int, end: int) -> None:
        if not self._requests:
            self._disconnect("a response without a request")
            return
        request = self._requests.popleft()
        try:
            if request.query is not None:
                self._on_offsets(request, request.query, buffer, start, end)
            else:
                self._on_fetched(request, buffer, start, end)
        except MalformedRequest as fault:
            self._disconnect(str(fault))
            return
        if self._link is not None:
            # A request that overtook the answered one waits at the leader and does not report the new log end.
            self._send_next(may_overtake=True)

    def _on_fetched(self, request: _Request, buffer: memoryview, start: int, end: int) -> None:
        correlation_id, _, error, session_id, fetched_partitions = decode_replica_fetch(buffer, start, end)
        if correlation_id != request.correlation_id:
            raise MalformedRequest(f"response {correlation_id} to request {request.correlation_id}")
        if error:
            self._on_refused(error)
            return
        if request.session_epoch == FIRST_EPOCH:
            self.plan.on_session_opened(session_id)
        self._failures = 0
        self.error = ""
        if fetched_partitions:
            now_ms = self._context.clock.now_ms()
            try:
                for fetched in fetched_partitions:
                    self._on_fetched_partition(fetched, buffer, now_ms, request)
            finally:
                self._context.table.flusher.persist_holes()

    def _on_refused(self, error: int) -> None:
        """Handles an error of a whole request: a session that the leader has forgotten, or another error."""
        self._requests.clear()
        if error in _SESSION_ERRORS and self.plan.has_session:
            # Other requests in flight are refused too; a new connection keeps the responses apart.
            self._drop_link()
            self._wake_at(0)
            return
        self._disconnect(f"refused with {_error_name(error)}")

    def _drop_link(self) -> None:
        link, self._link = self._link, None
        self._is_up = False
        self.plan.on_session_lost()
        if link is not None:
            link.close()

    def _on_fetched_partition(
        self, fetched: FetchedPartition, buffer: memoryview, now_ms: int, request: _Request
    ) -> None:
        topic_id, index, error, high_watermark, start_offset, epoch, end_offset, records_at, records_end = fetched
        state = self.plan.find(topic_id, index, request.round_number)
        if state is None:
            return
        state.last_acked_ms = now_ms
        if error:
            self._on_error(state, error)
            return
        partition = state.partition
        try:
            if epoch != UNDEFINED or end_offset != UNDEFINED:
                self._truncate(state, epoch, end_offset, now_ms)
                return
            if request.has_overtaken and records_end - records_at >= _BASE_OFFSET.size:
                (base_offset,) = _BASE_OFFSET.unpack_from(buffer, records_at)
                if base_offset < partition.log.log_end_offset:
                    # These records were requested before the response with the same records; the leader does not repeat
                    # its offsets.
                    self.plan.mark_advanced(state)
                    records_end = records_at
            start_before, end_before = partition.log.log_start_offset, partition.log.log_end_offset
            appended_bytes = append_fetched(
                partition, buffer[records_at:records_end], high_watermark, start_offset, now_ms
            )
        except FollowerBehindLogStart:
            # No local record is useful, as if the log ended before the leader's log start.
            self._on_error(state, ErrorCode.OFFSET_OUT_OF_RANGE)
            return
        except CorruptFetch as fault:
            log.error("fetched_records_refused", topic=partition.topic, partition=index, reason=str(fault))
            self.plan.mark_failed(state, str(fault), self._context.clock.monotonic_ms())
            return
        except StorageFailed as failure:
            self._on_disk_error(state, failure)
            return
        if (
            appended_bytes
            and partition.config.compaction is not None
            and has_holes(buffer[records_at : records_at + appended_bytes], end_before)
        ):
            self._context.table.flusher.record_holes(partition)
        state.leader_high_watermark = high_watermark
        if appended_bytes or partition.log.log_start_offset != start_before:
            self.plan.mark_advanced(state)
            self._log_starts.persist_if_advanced(state)
            if appended_bytes and partition.config.follower_throttled is not None:
                # Throttled until the received bytes are within the rate (QUO-61).
                delay_ms = self._throttle.record_received(state, appended_bytes)
                if delay_ms:
                    self.plan.delay(state, self._context.clock.monotonic_ms() + delay_ms)

    def _truncate(self, state: PartitionFetchState, leader_epoch: int, leader_end_offset: int, now_ms: int) -> None:
        partition = state.partition
        end_offset = partition.log.log_end_offset
        offset = truncation_offset(partition.log.epochs, end_offset, leader_epoch, leader_end_offset)
        log.info("log_truncated", topic=partition.topic, partition=partition.index, to=offset, end_offset=end_offset,
                 leader=self.leader, leader_epoch=partition.leader_epoch)  # fmt: skip
        self._context.table.truncate(partition, offset, now_ms)
        self.plan.mark_advanced(state)

    def _on_error(self, state: PartitionFetchState, error: int) -> None:
        if error == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range[state.key] = state
        self.plan.mark_failed(state, _error_name(error), self._context.clock.monotonic_ms())

    def _on_offsets(self, request: _Request, query: OffsetsQuery, buffer: memoryview, start: int, end: int) -> None:
        """Handles the response to an offsets query; partitions that it does not resolve wait as after any other
        error.
        """
        now_ms = self._context.clock.now_ms()
        table = self._context.table
        for state, action in query.decode_results(buffer, start, end, request.correlation_id):
            partition = state.partition
            if self.plan.state_by_key.get(state.key) is not state or not state.is_answered_by(request.round_number):
                continue
            try:
                if action.truncate_to is not None:
                    table.truncate(partition, action.truncate_to, now_ms)
                elif action.restart_at is not None:
                    table.truncate_fully_and_start_at(partition, action.restart_at, now_ms)
                else:
                    continue
            except StorageFailed as failure:
                self._on_disk_error(state, failure)
                continue
            log.warning("offset_was_out_of_range", topic=partition.topic, partition=partition.index,
                        truncated_to=action.truncate_to, restarted_at=action.restart_at)  # fmt: skip
            self.plan.resume(state)
        self._query = query.next_query

    def _on_disk_error(self, state: PartitionFetchState, failure: StorageFailed) -> None:
        """Handles a disk error: the partition is offline and no longer fetched, unless the failure is transient."""
        if failure.is_transient:
            self._log_starts.persist_if_advanced(state)
            self.plan.mark_failed(state, str(failure), self._context.clock.monotonic_ms())
        else:
            self.plan.unfollow(state.key)
            state.error = str(failure)


def _address(broker: BrokerInfo) -> tuple[int, str, int]:
    return broker.epoch, broker.host, broker.port


def _error_name(error: int) -> str:
    try:
        return ErrorCode(error).name
    except ValueError:
        return f"error {error}"
