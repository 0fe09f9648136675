"""One shard of the transaction coordinator as the runtime drives it; see `coordinators.result` for the rules."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from typing import Any

import structlog

from brokers.contract.partitions import PartitionKey
from brokers.engine.coordinators.led_shards import LedShards
from brokers.engine.coordinators.result import NO_RECORD, CoordinatorResult, Now
from brokers.engine.coordinators.settings import TransactionSettings
from brokers.engine.coordinators.transactions import adding, beginning, ending, expiration, listing
from brokers.engine.coordinators.transactions.fencing import markers_of
from brokers.engine.coordinators.transactions.formats import UnknownFormat, decode_key
from brokers.engine.coordinators.transactions.registry import TransactionRegistry
from brokers.engine.coordinators.transactions.replies import SendMarkers
from brokers.engine.coordinators.transactions.states import DECIDED, State

log = structlog.get_logger(__name__)


class TransactionMachine:
    """`coordinator_epoch` is the leader epoch of the state partition, `high_watermark` answers its current one.

    A record counts when it is committed (TXN-4): until then its transactional id answers CONCURRENT_TRANSACTIONS, so
    that nobody ever acts on what a failing leader could still lose.
    """

    def __init__(
        self,
        coordinator_epoch: int,
        settings: TransactionSettings,
        high_watermark: Callable[[], int],
        is_living: Callable[[str], bool] = lambda instance_id: True,
        led: LedShards[TransactionRegistry] | None = None,
    ) -> None:
        """`is_living` answers whether an instance exists: the ids of a deleted one expire with the next round.
        `led` are the shards of this broker.
        """
        self.registry = TransactionRegistry(coordinator_epoch, settings, high_watermark, is_living, led)

    # -- what clients ask ----------------------------------------------------------------------------------------------

    def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: beginning.Expected | None,
        fresh_producer_id: int | None,
        now: Now,
    ) -> CoordinatorResult:
        """Answers replies.Initialised (TXN-5, TXN-6)."""
        return beginning.init_producer_id(self.registry, transactional_id, timeout_ms, expected, fresh_producer_id, now)

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[PartitionKey],
        now: Now,
    ) -> CoordinatorResult:
        """Answers an error code (TXN-7, TXN-8)."""
        return adding.add_partitions(self.registry, transactional_id, producer_id, producer_epoch, partitions, now)

    def end(
        self, transactional_id: str, producer_id: int, producer_epoch: int, committed: bool, now: Now
    ) -> CoordinatorResult:
        """Answers an error code (TXN-10)."""
        return ending.end(self.registry, transactional_id, producer_id, producer_epoch, committed, now)

    def describe(self, transactional_id: str) -> CoordinatorResult:
        """Answers replies.Description."""
        return listing.describe(self.registry, transactional_id)

    def list_transactions(
        self,
        instance_id: str | None,
        states: Collection[State] | None,
        producer_ids: Collection[int],
        longer_than_ms: int,
        now: Now,
    ) -> CoordinatorResult:
        """Answers a list of replies.Listed."""
        return listing.list_transactions(self.registry, instance_id, states, producer_ids, longer_than_ms, now)

    # -- what other brokers ask and answer -----------------------------------------------------------------------------

    def verify_partitions(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Collection[PartitionKey]
    ) -> CoordinatorResult:
        """Answers replies.Verified (TXN-27)."""
        return adding.verify_partitions(self.registry, transactional_id, producer_id, producer_epoch, partitions)

    def markers_written(self, sent: SendMarkers, partitions: Collection[PartitionKey], now: Now) -> CoordinatorResult:
        """These partitions have their marker, or need none (TXN-12, TXN-13). Answers whether it is still about them."""
        return ending.markers_written(self.registry, sent, partitions, now)

    # -- the machine protocol ------------------------------------------------------------------------------------------

    def replay(self, key: bytes, value: bytes | None, offset: int, producer_id: int) -> None:
        """A record that nobody here can read is left alone: another version wrote it (TXN-19)."""
        try:
            self.registry.replay(decode_key(key), value, offset)
        except UnknownFormat as error:
            log.error("transaction_record_not_understood", offset=offset, reason=str(error))

    def replay_marker(self, producer_id: int, committed: bool, offset: int) -> None:
        """No transaction writes to the state of transactions."""

    def loaded(self, now: Now) -> CoordinatorResult:
        """TXN-16: what was decided is told to the partitions again, under this coordinator's epoch. It `reads`: nobody
        is told of a decision that could be lost with this leader.
        """
        self.registry.forget_deleted()
        effects: list[object] = []
        last_offset = NO_RECORD
        for _, entry in self.registry.entries():
            if entry.written is not None and entry.written.state in DECIDED:
                effects.append(markers_of(self.registry, entry.written))
                last_offset = max(last_offset, entry.offset)
        return CoordinatorResult(
            effects=effects, timers=list(expiration.next_expirations(self.registry, now)), reads=last_offset
        )

    def on_timer(self, key: Hashable, now: Now) -> CoordinatorResult:
        if key is expiration.ExpirationTask.ABORT_OVERDUE:
            return expiration.abort_overdue(self.registry, now)
        if key is expiration.ExpirationTask.EXPIRE_IDS:
            return expiration.expire_ids(self.registry, now)
        assert isinstance(key, ending.Completion)
        return ending.complete(self.registry, key.transactional_id, now)

    def unload(self) -> list[tuple[object, Any]]:
        """Nobody waits in here: calls are answered at once, or with the commit of their record."""
        self.registry.shards.discard(self.registry)
        return []
