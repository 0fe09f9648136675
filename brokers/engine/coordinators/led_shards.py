"""The shards of one state topic that a broker leads, and the amounts of groups, members or bytes that instances use.

Limits are counted over all shards of the broker, because a tenant chooses its group ids and thereby their shards; and
over all instances of a tenant, because a tenant may have many.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Final, Generic, TypeVar

from brokers.contract.coordinator_limits import TENANT_INSTANCES_MAX

S = TypeVar("S")

# Amounts used of each kind that a registry counts, such as groups, members and bytes.
Usage = tuple[int, ...]
NO_USAGE: Final[Usage] = ()
# Returns the instances of an instance's tenant, the instance itself included.
Siblings = Callable[[str], Collection[str]]


def no_siblings(instance_id: str) -> Collection[str]:
    """Returns the instance alone, as if its tenant had no other."""
    return (instance_id,)


def _sum(usage: Usage, more: Usage) -> Usage:
    """Returns the sum of each amount, or NO_USAGE if all sums are 0."""
    total = tuple(map(sum, zip(usage, more, strict=True))) if usage else more
    return total if any(total) else NO_USAGE


class LedShards(Generic[S]):
    """The set of shards of a state topic that this broker leads, those that are loading included.

    `partitions` returns the number of partitions of the topic, `siblings` the instances of an instance's tenant.
    """

    __slots__ = ("_partitions", "_shards", "_siblings", "_usage_by_instance")

    def __init__(
        self,
        partitions: Callable[[], int] = lambda: 1,
        siblings: Siblings = no_siblings,
    ) -> None:
        self._partitions = partitions
        self._siblings = siblings
        # Usage by shard and instance, and its sums by instance. The instance of the cluster's own ids is None.
        self._shards: dict[S, dict[str | None, Usage]] = {}
        self._usage_by_instance: dict[str | None, Usage] = {}

    def __len__(self) -> int:
        return len(self._shards)

    def __iter__(self) -> Iterator[S]:
        return iter(self._shards)

    def add(self, shard: S) -> None:
        self._shards[shard] = {}

    def discard(self, shard: S) -> None:
        """Removes a shard and the usage in it."""
        for instance_id, usage in self._shards.pop(shard, {}).items():
            _add_usage(self._usage_by_instance, instance_id, tuple(-amount for amount in usage))

    def charge(self, shard: S, instance_id: str | None, *amounts: int) -> None:
        """Adds amounts, which may be negative, to the usage of an instance. Ignores a shard that is not led."""
        shard_usage = self._shards.get(shard)
        if shard_usage is not None:
            _add_usage(shard_usage, instance_id, amounts)
            _add_usage(self._usage_by_instance, instance_id, amounts)

    def used(self, instance_id: str | None, kind: int) -> int:
        """Returns the amount of a kind that an instance uses in all shards."""
        usage = self._usage_by_instance.get(instance_id)
        return 0 if usage is None else usage[kind]

    def remaining(self, instance_id: str, kind: int, limit: int, floor: int = 1, times: int = 1) -> int:
        """Returns the amount of a kind that an instance may still use here, negative if it uses too much already.

        The amount is what remains of this broker's part of the cluster-wide `limit`, or of the part for all instances
        of the tenant if that is less. Both parts are multiplied by `times`.
        """
        remaining = times * self.local_limit(limit, floor) - self.used(instance_id, kind)
        siblings = self._siblings(instance_id)
        if len(siblings) > 1:
            used = sum(self.used(sibling, kind) for sibling in siblings)
            remaining = min(remaining, times * self.local_limit(TENANT_INSTANCES_MAX * limit, floor) - used)
        return remaining

    def local_limit(self, limit: int, floor: int = 1) -> int:
        """Returns the part of a cluster-wide `limit` that this broker may grant.

        It is proportional to the topic's partitions that the broker leads, and at least `floor`.
        """
        partitions = max(1, self._partitions())
        led = min(len(self._shards), partitions)
        return max(floor, -(-limit * led // partitions))


def _add_usage(usage_by_instance: dict[str | None, Usage], instance_id: str | None, more: Usage) -> None:
    total = _sum(usage_by_instance.get(instance_id, NO_USAGE), more)
    if total:
        usage_by_instance[instance_id] = total
    else:
        usage_by_instance.pop(instance_id, None)
