"""Check that this broker still leads a partition: every in-sync follower must confirm it, because any of them may have
become the leader and commit records alone (decision 76).

A follower that became the leader, or learned of one, stops fetching from this broker before it acts in the later epoch.
So once each of them has fetched in the current epoch after the check began, nothing was committed elsewhere before the
check. Checks are numbered; a session records the latest check after which its last request was certainly sent. Pure:
waiting callers are called back, and sessions decide which requests to answer sooner.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from brokers.engine.partitions.delayed_operations import LeadershipCheck
from brokers.engine.partitions.follower_session import IDLE, FollowedPartition
from brokers.engine.partitions.leadership import Leadership
from brokers.engine.partitions.partition import Partition


class LeadershipChecks:
    """Leadership checks of all partitions led here; `last_number` is that of the latest check, 0 before the first."""

    def __init__(self) -> None:
        self.last_number = 0
        self._waiting: dict[Partition, deque[LeadershipCheck]] = {}

    @property
    def is_waiting(self) -> bool:
        return bool(self._waiting)

    def start(self, partition: Partition, wake: Callable[[], object]) -> LeadershipCheck:
        """Starts a check and returns it. Calls `wake` when it is certain that no other broker led `partition` at the
        time of this call, or when the leadership is lost.

        `wake` may be called at once. Waiting fetches of followers are answered, so that they fetch again.
        """
        self.last_number += 1
        check = LeadershipCheck(wake, self.last_number)
        check.watch(partition)
        self._waiting.setdefault(partition, deque()).append(check)
        self._evaluate(partition)
        return check

    def evaluate(self) -> None:
        """Evaluates all pending checks; called after a request of a follower and after a change of the ISR."""
        for partition in tuple(self._waiting):
            self._evaluate(partition)

    def _evaluate(self, partition: Partition) -> None:
        waiting = self._waiting[partition]
        leadership = partition.leadership
        confirmed_up_to = self.last_number
        if leadership is not None:
            confirmed_up_to = _latest_confirmed(partition, leadership, self.last_number)
        while waiting and (waiting[0].done or waiting[0].number <= confirmed_up_to):
            check = waiting.popleft()
            if not check.done:
                check.confirm()
        if not waiting:
            del self._waiting[partition]
        elif leadership is not None:
            newest = waiting[-1].number
            leadership.was_checked = True
            for followed in sorted(_followed_in_epoch(partition, leadership), key=_replica_of):
                if followed.session.replica in leadership.in_sync:
                    if followed.state == IDLE:
                        leadership.followers[followed.session.replica].record_caught_up(followed.session.fetched_ms)
                    followed.pending_check = newest
                    followed.session.require_check(newest)


def is_sole_in_sync_replica(partition: Partition) -> bool:
    """True if no other replica is in sync, so that no other can become the leader."""
    leadership = partition.leadership
    return leadership is None or not any(replica in leadership.in_sync for replica in leadership.followers)


def unconfirmed_followers(partition: Partition) -> frozenset[int]:
    """Returns the followers that have not answered a check, and the in-sync followers that do not fetch in this epoch.

    A follower that does not answer for too long is removed from the ISR, even if its last request had all records;
    otherwise no check could end while nothing is written. The result keeps a follower that has left the ISR since,
    because a follower with an unanswered check must not join again.
    """
    leadership = partition.leadership
    if leadership is None or not leadership.was_checked:
        return frozenset()
    followed_by_replica = {followed.session.replica: followed for followed in _followed_in_epoch(partition, leadership)}
    unconfirmed = {
        replica
        for replica, followed in followed_by_replica.items()
        if followed.pending_check > followed.session.confirmed_check
    }
    absent = (leadership.followers.keys() - followed_by_replica.keys()).intersection(leadership.in_sync)
    return frozenset(unconfirmed | absent)


def _latest_confirmed(partition: Partition, leadership: Leadership, last_number: int) -> int:
    """Returns the latest check that all in-sync followers have answered, `last_number` if there are none."""
    confirmed_up_to = last_number
    followed_partitions = list(_followed_in_epoch(partition, leadership))
    for replica in leadership.followers:
        if replica in leadership.in_sync:
            confirmed = max(
                (
                    followed.session.confirmed_check
                    for followed in followed_partitions
                    if followed.session.replica == replica
                ),
                default=0,
            )
            confirmed_up_to = min(confirmed_up_to, confirmed)
    return confirmed_up_to


def _followed_in_epoch(partition: Partition, leadership: Leadership) -> Iterator[FollowedPartition]:
    """Yields the session entries of followers in the current leader epoch."""
    for followed in leadership.fetches:
        if (
            isinstance(followed, FollowedPartition)
            and not followed.code
            and followed.request[1] == partition.leader_epoch
        ):
            yield followed


def _replica_of(followed: FollowedPartition) -> int:
    return followed.session.replica
