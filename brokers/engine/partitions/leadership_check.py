"""Whether this broker still leads: asked of every follower in sync, because any of them may lead by now and commit
without us (decision 76).

A follower that became the leader, or heard of one, has stopped fetching from us before it did anything in the later
epoch. So once each of them has said, after the question was put, that it follows in our epoch, nothing was committed
elsewhere before the question. Questions are numbered; a session knows the newest one that its last request was
certainly sent after. Pure: who waits is called, and what answers followers sooner is a session's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from brokers.engine.partitions.delayed_operations import LeadershipCheck
from brokers.engine.partitions.follower_session import IDLE, FollowedPartition
from brokers.engine.partitions.leadership import Leadership
from brokers.engine.partitions.partition import Partition


class LeadershipChecks:
    """Of everything that is led here. `asked` is the number of the last question, from 1 on."""

    def __init__(self) -> None:
        self.asked = 0
        self._waiting: dict[Partition, deque[LeadershipCheck]] = {}

    @property
    def is_waiting(self) -> bool:
        return bool(self._waiting)

    def ask(self, partition: Partition, wake: Callable[[], object]) -> LeadershipCheck:
        """Has `wake` called when it is known that nobody else led `partition` when this was called, or when the
        leadership is lost; perhaps at once. Followers that wait here for records are answered, to ask again.
        """
        self.asked += 1
        question = LeadershipCheck(wake, self.asked)
        question.watch(partition)
        self._waiting.setdefault(partition, deque()).append(question)
        self._inspect(partition)
        return question

    def check(self) -> None:
        """Call it when a follower has said something, or when somebody else is in sync."""
        for partition in tuple(self._waiting):
            self._inspect(partition)

    def _inspect(self, partition: Partition) -> None:
        waiting = self._waiting[partition]
        leadership = partition.leadership
        sure = self.asked if leadership is None else _sure(partition, leadership, self.asked)
        while waiting and (waiting[0].done or waiting[0].number <= sure):
            question = waiting.popleft()
            if not question.done:
                question.confirm()
        if not waiting:
            del self._waiting[partition]
        elif leadership is not None:
            newest = waiting[-1].number
            leadership.asked = True
            for line in sorted(_lines(partition, leadership), key=_replica):
                if line.session.replica in leadership.in_sync:
                    if line.state == IDLE:
                        leadership.followers[line.session.replica].caught_up(line.session.fetched_ms)
                    line.owed = newest
                    line.session.owes(newest)


def leads_alone(partition: Partition) -> bool:
    """No other replica is in sync: nobody can be made leader without us."""
    leadership = partition.leadership
    return leadership is None or not any(replica in leadership.in_sync for replica in leadership.followers)


def unanswered(partition: Partition) -> frozenset[int]:
    """Followers that were asked and have not come since, or do not fetch in this epoch at all: whoever stays away for
    too long is not in sync, although it had everything when it came last. Else nobody could be told anything while
    nothing is written.
    """
    leadership = partition.leadership
    if leadership is None or not leadership.asked:
        return frozenset()
    lines = {line.session.replica: line for line in _lines(partition, leadership)}
    silent = {replica for replica, line in lines.items() if line.owed > line.session.heard}
    absent = (leadership.followers.keys() - lines.keys()).intersection(leadership.in_sync)
    return frozenset(silent | absent)


def _sure(partition: Partition, leadership: Leadership, sure: int) -> int:
    """The newest question that all in sync have answered, `sure` if there are none."""
    lines = list(_lines(partition, leadership))
    for replica in leadership.followers:
        if replica in leadership.in_sync:
            heard = max((line.session.heard for line in lines if line.session.replica == replica), default=0)
            sure = min(sure, heard)
    return sure


def _lines(partition: Partition, leadership: Leadership) -> Iterator[FollowedPartition]:
    """Of those who follow in the epoch in which this broker leads."""
    for line in leadership.fetches:
        if isinstance(line, FollowedPartition) and not line.code and line.wanted[1] == partition.leader_epoch:
            yield line


def _replica(line: FollowedPartition) -> int:
    return line.session.replica
