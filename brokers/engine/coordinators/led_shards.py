"""All shards of one state topic that a broker leads: the limits of an instance count over them together, for whoever
chooses its ids can have them in any shard, or in all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

S = TypeVar("S")


class LedShards(Generic[S]):
    """`partitions` answers how many the state topic has. A shard is in from its making to its end, also while it
    loads.
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
        """What of a cluster's `limit` this broker may grant: as large a share as its share of the topic's partitions,
        and `floor` at least.
        """
        partitions = max(1, self._partitions())
        led = min(len(self._shards), partitions)
        return max(floor, -(-limit * led // partitions))
