"""Sends followers the high watermark of partitions that clients read from them, as soon as it moves (KIP-392).

Otherwise a follower learns of it with the next records, or when its waiting fetch ends (`replica.fetch.wait.max.ms`),
and so would its readers. Pure: callers pass the time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from brokers.engine.partitions.delayed_operations import DelayedOperation, WatchedPartition
from brokers.engine.partitions.follower_session import FollowerSession
from brokers.engine.partitions.partition import Partition

# Duration of a push in ms after the last client was directed to the follower. Clients return to the leader after 5
# minutes by default.
PUSH_DURATION_MS: Final = 10 * 60_000


class _Push(DelayedOperation):
    """Push of one partition's high watermark to one follower; it ends with the leadership."""

    __slots__ = ("_followers", "_replica", "until_ms")

    def __init__(self, on_end: Callable[[], object], followers: Mapping[int, FollowerSession], replica: int) -> None:
        super().__init__(on_end)
        self._followers = followers
        self._replica = replica
        self.until_ms = 0

    def watch(self, partition: WatchedPartition) -> None:
        self._register(partition)

    def on_progress(self, partition: WatchedPartition) -> None:
        session = self._followers.get(self._replica)
        if session is None:
            return
        if session.fetched_ms > self.until_ms:
            self.end()
        else:
            session.send_watermarks()


class HighWatermarkPushes:
    """Pushes of all partitions led here. `followers` are the sessions by broker id."""

    def __init__(self, followers: Mapping[int, FollowerSession]) -> None:
        self._followers = followers
        self._pushes: dict[tuple[Partition, int], _Push] = {}

    def __len__(self) -> int:
        return len(self._pushes)

    def begin_or_extend(self, partition: Partition, replica: int, now_ms: int) -> None:
        """Begins or prolongs a push. Called whenever a client is directed to the follower."""
        key = partition, replica
        push = self._pushes.get(key)
        if push is None:
            push = self._pushes[key] = _Push(partial(self._pushes.pop, key, None), self._followers, replica)
            push.watch(partition)
        push.until_ms = now_ms + PUSH_DURATION_MS
