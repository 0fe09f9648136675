"""Everything one shard knows: its transactional ids, and the records that change them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from brokers.engine.coordinators.outcome import StateRecord
from brokers.engine.coordinators.settings import TransactionSettings
from brokers.engine.coordinators.transactions.entry import Entry
from brokers.engine.coordinators.transactions.formats import decode_value, encode_key, encode_value
from brokers.engine.coordinators.transactions.metadata import TransactionMetadata
from instances.naming import split_internal


class Book:
    """`coordinator_epoch` is the leader epoch of the state partition. `high_watermark` tells what is committed of it,
    `is_living` whether there still is an instance.
    """

    def __init__(
        self,
        coordinator_epoch: int,
        settings: TransactionSettings,
        high_watermark: Callable[[], int],
        is_living: Callable[[str], bool] = lambda instance_id: True,
    ) -> None:
        self.coordinator_epoch = coordinator_epoch
        self.settings = settings
        self.is_living = is_living
        self._high_watermark = high_watermark
        self._entries: dict[str, Entry] = {}
        self._by_instance: Counter[str | None] = Counter()

    def __len__(self) -> int:
        return len(self._entries)

    def entry(self, transactional_id: str) -> Entry | None:
        """None: nobody uses this id."""
        entry = self._entries.get(transactional_id)
        if entry is None:
            return None
        entry.settle(self._high_watermark())
        if entry.is_gone:
            self._forget(transactional_id)
            return None
        return entry

    def entries(self) -> Iterator[tuple[str, Entry]]:
        """All of them; what is found may be changed meanwhile."""
        for transactional_id in tuple(self._entries):
            entry = self.entry(transactional_id)
            if entry is not None:
                yield transactional_id, entry

    def ids_of(self, instance_id: str | None) -> int:
        """How many ids of an instance are kept in this shard."""
        return self._by_instance[instance_id]

    def replay(self, transactional_id: str, value: bytes | None, offset: int) -> None:
        """Raises formats.UnknownFormat."""
        metadata = None if value is None else decode_value(transactional_id, value)
        entry = self._entries.get(transactional_id)
        if entry is None:
            if metadata is None:
                return
            entry = self._entries[transactional_id] = Entry()
            self._by_instance[instance_of(transactional_id)] += 1
        entry.write(metadata, offset)

    def forget_deleted(self) -> None:
        """What was deleted before this shard was loaded takes no memory."""
        for transactional_id in tuple(self._entries):
            self.entry(transactional_id)

    def _forget(self, transactional_id: str) -> None:
        del self._entries[transactional_id]
        instance_id = instance_of(transactional_id)
        self._by_instance[instance_id] -= 1
        if not self._by_instance[instance_id]:
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
