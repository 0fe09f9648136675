"""Plan of the next fetch request to a leader, and of retries (REP-6, WIRE-30). Pure: the clock is passed in.

The leader keeps a fetch session if it can: then a request names only what changed since the last one, so that its cost
depends on the traffic and not on the number of partitions. Without a session every request names all due partitions.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final, NamedTuple

from brokers.engine.partitions.partition import Partition
from brokers.engine.protocol.fast_codec_replica_fetch import ForgottenPartition, ReplicaPartitionRequest

RETRY_MS_FIRST: Final = 25
# `replica.fetch.backoff.ms`
RETRY_MS_MAX: Final = 1_000

# `replica.fetch.max.bytes`
PARTITION_BYTES_MAX: Final = 1_048_576

NO_SESSION: Final = 0
FIRST_EPOCH: Final = 0
_EPOCH_MAX: Final = 2**31 - 1
UNKNOWN: Final = -1

Key = tuple[bytes, int]


def retry_delay_ms(failures: int) -> int:
    """Returns the delay in ms after a number of consecutive failures; short at first, because a new leader may lag by a
    moment.
    """
    return min(RETRY_MS_FIRST << min(failures - 1, 16), RETRY_MS_MAX)


def next_epoch(session_epoch: int) -> int:
    """Returns the next session epoch, which wraps to 1; 0 would request a new session."""
    return 1 if session_epoch == _EPOCH_MAX else session_epoch + 1


class PartitionFetchState:
    """One followed partition in its current leader epoch.

    `last_request` is its entry in the last request that named it, and `first_round` the number of the first request in
    this epoch.
    """

    __slots__ = (
        "error",
        "failures",
        "first_round",
        "key",
        "last_acked_ms",
        "last_request",
        "leader_high_watermark",
        "partition",
        "retry_ms",
    )

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.key: Key = (partition.topic_id, partition.index)
        self.last_request: ReplicaPartitionRequest | None = None
        self.first_round = 0
        self.leader_high_watermark = UNKNOWN
        self.last_acked_ms = 0
        self.error = ""
        self.failures = 0
        # Earliest time of the next request, 0 if it is not delayed.
        self.retry_ms = 0

    @property
    def lag(self) -> int:
        """Number of records behind the leader's high watermark, UNKNOWN before the first response."""
        if self.leader_high_watermark == UNKNOWN:
            return UNKNOWN
        return max(0, self.leader_high_watermark - self.partition.log_end_offset)

    def next_request(self, bytes_max: int, round_number: int) -> ReplicaPartitionRequest:
        partition = self.partition
        log = partition.log
        if not self.was_requested_in_this_epoch():
            self.first_round = round_number
        self.last_request = (
            partition.topic_id,
            partition.index,
            partition.leader_epoch,
            log.log_end_offset,
            log.epochs.latest,
            # A crash may undo a later log start offset (LOG-46).
            log.durable_start_offset,
            bytes_max,
        )
        return self.last_request

    def was_requested_in_this_epoch(self) -> bool:
        return self.last_request is not None and self.last_request[2] == self.partition.leader_epoch

    def is_answered_by(self, round_number: int) -> bool:
        """True if the response to that request is for the current epoch.

        A response that was in flight during a change of leader is ignored, even if the leader is the same broker and
        was asked again meanwhile.
        """
        return self.was_requested_in_this_epoch() and round_number >= self.first_round


class Round(NamedTuple):
    """Content of one fetch request."""

    session_id: int
    session_epoch: int
    partitions: list[ReplicaPartitionRequest]
    forgotten_partitions: list[ForgottenPartition]


