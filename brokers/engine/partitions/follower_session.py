"""What one follower broker asks of this leader, kept from request to request (WIRE-30): a round costs by what moved,
not by how many partitions are followed.

A line stands in a partition's leadership from one request to the next. An append makes it ready to be read; what was
sent is not sent again before the follower says how far it came. Pure: whoever waits is called, nothing is read here.
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
READY: Final = 1  # there is something to tell it
SENT: Final = 2  # it was told, and has not come back

NOT_REPORTED: Final = -1
UNDEFINED: Final = (-1, -1)

# Partition, current leader epoch, offset, last fetched epoch, log start offset, bytes at most.
Wanted = tuple[int, int, int, int, int, int]
Key = tuple[bytes, int]


class FollowedPartition(DelayedOperation):
    """One partition of a session, where the follower stands by its last word. `code` is why it cannot be served,
    `owed` the newest question about it that was put to the follower. `owner` is its instance, "" of what is nobody's.
    """

    __slots__ = (
        "code",
        "diverging",
        "key",
        "owed",
        "owner",
        "partition",
        "sent_high_watermark",
        "sent_start_offset",
        "session",
        "state",
        "wanted",
    )

    def __init__(self, session: FollowerSession, key: Key, wanted: Wanted) -> None:
        super().__init__(session.nobody)
        self.session = session
        self.key = key
        self.wanted = wanted
        self.owner = ""
        self.partition: Partition | None = None
        self.state = IDLE
        self.owed = 0
        self.code = 0
        self.diverging: tuple[int, int] | None = None
        self.sent_high_watermark = NOT_REPORTED
        self.sent_start_offset = NOT_REPORTED

    def on_append(self, readable_bytes: int) -> None:
        if self.state == IDLE:
            partition = self.partition
            leadership = None if partition is None else partition.leadership
            if leadership is not None:
                # Every request of the session asked for what has come only now (REP-21).
                follower = leadership.followers.get(self.session.replica)
                if follower is not None:
                    follower.caught_up(self.session.fetched_ms)
            self.session.ready(self)

    def on_progress(self, partition: WatchedPartition) -> None:
        self.session.moved(self)

    def on_start(self, partition: WatchedPartition) -> None:
        self.session.moved(self)
        self.session.hasten()

    def on_lost(self, partition: WatchedPartition) -> None:
        """The next request, or the one that waits, is told why."""
        if self.state != READY:
            self.session.ready(self)


class FollowerSession:
    """Of one follower's connection. `fetched_ms` is when it asked last. Of the questions that `confirming` numbers,
    `heard` is the newest that its last request was certainly sent after, `owed` the newest that waits for it.
    """

    __slots__ = (
        "_asked_before",
        "_asked_last",
        "_moved",
        "_ready",
        "_wake",
        "epoch",
        "fetched_ms",
        "heard",
        "id",
        "lines",
        "owed",
        "replica",
        "replica_epoch",
    )

    def __init__(self, session_id: int, replica: int, replica_epoch: int) -> None:
        self.id = session_id
        self.epoch = 0
        self.replica = replica
        self.replica_epoch = replica_epoch
        self.fetched_ms = 0
        self.lines: dict[Key, FollowedPartition] = {}
        # By owner, in the order in which their turns come: one with many partitions does not hold up the others'.
        self._ready: OrderedDict[str, deque[FollowedPartition]] = OrderedDict()
        self._moved: dict[FollowedPartition, None] = {}
        self._wake: Callable[[], object] | None = None
        self.heard = 0
        self.owed = 0
        # The newest question when its last request was answered, and when the one before was.
        self._asked_last = 0
        self._asked_before = 0

    def nobody(self) -> None:
        """Lines wake nobody by themselves."""

    # -- what the follower says ---------------------------------------------------------------------------------------

    def came(self, is_empty: bool) -> None:
        """A request. One that names something may have overtaken one that waited here, and so have been sent before the
        last answer arrived; but never before the one before that, as two at most are under way (`replication.fetcher`).
        """
        self.heard = self._asked_last if is_empty else self._asked_before

    def answered(self, question: int) -> None:
        """Its request is, after so many questions were put."""
        self._asked_before = self._asked_last
        self._asked_last = question

    def asks(self, key: Key, wanted: Wanted, found: Partition | int, now_ms: int) -> bool:
        """The follower stands here; `found` is the partition, or the error of asking for it. Whether it may join the
        ISR by now.
        """
        line = self.lines.get(key)
        if line is None:
            line = self.lines[key] = FollowedPartition(self, key, wanted)
        elif line.wanted[1] != wanted[1]:
            # It follows in another leader epoch, and may have passed over what it was told in the one before.
            line.sent_high_watermark = line.sent_start_offset = NOT_REPORTED
        line.wanted = wanted
        if isinstance(found, int):
            self._leave(line)
            self._refuse(line, found)
            return False
        if line.partition is not found:
            self._leave(line)
            line.partition = found
            line.owner = split_internal(found.topic)[0] or ""
        code = self._refusal(found, wanted)
        if not code:
            line.diverging = _divergence(found, wanted)
            if line.diverging == UNDEFINED or (
                line.diverging is None and not found.log_start_offset <= wanted[2] <= found.log_end_offset
            ):
                code = error_codes.OFFSET_OUT_OF_RANGE
        if code:
            # Not held on to: it may be deleted here and made again before the follower asks the next time (REP-32).
            self._leave(line)
            self._refuse(line, code)
            return False
        line.code = 0
        leadership = found.leadership
        if leadership is not None:
            leadership.fetches.add(line)
        if line.diverging is not None:
            self.ready(line)
            return False
        may_join = found.follower_fetched(self.replica, self.replica_epoch, wanted[2], wanted[4], now_ms)
        if wanted[2] < found.log_end_offset:
            self.ready(line)
        elif line.state != READY:
            line.state = IDLE
            self.moved(line)
        return may_join

    def _refusal(self, partition: Partition, wanted: Wanted) -> int:
        leader_epoch = wanted[1]
        code = partition.refusal(leader_epoch)
        if code:
            return code
        leadership = partition.leadership
        if leadership is None or self.replica not in leadership.followers:
            # REP-10: by its own image it is a replica, so one of the two images is old.
            return error_codes.NOT_LEADER_OR_FOLLOWER if leader_epoch == NO_EPOCH else error_codes.UNKNOWN_LEADER_EPOCH
        if leadership.followers[self.replica].broker_epoch > self.replica_epoch:
            return error_codes.NOT_LEADER_OR_FOLLOWER  # a word from an earlier incarnation
        return 0

    def _refuse(self, line: FollowedPartition, code: int) -> None:
        line.code = code
        line.diverging = None
        self.ready(line)

    def forgets(self, key: Key) -> None:
        """The follower takes a partition out."""
        line = self.lines.pop(key, None)
        if line is not None:
            self._leave(line)
            line.state = SENT  # whatever queue it is in passes it over

    def _leave(self, line: FollowedPartition) -> None:
        partition = line.partition
        if partition is not None and partition.leadership is not None:
            partition.leadership.fetches.discard(line)
        line.partition = None

    def close(self) -> None:
        """The follower is gone, or begins another session."""
        self._wake = None
        for key in list(self.lines):
            self.forgets(key)

    # -- what there is to say -----------------------------------------------------------------------------------------

    def ready(self, line: FollowedPartition) -> None:
        if line.state != READY:
            line.state = READY
            queue = self._ready.get(line.owner)
            if queue is None:
                self._ready[line.owner] = deque((line,))
            else:
                queue.append(line)
        self.hasten()

    def hasten(self) -> None:
        """Has the request that waits answered."""
        wake = self._wake
        if wake is not None:
            self._wake = None
            wake()

    def moved(self, line: FollowedPartition) -> None:
        """Its high watermark or its log's start is another: told with the next answer, which nobody hastens for it."""
        self._moved[line] = None

    def wait(self, wake: Callable[[], object]) -> None:
        """Calls `wake` once, when a line is ready; not at all after `leave_alone`."""
        self._wake = wake

    def leave_alone(self) -> None:
        self._wake = None

    def owes(self, question: int) -> None:
        """The follower is to ask again: the request that waits is answered, and the next ones until this is heard."""
        if question > self.owed and question > self.heard:
            self.owed = question
            self.hasten()

    @property
    def is_owed(self) -> bool:
        return self.owed > self.heard

    @property
    def has_ready(self) -> bool:
        return bool(self._ready)

    def next_ready(self) -> FollowedPartition | None:
        """Takes out the one that is ready longest of the owner whose turn it is; it counts as told."""
        ready = self._ready
        while ready:
            owner, queue = ready.popitem(last=False)
            line = queue.popleft()
            if queue:
                ready[owner] = queue  # behind all others
            if line.state == READY and self.knows(line):
                line.state = SENT
                return line
        return None

    def put_back(self, lines: list[FollowedPartition]) -> None:
        """These were not told after all, and come first."""
        for line in reversed(lines):
            line.state = READY
            queue = self._ready.get(line.owner)
            if queue is None:
                queue = self._ready[line.owner] = deque()
            queue.appendleft(line)
            self._ready.move_to_end(line.owner, last=False)

    def news(self) -> list[FollowedPartition]:
        """Takes out the lines whose high watermark or log start is another than the follower was told."""
        result: list[FollowedPartition] = []
        for line in self._moved:
            partition = line.partition
            if partition is None or line.code or partition.leadership is None or not self.knows(line):
                continue
            high_watermark, start_offset = partition.high_watermark, partition.log_start_offset
            if line.sent_high_watermark != high_watermark or line.sent_start_offset != start_offset:
                result.append(line)
        self._moved = {}
        return result

    def nothing_for(self, line: FollowedPartition) -> None:
        """It was taken out, and there is nothing to tell."""
        line.state = IDLE

    def knows(self, line: FollowedPartition) -> bool:
        return self.lines.get(line.key) is line


def _divergence(partition: Partition, wanted: Wanted) -> tuple[int, int] | None:
    """(epoch, end offset) where the follower's log leaves this one, None where it does not (REP-15)."""
    offset, last_fetched_epoch = wanted[2], wanted[3]
    if last_fetched_epoch < 0:
        return None
    epoch, end_offset = partition.log.epochs.end_offset(last_fetched_epoch, partition.log.log_end_offset)
    if epoch < last_fetched_epoch or end_offset < offset:
        return epoch, end_offset
    return None
