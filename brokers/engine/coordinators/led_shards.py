"""The shards of one state topic that a broker leads, over which the limits of an instance are counted.

A limit per shard would not hold: a tenant chooses its ids, and so the shards that they fall into.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

S = TypeVar("S")


class LedShards(Generic[S]):
    """The set of shards of a state topic that this broker leads, those that are loading included.

    `partitions` returns the number of partitions of the topic.
    """

    __slots__ = ("_partitions", "_shards")

    def __init__(self, partitions: Callable[[], int] = lambda: 1) -> None:
        self._partitions = partitions
        self._shards: dict[S, None] = {}

    def __len__(self) -> int:
        return len(self._shards)

    def __iter__(self) -> Iterator[S]:
        return iter(self._shards)

    def add(self, shard: S) -> None:
        self._shards[shard] = None

    def discard(self, shard: S) -> None:
        self._shards.pop(shard, None)

    def total(self, count: Callable[[S], int]) -> int:
        return sum(map(count, self._shards))

    def share_of(self, limit: int, floor: int = 1) -> int:
        """Returns the part of a cluster-wide `limit` that this broker may grant.

        It is proportional to the topic's partitions that the broker leads, and at least `floor`.
        """
        partitions = max(1, self._partitions())
        led = min(len(self._shards), partitions)
        return max(floor, -(-limit * led // partitions))
