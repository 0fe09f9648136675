"""Offsets of one group: the committed ones, and the pending ones of open transactions (GRP-22, TXN-9).

They change only when records and markers are replayed. Of two commits for a partition the one with the higher log
offset wins, in whatever order their transactions end; that is also the one that compaction keeps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from brokers.contract.partitions import PartitionKey
from brokers.engine.coordinators.groups.formats import NO_TIMESTAMP

# Memory that an entry takes without its metadata.
ENTRY_BYTES: Final = 256


class CommittedOffset(NamedTuple):
    """Committed offset of one partition.

    `log_offset` is the offset of its record in the state partition. With `expire_timestamp_ms` -1 the broker's
    retention applies.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int
    log_offset: int

    @property
    def bytes(self) -> int:
        return ENTRY_BYTES + len(self.metadata)


class GroupOffsets:
    """Committed and pending offsets of one group.

    Attributes:
        topics: committed offsets by internal topic and partition.
        pending: offsets of open transactions by producer id.
        count: number of committed offsets.
        pending_count: number of pending offsets.
        bytes: memory of both.
        own_expiry_count: number of committed offsets with an expiry time of their own.
        oldest_ms: lower bound of the commit time of the other committed offsets.
    """

    __slots__ = ("bytes", "count", "instance_id", "oldest_ms", "own_expiry_count", "pending", "pending_count", "topics")

    def __init__(self, instance_id: str | None) -> None:
        self.instance_id = instance_id
        self.topics: dict[str, dict[int, CommittedOffset]] = {}
        self.pending: dict[int, dict[PartitionKey, CommittedOffset]] = {}
        self.count = 0
        self.pending_count = 0
        self.bytes = 0
        self.own_expiry_count = 0
        self.oldest_ms = 1 << 62

    @property
    def is_empty(self) -> bool:
        return not self.count and not self.pending

    @property
    def usage(self) -> tuple[int, int]:
        """Number of offsets, pending ones included, and the bytes of memory that they take."""
        return self.count + self.pending_count, self.bytes

    def get(self, topic: str, partition: int) -> CommittedOffset | None:
        partitions = self.topics.get(topic)
        return None if partitions is None else partitions.get(partition)

    def get_pending(self, producer_id: int, topic: str, partition: int) -> CommittedOffset | None:
        entries = self.pending.get(producer_id)
        return None if entries is None else entries.get((topic, partition))

    def is_pending(self, topic: str, partition: int) -> bool:
        return any((topic, partition) in entries for entries in self.pending.values())

    def newest_log_offset(self, topic: str, partition: int) -> int:
        """Returns the log offset of a partition's last commit, pending ones included; -1 if there is none."""
        committed = self.get(topic, partition)
        result = -1 if committed is None else committed.log_offset
        for entries in self.pending.values():
            entry = entries.get((topic, partition))
            if entry is not None and entry.log_offset > result:
                result = entry.log_offset
        return result

    def all_partitions(self) -> Iterator[PartitionKey]:
        """Yields each partition that has a committed or pending offset, once."""
        for topic, partitions in self.topics.items():
            for partition in partitions:
                yield topic, partition
        if self.pending:
            pending = {key for entries in self.pending.values() for key in entries}
            yield from (key for key in pending if self.get(*key) is None)

    def partitions_of_topics(self, topics: frozenset[str]) -> list[PartitionKey]:
        """Returns the partitions of these topics that have a committed or pending offset."""
        result = [(topic, partition) for topic in topics for partition in self.topics.get(topic, ())]
        if self.pending:
            pending = {key for entries in self.pending.values() for key in entries if key[0] in topics}
            result += [key for key in pending if self.get(*key) is None]
        return result

    # -- changes by records and markers --------------------------------------------------------------------------------

    def put(self, topic: str, partition: int, entry: CommittedOffset) -> None:
        """Sets a committed offset, unless the present one is from a later record."""
        partitions = self.topics.get(topic)
        if partitions is None:
            partitions = self.topics[topic] = {}
        previous = partitions.get(partition)
        if previous is not None:
            if previous.log_offset > entry.log_offset:
                return
            self._discount(previous)
        partitions[partition] = entry
        self.count += 1
        self.bytes += entry.bytes
        if entry.expire_timestamp_ms != NO_TIMESTAMP:
            self.own_expiry_count += 1
        elif entry.commit_timestamp_ms < self.oldest_ms:
            self.oldest_ms = entry.commit_timestamp_ms

    def put_pending(self, producer_id: int, topic: str, partition: int, entry: CommittedOffset) -> None:
        """Sets the pending offset of a partition in a producer's transaction."""
        entries = self.pending.setdefault(producer_id, {})
        previous = entries.get((topic, partition))
        if previous is not None:
            self.bytes -= previous.bytes
        else:
            self.pending_count += 1
        entries[topic, partition] = entry
        self.bytes += entry.bytes

    def remove(self, topic: str, partition: int) -> None:
        """Removes the committed and the pending offsets of a partition: a transaction that began before a deletion
        must not undo it.
        """
        for producer_id in tuple(self.pending):
            self.remove_pending(producer_id, topic, partition)
        partitions = self.topics.get(topic)
        removed = None if partitions is None else partitions.pop(partition, None)
        if removed is not None:
            self._discount(removed)
            if not partitions:
                del self.topics[topic]

    def remove_pending(self, producer_id: int, topic: str, partition: int) -> None:
        entries = self.pending.get(producer_id)
        entry = None if entries is None else entries.pop((topic, partition), None)
        if entries is not None and entry is not None:
            self.bytes -= entry.bytes
            self.pending_count -= 1
            if not entries:
                del self.pending[producer_id]

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """Ends a producer's transaction: its pending offsets are committed or dropped."""
        entries = self.pending.pop(producer_id, None)
        if entries is None:
            return
        self.pending_count -= len(entries)
        for (topic, partition), entry in entries.items():
            self.bytes -= entry.bytes
            if committed:
                self.put(topic, partition, entry)

    def _discount(self, entry: CommittedOffset) -> None:
        self.count -= 1
        self.bytes -= entry.bytes
        if entry.expire_timestamp_ms != NO_TIMESTAMP:
            self.own_expiry_count -= 1