class FetchPlan:
    """Fetch plan for one leader; `rounds` counts the requests.

    Invariant: each partition in `state_by_key` is either active or waits for its retry time.
    """

    def __init__(
        self,
        throttle_delay_ms: Callable[[PartitionFetchState], int] = lambda state: 0,
        bytes_max: Callable[[PartitionFetchState], int] = lambda state: PARTITION_BYTES_MAX,
    ) -> None:
        """Creates an empty plan.

        `throttle_delay_ms` returns the time in ms for which a due partition must still be delayed, and `bytes_max` the
        size to request for one that may be throttled (QUO-61).
        """
        self.state_by_key: dict[Key, PartitionFetchState] = {}
        self.rounds = 0
        self._throttle_delay_ms = throttle_delay_ms
        self._bytes_max = bytes_max
        self._active_by_key: dict[Key, PartitionFetchState] = {}
        self._retries: list[tuple[int, int, PartitionFetchState]] = []
        self._retry_count = 0
        self._session_id = NO_SESSION
        self._session_epoch = FIRST_EPOCH
        # Partitions in the leader's session, those to send again, and those to remove from it.
        self._in_session: set[Key] = set()
        self._changed_by_key: dict[Key, PartitionFetchState] = {}
        self._to_forget: set[Key] = set()
        self._has_unrequested_changes = False

    def __len__(self) -> int:
        return len(self.state_by_key)

    @property
    def has_session(self) -> bool:
        return self._session_id != NO_SESSION

    # -- followed partitions -------------------------------------------------------------------------------------------

    def follow(self, partition: Partition) -> bool:
        """Adds a partition; returns True if the leader must learn of it before the next regular request."""
        key = (partition.topic_id, partition.index)
        state = self.state_by_key.get(key)
        if state is None or state.partition is not partition:
            state = self.state_by_key[key] = PartitionFetchState(partition)
        elif state.failures == 0 and state.was_requested_in_this_epoch():
            return False
        self.resume(state)
        return True

    def unfollow(self, key: Key) -> None:
        if self.state_by_key.pop(key, None) is not None:
            self._deactivate(key)

    def find(self, topic_id: bytes, index: int, round_number: int) -> PartitionFetchState | None:
        """Returns the followed partition for an entry of the response to that request, None if the response is
        outdated.
        """
        state = self._active_by_key.get((topic_id, index))
        return state if state is not None and state.is_answered_by(round_number) else None

    def _activate(self, state: PartitionFetchState) -> None:
        key = state.key
        self._active_by_key[key] = state
        self._changed_by_key[key] = state
        self._to_forget.discard(key)
        self._has_unrequested_changes = True

    def _deactivate(self, key: Key) -> None:
        self._active_by_key.pop(key, None)
        self._changed_by_key.pop(key, None)
        if key in self._in_session:
            self._to_forget.add(key)

    # -- requests ------------------------------------------------------------------------------------------------------

    def next_round(self, now_ms: int) -> Round | None:
        """Returns the next request; None if nothing may be requested before `due_ms`."""
        if self._retries:
            self._activate_due(now_ms)
        if not self._active_by_key:
            return None
        self._has_unrequested_changes = False
        self.rounds += 1
        if self._session_id == NO_SESSION:
            partitions = [self._next_request(state) for state in self._active_by_key.values()]
            self._in_session = set(self._active_by_key)
            self._changed_by_key.clear()
            self._to_forget.clear()
            return Round(NO_SESSION, FIRST_EPOCH, partitions, [])
        partitions = []
        if self._changed_by_key:
            partitions = [self._next_request(state) for state in self._changed_by_key.values()]
            self._in_session.update(self._changed_by_key)
            self._changed_by_key = {}
        forgotten_partitions: list[ForgottenPartition] = []
        if self._to_forget:
            forgotten_partitions = sorted(self._to_forget)
            self._in_session -= self._to_forget
            self._to_forget = set()
        epoch = self._session_epoch
        self._session_epoch = next_epoch(epoch)
        return Round(self._session_id, epoch, partitions, forgotten_partitions)

    def _next_request(self, state: PartitionFetchState) -> ReplicaPartitionRequest:
        may_be_throttled = state.partition.config.follower_throttled is not None
        return state.next_request(self._bytes_max(state) if may_be_throttled else PARTITION_BYTES_MAX, self.rounds)

    def has_unrequested_changes(self, now_ms: int) -> bool:
        """True if something must be requested that no request in flight names.

        A request that is sent for this reason names a partition: the leader assumes that a request without partitions
        was sent when no other was in flight.
        """
        if self._retries:
            self._activate_due(now_ms)
        return self._has_unrequested_changes and bool(self._changed_by_key or self._to_forget)

    @property
    def has_delayed(self) -> bool:
        return bool(self._retries)

    def due_ms(self) -> int | None:
        """Returns the next time at which a delayed partition may be requested, None if there is none."""
        retries = self._retries
        while retries and not self._is_delayed(retries[0]):
            heappop(retries)
        return retries[0][0] if retries else None

    def _is_delayed(self, entry: tuple[int, int, PartitionFetchState]) -> bool:
        retry_ms, _, state = entry
        return state.retry_ms == retry_ms and self.state_by_key.get(state.key) is state

    def _activate_due(self, now_ms: int) -> None:
        """Activates the delayed partitions whose time has come."""
        retries = self._retries
        while retries and retries[0][0] <= now_ms:
            entry = heappop(retries)
            if not self._is_delayed(entry):
                continue
            state = entry[2]
            delay_ms = self._throttle_delay_ms(state)
            if delay_ms > 0:
                self.delay(state, now_ms + delay_ms)
            else:
                state.retry_ms = 0
                self._activate(state)

    # -- responses -----------------------------------------------------------------------------------------------------

    def on_session_opened(self, session_id: int) -> None:
        """Records the session of the response to a full request, or NO_SESSION."""
        if session_id != self._session_id:
            self._session_id = session_id
            self._session_epoch = next_epoch(FIRST_EPOCH)

    def on_session_lost(self) -> None:
        """Forgets the session when the connection or the leader's session is lost: the next request is a full one."""
        self._session_id = NO_SESSION
        self._session_epoch = FIRST_EPOCH
        self._in_session.clear()
        self._to_forget.clear()

    def mark_advanced(self, state: PartitionFetchState) -> None:
        """Records that the log has advanced, which the next request reports; the partition moves to the end of full
        requests.
        """
        state.failures = 0
        state.error = ""
        key = state.key
        if self._session_id == NO_SESSION:
            self._active_by_key.pop(key, None)
            self._active_by_key[key] = state
        else:
            self._changed_by_key[key] = state
            self._has_unrequested_changes = True

    def report_now(self, state: PartitionFetchState) -> None:
        """Requires a report to the leader now, so that a pending request is overtaken."""
        if self._active_by_key.get(state.key) is state:
            self._activate(state)

    def resume(self, state: PartitionFetchState) -> None:
        """Activates a partition whose failure is resolved."""
        state.failures = state.retry_ms = 0
        state.error = ""
        self._activate(state)

    def mark_failed(self, state: PartitionFetchState, error: str, now_ms: int) -> None:
        """Delays a partition after a failure, for longer each time (REP-6)."""
        state.failures += 1
        state.error = error
        self.delay(state, now_ms + retry_delay_ms(state.failures))

    def delay(self, state: PartitionFetchState, until_ms: int) -> None:
        """Leaves a partition out of requests until `until_ms` (after a failure or for a throttle)."""
        self._deactivate(state.key)
        state.retry_ms = until_ms
        self._retry_count += 1
        heappush(self._retries, (until_ms, self._retry_count, state))
