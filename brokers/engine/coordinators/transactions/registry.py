"""Everything one shard knows: its transactional ids, and the records that change them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from brokers.contract import coordinator_limits
from brokers.engine.coordinators.led_shards import LedShards
from brokers.engine.coordinators.result import StateRecord
from brokers.engine.coordinators.settings import TransactionSettings
from brokers.engine.coordinators.transactions.entry import Entry
from brokers.engine.coordinators.transactions.formats import decode_value, encode_key, encode_value
from brokers.engine.coordinators.transactions.metadata import TransactionMetadata
from instances.naming import split_internal


class TransactionRegistry:
    """`coordinator_epoch` is the leader epoch of the state partition. `high_watermark` tells what is committed of it,
    `is_living` whether there still is an instance. `shards` are those that this broker leads, this one among them.
    """

    def __init__(
        self,
        coordinator_epoch: int,
        settings: TransactionSettings,
        high_watermark: Callable[[], int],
        is_living: Callable[[str], bool] = lambda instance_id: True,
        shards: LedShards[TransactionRegistry] | None = None,
    ) -> None:
        self.shards: LedShards[TransactionRegistry] = LedShards() if shards is None else shards
        self.shards.add(self)
        self.coordinator_epoch = coordinator_epoch
        self.settings = settings
        self.is_living = is_living
        self._high_watermark = high_watermark
        self._entries: dict[str, Entry] = {}
        # In the order in which they came.
        self._by_instance: dict[str | None, dict[str, None]] = {}
        self._open_partitions: Counter[str | None] = Counter()

    def __len__(self) -> int:
        return len(self._entries)

    def entry(self, transactional_id: str) -> Entry | None:
        """None: nobody uses this id."""
        entry = self._entries.get(transactional_id)
        if entry is None:
            return None
        entry.complete(self._high_watermark())
        if entry.is_gone:
            self._forget(transactional_id)
            return None
        return entry

    def entries(self, instance_id: str | None = None) -> Iterator[tuple[str, Entry]]:
        """Those of an instance; None: all of them. What is found may be changed meanwhile."""
        ids = self._entries if instance_id is None else self._by_instance.get(instance_id, ())
        for transactional_id in tuple(ids):
            entry = self.entry(transactional_id)
            if entry is not None:
                yield transactional_id, entry

    def ids_of(self, instance_id: str | None) -> int:
        """How many ids of an instance are kept in this shard."""
        return len(self._by_instance.get(instance_id, ()))

    def has_room(self, instance_id: str | None) -> bool:
        """Whether an instance may have one more id on this broker."""
        if instance_id is None:
            return True
        ids = self.shards.total(lambda shard: shard.ids_of(instance_id))
        return ids < self.shards.share_of(coordinator_limits.TRANSACTIONAL_IDS_PER_INSTANCE_MAX)

    def has_room_for_partitions(self, instance_id: str | None, more: int) -> bool:
        """Whether so many partitions more may be in its open transactions on this broker."""
        if instance_id is None:
            return True
        partitions = self.shards.total(lambda shard: shard.open_partitions_of(instance_id))
        return partitions + more <= self.shards.share_of(
            coordinator_limits.OPEN_PARTITIONS_PER_INSTANCE_MAX, coordinator_limits.OPEN_PARTITIONS_FLOOR
        )

    def open_partitions_of(self, instance_id: str | None) -> int:
        """How many partitions are part of its transactions in this shard, each counted with each of them."""
        return self._open_partitions[instance_id]

    def replay(self, transactional_id: str, value: bytes | None, offset: int) -> None:
        """Raises formats.UnknownFormat."""
        metadata = None if value is None else decode_value(transactional_id, value)
        entry = self._entries.get(transactional_id)
        if entry is None:
            if metadata is None:
                return
            entry = self._entries[transactional_id] = Entry()
            self._by_instance.setdefault(instance_of(transactional_id), {})[transactional_id] = None
        before = 0 if entry.written is None else len(entry.written.partitions)
        entry.write(metadata, offset)
        self._count(transactional_id, (0 if metadata is None else len(metadata.partitions)) - before)

    def forget_deleted(self) -> None:
        """What was deleted before this shard was loaded takes no memory."""
        for transactional_id in tuple(self._entries):
            self.entry(transactional_id)

    def _count(self, transactional_id: str, more: int) -> None:
        if more:
            instance_id = instance_of(transactional_id)
            self._open_partitions[instance_id] += more
            if not self._open_partitions[instance_id]:
                del self._open_partitions[instance_id]

    def _forget(self, transactional_id: str) -> None:
        del self._entries[transactional_id]
        instance_id = instance_of(transactional_id)
        siblings = self._by_instance[instance_id]
        del siblings[transactional_id]
        if not siblings:
            del self._by_instance[instance_id]


def instance_of(transactional_id: str) -> str | None:
    """Whose id this is; None: the cluster's own."""
    return split_internal(transactional_id)[0]


def record_of(metadata: TransactionMetadata) -> StateRecord:
    """What makes `metadata` so."""
    return StateRecord(encode_key(metadata.transactional_id), encode_value(metadata))


def deletion_of(transactional_id: str) -> StateRecord:
    """What makes an id unknown (TXN-18)."""
    return StateRecord(encode_key(transactional_id), None)
