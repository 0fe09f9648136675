"""Fetches that wait: for bytes, for an end of the wait, or for the deadline; then they are served once more (WIRE-27).

What waits here comes and goes with every request, so nothing of it refers to itself when it is over: the garbage
collector would stop the broker to find it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from time import perf_counter
from typing import Final

from brokers.contract.acls import AclOperation, ResourceType
from brokers.engine.handlers.context import View
from brokers.engine.handlers.fair_share import QueuedWork
from brokers.engine.handlers.session import Session
from brokers.engine.partitions.delayed_operations import DelayedCommittedRead, DelayedRead
from brokers.engine.partitions.follower_session import FollowerSession
from brokers.engine.partitions.partition import Partition
from brokers.engine.protocol.apis import ApiKey

# A request that names no more partitions than these is kept without a look at how many there are.
DELAYED_UNCOUNTED_MAX: Final = 1_000
# A longer turn of a fetch that is served once more counts as request time of its instance. A fetch of a few partitions
# takes a tenth of it.
UNPAID_TURN_S_MAX: Final = 0.001


def may_be_delayed(lines: int, view: View) -> bool:
    """Whether a fetch of so many partitions may wait. One that names more than there are names some again and again, or
    none of them; thousands of such requests, kept until their wait is over, would be all the memory there is.
    """
    if lines <= DELAYED_UNCOUNTED_MAX or view.instance_id is None:
        return True
    return lines <= sum(len(topic.partitions) for topic in view.namespace.topics.values())


def bytes_still_missing(asked: Iterable[tuple[Partition, int, int]], isolation: int, wanted_bytes: int) -> int:
    """How many bytes there have to be more until a fetch of `asked` need not wait, 0 if it need not (WIRE-27).

    `asked` is of the partitions whose answer has no error: each with the offset and the most bytes that are wanted of
    it. What is there counts, not what one answer holds, which ends with a segment and between two batches. Whoever
    reads an older segment than the one in which its records end does not wait at all.
    """
    for partition, offset, bytes_max in asked:
        limit = partition.limit(isolation)
        if offset >= limit:
            continue
        segments = partition.log.segments
        following = bisect_right(segments, offset, key=lambda segment: segment.base_offset)
        if following < len(segments) and segments[following].base_offset < limit:
            return 0
        wanted_bytes -= min(partition.log.bytes_between(offset, limit), bytes_max)
        if wanted_bytes <= 0:
            return 0
    return wanted_bytes


class DelayedFetch:
    """A client's fetch that waits until `missing_bytes` more are readable, one of the partitions is not led any more,
    or one of the topics may not be read any more.

    One event may wake thousands of them. Each is then served when the turn of its instance comes (`fair_turns`), and
    its instance pays for long turns.
    """

    __slots__ = ("_again", "_by_id", "_operation", "_session", "_tick", "_topics", "_turn")

    def __init__(
        self,
        session: Session,
        again: Callable[[], object],
        wait_ms: int,
        watched: Sequence[Partition],
        missing_bytes: int,
        is_committed: bool,
        topics: Sequence[bytes],
        by_id: bool,
    ) -> None:
        """`topics` by their names, or by their ids when `by_id`."""
        self._session = session
        self._again = again
        self._topics = topics
        self._by_id = by_id
        self._turn: QueuedWork | None = None
        operation = (
            DelayedCommittedRead(self._wake, missing_bytes) if is_committed else DelayedRead(self._wake, missing_bytes)
        )
        self._operation = operation
        for partition in watched:
            operation.watch(partition)
        self._tick = session.engine.deadlines.add(operation, wait_ms)
        session.cancel = self._cancel
        instance_id = session.principal.instance_id
        if instance_id is not None:
            session.engine.waiting_calls.add(instance_id, self)

    def check_right(self) -> None:
        if self._operation.done:
            return
        rights = self._session.rights()
        if rights.is_unrestricted:
            return
        namespace = self._session.view().namespace
        for key in self._topics:
            if self._by_id:
                topic = namespace.topic_by_id(key)
                if topic is None:
                    continue
                name = topic.user_name
            else:
                name = key.decode(errors="replace")
            if not rights.allows(AclOperation.READ, ResourceType.TOPIC, name):
                self._operation.end()
                return

    def _wake(self) -> None:
        """The wait is over. This runs inside the append that ended it: its client's answer goes first, and more bytes
        may follow in the same request.
        """
        session = self._session
        self._turn = session.channel.turns.in_turn(session.engine.loop.call_soon, self._serve)

    def _serve(self) -> None:
        self._turn = None
        self._leave()
        self._session.cancel = None
        serve_again(self._session, self._again)

    def _leave(self) -> None:
        session = self._session
        session.engine.deadlines.drop(self._operation, self._tick)
        self._operation.leave()
        instance_id = session.principal.instance_id
        if instance_id is not None:
            session.engine.waiting_calls.remove(instance_id, self)

    def _cancel(self) -> None:
        turn, self._turn = self._turn, None
        if turn is not None:
            turn.cancel()
        self._leave()
        self._operation.cancel()


def serve_again(session: Session, again: Callable[[], object]) -> None:
    """Runs a later part of a client's fetch, and has its instance pay for it if it takes long: a fetch that is woken
    has not been paid for in bytes by who wakes it.
    """
    engine, instance_id = session.engine, session.principal.instance_id
    began_s = perf_counter()
    try:
        session.in_turn(again)
    except Exception as error:  # one tenant's request must not take the others' broker down
        session.channel.fail(error)
    spent_s = perf_counter() - began_s
    engine.loop_turns.record(int(ApiKey.FETCH), instance_id, spent_s)
    if spent_s >= UNPAID_TURN_S_MAX and instance_id is not None and not session.principal.internal:
        engine.accountings.of(instance_id).request_time.charge(round(spent_s * 1e6), engine.clock.monotonic_ms())


class DelayedFollowerFetch:
    """A follower's, until an append, a leadership that ends, or the follower's next request, to which it gives way."""

    __slots__ = ("_again", "_fetches", "_give_way", "_session", "_tick")

    def __init__(
        self,
        session: Session,
        again: Callable[[], object],
        give_way: Callable[[], object],
        wait_ms: int,
        fetches: FollowerSession,
    ) -> None:
        self._session = session
        self._again = again
        self._give_way = give_way
        self._fetches = fetches
        self._tick = session.engine.deadlines.add(self, wait_ms)
        fetches.wait(self.expire)
        session.hurry = self._hurry
        session.cancel = self._leave

    def expire(self) -> None:
        """The wait is over."""
        self._end(self._again)

    def _hurry(self) -> None:
        self._end(self._give_way)

    def _end(self, answer: Callable[[], object]) -> None:
        session = self._session
        self._leave()
        # Not inside the append that woke us: its client's answer goes first, and more may follow in the same request.
        session.cancel = session.engine.loop.call_soon(self._serve, answer).cancel

    def _leave(self) -> None:
        session = self._session
        session.engine.deadlines.drop(self, self._tick)
        session.hurry = None
        self._fetches.leave_alone()

    def _serve(self, answer: Callable[[], object]) -> None:
        self._session.cancel = None
        answer()
