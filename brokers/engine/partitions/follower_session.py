"""Fetch session of one follower broker with this leader, kept between requests (WIRE-30).

The cost of a request depends on the partitions that changed, not on the number of partitions followed. Each followed
partition is registered in the leadership of its partition from one request to the next. An append makes it ready;
records that were sent are not sent again before the follower reports its new offset. Pure: a waiting request is
completed by a callback, and no log is read here.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final

from brokers.engine.partitions.delayed_operations import DelayedOperation, WatchedPartition
from brokers.engine.partitions.partition import NO_EPOCH, Partition
from brokers.engine.records import error_codes
from instances.naming import split_internal

IDLE: Final = 0  # the follower has everything
READY: Final = 1  # there is data or an error to send
SENT: Final = 2  # sent, and not requested again yet

# High watermark or log start that was not sent in this leader epoch.
NOT_REPORTED: Final = -1
# Epoch and end offset if the log knows no epoch up to the follower's.
UNDEFINED_EPOCH: Final = (-1, -1)

# (partition index, current leader epoch, offset, last fetched epoch, log start offset, maximum bytes).
PartitionRequest = tuple[int, int, int, int, int, int]
Key = tuple[bytes, int]


class FollowedPartition(DelayedOperation):
    """One partition of a session, with the follower's last reported position.

    `code` is the error code if it cannot be served, else 0. `pending_check` is the latest leadership check of the
    partition that the follower must answer. `owner` is the instance, "" for a topic without one.
    """

    __slots__ = (
        "code",
        "diverging",
        "key",
        "owner",
        "partition",
        "pending_check",
        "request",
        "sent_high_watermark",
        "sent_start_offset",
        "session",
        "state",
    )

    def __init__(self, session: FollowerSession, key: Key, request: PartitionRequest) -> None:
        super().__init__(session.do_nothing)
        self.session = session
        self.key = key
        self.request = request
        self.owner = ""
        self.partition: Partition | None = None
        self.state = IDLE
        self.pending_check = 0
        self.code = 0
        self.diverging: tuple[int, int] | None = None
        self.sent_high_watermark = NOT_REPORTED
        self.sent_start_offset = NOT_REPORTED

    def on_append(self, readable_bytes: int) -> None:
        if self.state == IDLE:
            partition = self.partition
            leadership = None if partition is None else partition.leadership
            if leadership is not None:
                # All records up to here were fetched, so the follower was caught up at its last request (REP-21).
                follower = leadership.followers.get(self.session.replica)
                if follower is not None:
                    follower.record_caught_up(self.session.fetched_ms)
            self.session.mark_ready(self)

    def on_progress(self, partition: WatchedPartition) -> None:
        self.session.mark_changed(self)

    def on_log_start_advanced(self, partition: WatchedPartition) -> None:
        self.session.mark_changed(self)
        self.session.complete_pending_fetch()

    def on_leadership_lost(self, partition: WatchedPartition) -> None:
        """Makes the partition ready: the next request, or the waiting one, returns the error."""
        if self.state != READY:
            self.session.mark_ready(self)


class FollowerSession:
    """Fetch session of one follower's connection; `fetched_ms` is the time of its last request.

    Leadership checks are numbered (`leadership_check`): `confirmed_check` is the latest check after which the last
    request was certainly sent, and `pending_check` the latest check that requires another request.
    """

    __slots__ = (
        "_changed",
        "_check_at_last_response",
        "_check_before_last_response",
        "_ready_by_owner",
        "_wake",
        "confirmed_check",
        "epoch",
        "fetched_ms",
        "has_urgent_watermark",
        "id",
        "partitions",
        "pending_check",
        "replica",
        "replica_epoch",
    )

    def __init__(self, session_id: int, replica: int, replica_epoch: int) -> None:
        self.id = session_id
        self.epoch = 0
        self.replica = replica
        self.replica_epoch = replica_epoch
        self.fetched_ms = 0
        self.partitions: dict[Key, FollowedPartition] = {}
        # Ready partitions by owner, in the order of their turns: an owner with many partitions does not delay the
        # others.
        self._ready_by_owner: OrderedDict[str, deque[FollowedPartition]] = OrderedDict()
        self._changed: dict[FollowedPartition, None] = {}
        self._wake: Callable[[], object] | None = None
        # True if a changed high watermark must not wait for records (`high_watermark_push`).
        self.has_urgent_watermark = False
        self.confirmed_check = 0
        self.pending_check = 0
        # Latest check when the last request was answered, and when the request before it was answered.
        self._check_at_last_response = 0
        self._check_before_last_response = 0

    def do_nothing(self) -> None:
        """Does nothing: followed partitions do not wake a request by themselves."""

    # -- requests of the follower -------------------------------------------------------------------------------------

    def on_request(self, is_empty: bool) -> None:
        """Records a request and updates `confirmed_check`.

        A request that names partitions may have been sent while an earlier request waited here, so before the last
        response arrived. It was sent after the response before that one, as at most two requests are in flight
        (`replication.fetcher`).
        """
        self.confirmed_check = self._check_at_last_response if is_empty else self._check_before_last_response

    def on_response(self, check: int) -> None:
        """Records that a request was answered when `check` was the latest leadership check."""
        self._check_before_last_response = self._check_at_last_response
        self._check_at_last_response = check

    def update_position(
        self, key: Key, request: PartitionRequest, partition_or_error: Partition | int, now_ms: int
    ) -> bool:
        """Records the follower's position; `partition_or_error` is the partition, or the error code of its lookup.

        Returns True if the follower may join the ISR.
        """
        followed = self.partitions.get(key)
        if followed is None:
            followed = self.partitions[key] = FollowedPartition(self, key, request)
        elif followed.request[1] != request[1]:
            # The follower uses another leader epoch and may have ignored what it was sent in the previous one.
            followed.sent_high_watermark = followed.sent_start_offset = NOT_REPORTED
        followed.request = request
        if isinstance(partition_or_error, int):
            self._unregister(followed)
            self._refuse(followed, partition_or_error)
            return False
        if followed.partition is not partition_or_error:
            self._unregister(followed)
            followed.partition = partition_or_error
            followed.owner = split_internal(partition_or_error.topic)[0] or ""
        code = self._refusal_code(partition_or_error, request)
        if not code:
            followed.diverging = _diverging_epoch(partition_or_error, request)
            if followed.diverging == UNDEFINED_EPOCH or (
                followed.diverging is None
                and not partition_or_error.log_start_offset <= request[2] <= partition_or_error.log_end_offset
            ):
                code = error_codes.OFFSET_OUT_OF_RANGE
        if code:
            # The partition is not referenced: it may be deleted and recreated here before the follower's next request
            # (REP-32).
            self._unregister(followed)
            self._refuse(followed, code)
            return False
        followed.code = 0
        leadership = partition_or_error.leadership
        if leadership is not None:
            leadership.fetches.add(followed)
        if followed.diverging is not None:
            self.mark_ready(followed)
            return False
        may_join = partition_or_error.update_follower_fetch_state(
            self.replica, self.replica_epoch, request[2], request[4], now_ms
        )
        if request[2] < partition_or_error.log_end_offset:
            self.mark_ready(followed)
        elif followed.state != READY:
            followed.state = IDLE
            self.mark_changed(followed)
        return may_join

    def _refusal_code(self, partition: Partition, request: PartitionRequest) -> int:
        leader_epoch = request[1]
        code = partition.refusal(leader_epoch)
        if code:
            return code
        leadership = partition.leadership
        if leadership is None or self.replica not in leadership.followers:
            # REP-10: the follower is a replica in its own image, so either that image or the local one is outdated.
            return error_codes.NOT_LEADER_OR_FOLLOWER if leader_epoch == NO_EPOCH else error_codes.UNKNOWN_LEADER_EPOCH
        if leadership.followers[self.replica].broker_epoch > self.replica_epoch:
            return error_codes.NOT_LEADER_OR_FOLLOWER  # a request of an earlier incarnation
        return 0

    def _refuse(self, followed: FollowedPartition, code: int) -> None:
        followed.code = code
        followed.diverging = None
        self.mark_ready(followed)

    def remove(self, key: Key) -> None:
        """Removes a partition from the session."""
        followed = self.partitions.pop(key, None)
        if followed is not None:
            self._unregister(followed)
            followed.state = SENT  # every queue that contains it skips it

    def _unregister(self, followed: FollowedPartition) -> None:
        partition = followed.partition
        if partition is not None and partition.leadership is not None:
            partition.leadership.fetches.discard(followed)
        followed.partition = None

    def close(self) -> None:
        """Ends the session when the follower is gone or begins another one."""
        self._wake = None
        for key in list(self.partitions):
            self.remove(key)

    # -- responses to the follower ------------------------------------------------------------------------------------

    def mark_ready(self, followed: FollowedPartition) -> None:
        """Queues a partition to be sent, and completes the waiting request."""
        if followed.state != READY:
            followed.state = READY
            queue = self._ready_by_owner.get(followed.owner)
            if queue is None:
                self._ready_by_owner[followed.owner] = deque((followed,))
            else:
                queue.append(followed)
        self.complete_pending_fetch()

    def complete_pending_fetch(self) -> None:
        """Completes the request that waits."""
        wake = self._wake
        if wake is not None:
            self._wake = None
            wake()

    def mark_changed(self, followed: FollowedPartition) -> None:
        """Marks the high watermark or log start of a partition as changed. The next response reports it, but is not
        sent earlier because of it.
        """
        self._changed[followed] = None

    def send_watermarks(self) -> None:
        """Sends changed high watermarks at once: in the response to the waiting request, or to the next one."""
        self.has_urgent_watermark = True
        self.complete_pending_fetch()

    def wait(self, wake: Callable[[], object]) -> None:
        """Calls `wake` once when a partition is ready; `stop_waiting` cancels it."""
        self._wake = wake

    def stop_waiting(self) -> None:
        self._wake = None

    def require_check(self, check: int) -> None:
        """Requires another request from the follower: waiting and later requests are answered at once until one
        was sent after `check`.
        """
        if check > self.pending_check and check > self.confirmed_check:
            self.pending_check = check
            self.complete_pending_fetch()

    @property
    def has_pending_check(self) -> bool:
        return self.pending_check > self.confirmed_check

    @property
    def has_ready(self) -> bool:
        return bool(self._ready_by_owner)

    def pop_ready(self) -> FollowedPartition | None:
        """Removes and returns the longest ready partition of the next owner, marked as sent; None if none is ready."""
        ready_by_owner = self._ready_by_owner
        while ready_by_owner:
            owner, queue = ready_by_owner.popitem(last=False)
            followed = queue.popleft()
            if queue:
                ready_by_owner[owner] = queue  # behind all others
            if followed.state == READY and self.contains(followed):
                followed.state = SENT
                return followed
        return None

    def requeue(self, unsent: list[FollowedPartition]) -> None:
        """Returns partitions to the front of the queue because they were not sent."""
        for followed in reversed(unsent):
            followed.state = READY
            queue = self._ready_by_owner.get(followed.owner)
            if queue is None:
                queue = self._ready_by_owner[followed.owner] = deque()
            queue.appendleft(followed)
            self._ready_by_owner.move_to_end(followed.owner, last=False)

    def pop_changed(self) -> list[FollowedPartition]:
        """Returns the marked partitions whose high watermark or log start differs from the last value sent, and clears
        the marks.
        """
        result: list[FollowedPartition] = []
        for followed in self._changed:
            partition = followed.partition
            if partition is None or followed.code or partition.leadership is None or not self.contains(followed):
                continue
            high_watermark, start_offset = partition.high_watermark, partition.log_start_offset
            if followed.sent_high_watermark != high_watermark or followed.sent_start_offset != start_offset:
                result.append(followed)
        self._changed = {}
        self.has_urgent_watermark = False
        return result

    def mark_idle(self, followed: FollowedPartition) -> None:
        """Marks a partition from `pop_ready` as idle because there is nothing to send."""
        followed.state = IDLE

    def contains(self, followed: FollowedPartition) -> bool:
        return self.partitions.get(followed.key) is followed


def _diverging_epoch(partition: Partition, request: PartitionRequest) -> tuple[int, int] | None:
    """Returns (epoch, end offset) where the follower's log diverges from this one, or None (REP-15)."""
    offset, last_fetched_epoch = request[2], request[3]
    if last_fetched_epoch < 0:
        return None
    epoch, end_offset = partition.log.epochs.end_offset(last_fetched_epoch, partition.log.log_end_offset)
    if epoch < last_fetched_epoch or end_offset < offset:
        return epoch, end_offset
    return None
