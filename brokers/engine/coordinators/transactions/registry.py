"""Registry of the transactional ids of one shard, changed by replayed records."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from brokers.contract import coordinator_limits
from brokers.engine.coordinators.led_shards import LedShards
from brokers.engine.coordinators.result import StateRecord
from brokers.engine.coordinators.settings import TransactionSettings
from brokers.engine.coordinators.transactions.entry import Entry
from brokers.engine.coordinators.transactions.formats import decode_value, encode_key, encode_value
from brokers.engine.coordinators.transactions.metadata import TransactionMetadata
from instances.naming import split_internal

# Kinds of usage that the shards count by instance.
IDS, OPEN_PARTITIONS = 0, 1


class TransactionRegistry:
    """The transactional ids of one shard, by id and by instance.

    `coordinator_epoch` is the leader epoch of the state partition, `high_watermark` returns its high watermark.
    `instance_exists` returns True if an instance exists. `shards` are all shards that this broker leads, this one
    included.
    """

    def __init__(
        self,
        coordinator_epoch: int,
        settings: TransactionSettings,
        high_watermark: Callable[[], int],
        instance_exists: Callable[[str], bool] = lambda instance_id: True,
        shards: LedShards[TransactionRegistry] | None = None,
    ) -> None:
        self.shards: LedShards[TransactionRegistry] = LedShards() if shards is None else shards
        self.shards.add(self)
        self.coordinator_epoch = coordinator_epoch
        self.settings = settings
        self.instance_exists = instance_exists
        self._high_watermark = high_watermark
        self._entries: dict[str, Entry] = {}
        # Ids of each instance in the order of their first record.
        self._by_instance: dict[str | None, dict[str, None]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def entry(self, transactional_id: str) -> Entry | None:
        """Returns the entry of a transactional id, None if the id is unknown or deleted."""
        entry = self._entries.get(transactional_id)
        if entry is None:
            return None
        entry.advance(self._high_watermark())
        if entry.is_deleted:
            self._remove_entry(transactional_id)
            return None
        return entry

    def entries(self, instance_id: str | None = None) -> Iterator[tuple[str, Entry]]:
        """Yields the entries of an instance, or all with None. The registry may change during the iteration."""
        ids = self._entries if instance_id is None else self._by_instance.get(instance_id, ())
        for transactional_id in tuple(ids):
            entry = self.entry(transactional_id)
            if entry is not None:
                yield transactional_id, entry

    def may_add_transactional_id(self, instance_id: str | None) -> bool:
        """True if an instance may have one more id on this broker."""
        if instance_id is None:
            return True
        return self.shards.remaining(instance_id, IDS, coordinator_limits.TRANSACTIONAL_IDS_PER_INSTANCE_MAX) > 0

    def may_add_partitions(self, instance_id: str | None, more: int) -> bool:
        """True if an instance may have `more` further partitions in its open transactions on this broker; a partition
        that is in several transactions counts several times.
        """
        if instance_id is None:
            return True
        limits = coordinator_limits
        return more <= self.shards.remaining(
            instance_id, OPEN_PARTITIONS, limits.OPEN_PARTITIONS_PER_INSTANCE_MAX, limits.OPEN_PARTITIONS_FLOOR
        )

    def replay(self, transactional_id: str, value: bytes | None, offset: int) -> None:
        """Applies the record at `offset`. Raises `UndecodableRecord` for a value that cannot be decoded."""
        metadata = None if value is None else decode_value(transactional_id, value)
        entry = self._entries.get(transactional_id)
        if entry is None:
            if metadata is None:
                return
            entry = self._entries[transactional_id] = Entry()
            instance_id = instance_of(transactional_id)
            self._by_instance.setdefault(instance_id, {})[transactional_id] = None
            self.shards.charge(self, instance_id, 1, 0)
        before = 0 if entry.written is None else len(entry.written.partitions)
        entry.write(metadata, offset)
        self._charge_partitions(transactional_id, (0 if metadata is None else len(metadata.partitions)) - before)

    def drop_deleted(self) -> None:
        """Drops the entries of ids whose deletion is committed, to free their memory after a load."""
        for transactional_id in tuple(self._entries):
            self.entry(transactional_id)

    def _charge_partitions(self, transactional_id: str, more: int) -> None:
        """Charges the instance for `more` partitions in open transactions."""
        if more:
            self.shards.charge(self, instance_of(transactional_id), 0, more)

    def _remove_entry(self, transactional_id: str) -> None:
        del self._entries[transactional_id]
        instance_id = instance_of(transactional_id)
        siblings = self._by_instance[instance_id]
        del siblings[transactional_id]
        self.shards.charge(self, instance_id, -1, 0)
        if not siblings:
            del self._by_instance[instance_id]


def instance_of(transactional_id: str) -> str | None:
    """Returns the instance that a transactional id belongs to, None for the cluster's own ids."""
    return split_internal(transactional_id)[0]


def record_of(metadata: TransactionMetadata) -> StateRecord:
    """Returns the record that stores `metadata`."""
    return StateRecord(encode_key(metadata.transactional_id), encode_value(metadata))


def deletion_record(transactional_id: str) -> StateRecord:
    """Returns the record that deletes a transactional id (TXN-18)."""
    return StateRecord(encode_key(transactional_id), None)
