"""State machine of one shard of the transaction coordinator; `coordinators.result` has the rules that it follows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from typing import Any

import structlog

from brokers.contract.partitions import PartitionKey
from brokers.engine.coordinators.led_shards import LedShards
from brokers.engine.coordinators.result import NO_RECORD, CoordinatorResult, Now
from brokers.engine.coordinators.settings import TransactionSettings
from brokers.engine.coordinators.transactions import adding, ending, expiration, listing, producer_ids
from brokers.engine.coordinators.transactions.ending import markers_effect
from brokers.engine.coordinators.transactions.formats import UndecodableRecord, decode_key
from brokers.engine.coordinators.transactions.registry import TransactionRegistry
from brokers.engine.coordinators.transactions.replies import SendMarkers
from brokers.engine.coordinators.transactions.states import DECIDED, TransactionState

log = structlog.get_logger(__name__)


class TransactionMachine:
    """State machine of one shard of the transaction coordinator.

    A record takes effect when it is committed (TXN-4). Until then calls for its transactional id are answered with
    CONCURRENT_TRANSACTIONS, so that no decision is based on a record that a failing leader could lose.
    """

    def __init__(
        self,
        coordinator_epoch: int,
        settings: TransactionSettings,
        high_watermark: Callable[[], int],
        instance_exists: Callable[[str], bool] = lambda instance_id: True,
        led: LedShards[TransactionRegistry] | None = None,
    ) -> None:
        """Makes an empty machine for one leadership of a state partition.

        Args:
            coordinator_epoch: leader epoch of the state partition.
            settings: settings of the transaction coordinator.
            high_watermark: returns the current high watermark of the state partition.
            instance_exists: returns True if an instance exists; ids of a deleted one expire in the next round.
            led: the shards that this broker leads.
        """
        self.registry = TransactionRegistry(coordinator_epoch, settings, high_watermark, instance_exists, led)

    # -- calls of clients ----------------------------------------------------------------------------------------------

    def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: producer_ids.ExpectedProducer | None,
        fresh_producer_id: int | None,
        now: Now,
    ) -> CoordinatorResult:
        """Handles InitProducerId; the reply is a `replies.InitProducerIdReply` (TXN-5, TXN-6)."""
        return producer_ids.init_producer_id(
            self.registry, transactional_id, timeout_ms, expected, fresh_producer_id, now
        )

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[PartitionKey],
        now: Now,
    ) -> CoordinatorResult:
        """Adds partitions to a transaction; the reply is an error code (TXN-7, TXN-8)."""
        return adding.add_partitions(self.registry, transactional_id, producer_id, producer_epoch, partitions, now)

    def end(
        self, transactional_id: str, producer_id: int, producer_epoch: int, committed: bool, now: Now
    ) -> CoordinatorResult:
        """Handles EndTxn; the reply is an error code (TXN-10)."""
        return ending.end(self.registry, transactional_id, producer_id, producer_epoch, committed, now)

    def describe(self, transactional_id: str) -> CoordinatorResult:
        """Describes a transactional id; the reply is a `replies.DescribedTransaction`."""
        return listing.describe(self.registry, transactional_id)

    def list_transactions(
        self,
        instance_id: str | None,
        states: Collection[TransactionState] | None,
        producer_ids: Collection[int],
        longer_than_ms: int,
        now: Now,
    ) -> CoordinatorResult:
        """Lists transactional ids; the reply is a list of `replies.TransactionListing`."""
        return listing.list_transactions(self.registry, instance_id, states, producer_ids, longer_than_ms, now)

    # -- calls of other brokers ----------------------------------------------------------------------------------------

    def verify_partitions(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Collection[PartitionKey]
    ) -> CoordinatorResult:
        """Verifies that partitions are in an open transaction; the reply is a `replies.VerificationReply` (TXN-27)."""
        return adding.verify_partitions(self.registry, transactional_id, producer_id, producer_epoch, partitions)

    def record_written_markers(
        self, sent: SendMarkers, partitions: Collection[PartitionKey], now: Now
    ) -> CoordinatorResult:
        """Records that partitions have their marker or need none (TXN-12, TXN-13).

        The reply is False if the transaction no longer waits for these markers.
        """
        return ending.record_written_markers(self.registry, sent, partitions, now)

    # -- the machine protocol ------------------------------------------------------------------------------------------

    def replay(self, key: bytes, value: bytes | None, offset: int, producer_id: int) -> None:
        """Applies a record. An undecodable one, written by another version, is logged and skipped (TXN-19)."""
        try:
            self.registry.replay(decode_key(key), value, offset)
        except UndecodableRecord as error:
            log.error("transaction_record_not_understood", offset=offset, reason=str(error))

    def replay_marker(self, producer_id: int, committed: bool, offset: int) -> None:
        """Does nothing: no transaction writes to the transaction state topic."""

    def on_loaded(self, now: Now) -> CoordinatorResult:
        """Sends the markers of decided transactions again, under this coordinator's epoch (TXN-16).

        The decision depends on their records, so that no marker is sent for an outcome that could still be lost.
        """
        self.registry.drop_deleted()
        effects: list[object] = []
        last_offset = NO_RECORD
        for _, entry in self.registry.entries():
            if entry.written is not None and entry.written.state in DECIDED:
                effects.append(markers_effect(self.registry, entry.written))
                last_offset = max(last_offset, entry.offset)
        return CoordinatorResult(
            effects=effects, timers=list(expiration.initial_timers(self.registry, now)), depends_on_offset=last_offset
        )

    def on_timer(self, key: Hashable, now: Now) -> CoordinatorResult:
        if key is expiration.ExpirationTask.ABORT_OVERDUE:
            return expiration.abort_overdue(self.registry, now)
        if key is expiration.ExpirationTask.EXPIRE_IDS:
            return expiration.expire_ids(self.registry, now)
        assert isinstance(key, ending.CompletionTimer)
        return ending.complete(self.registry, key.transactional_id, now)

    def unload(self) -> list[tuple[object, Any]]:
        """Returns no waiting calls: each is answered at once or with the commit of its record."""
        self.registry.shards.discard(self.registry)
        return []
