"""One shard of the transaction coordinator under the real runtime, over a log in memory and a loop whose time the test
moves.

coordinator = Coordinator()
producer = coordinator.begin("tx")
coordinator.add(producer, ("a", 0))
coordinator.end(producer, committed=True)
coordinator.write_markers()
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from itertools import count
from typing import Any, NamedTuple

from brokers.contract.partitions import PartitionKey
from brokers.engine.coordinators.interfaces import StateLog
from brokers.engine.coordinators.result import REPLY_PENDING
from brokers.engine.coordinators.runtime import Runtime
from brokers.engine.coordinators.settings import TRANSACTIONS_TOPIC, TransactionSettings
from brokers.engine.coordinators.transactions.formats import decode_key, decode_value
from brokers.engine.coordinators.transactions.machine import TransactionMachine
from brokers.engine.coordinators.transactions.metadata import TransactionMetadata
from brokers.engine.coordinators.transactions.replies import (
    NEEDS_PRODUCER_ID,
    InitProducerIdReply,
    SendMarkers,
    VerificationReply,
)
from brokers.engine.coordinators.transactions.states import NAMES, TransactionState
from tests.unit.brokers.engine.coordinators.fakes import Call, FakeLog, FakeLoop

TIMEOUT_MS = 60_000
A, B = ("ins-aaaaaaaa.a", 0), ("ins-aaaaaaaa.b", 3)


class Producer(NamedTuple):
    transactional_id: str
    producer_id: int
    producer_epoch: int

    @property
    def identity(self) -> tuple[int, int]:
        return self.producer_id, self.producer_epoch


class Coordinator:
    """A shard of the transaction coordinator. Without `committing`, records stay uncommitted until `log.replicate()`;
    `sent` are the marker requests that it made.
    """

    def __init__(
        self,
        *,
        log: FakeLog | None = None,
        committing: bool = True,
        settings: TransactionSettings | None = None,
        producer_ids: Any = None,
    ) -> None:
        self.log = log or FakeLog(at_once=committing)
        self.loop = FakeLoop()
        self.sent: list[SendMarkers] = []
        self.living = {"ins-aaaaaaaa", "ins-bbbbbbbb"}
        self.producer_ids = producer_ids or count(1000)
        self._settings = settings or TransactionSettings()
        self.runtime: Runtime[TransactionMachine] = Runtime(
            topic=TRANSACTIONS_TOPIC,
            new_machine=self._make,
            loop=self.loop,
            commit_timeout_ms=5_000,
            perform_effect=lambda index, effect: self.sent.append(effect),
        )
        self.runtime.partitions = 1
        self.runtime.lead(self.log)
        self.loop.turn()

    def _make(self, log: StateLog) -> TransactionMachine:
        return TransactionMachine(
            log.leader_epoch, self._settings, lambda: log.high_watermark, self.living.__contains__
        )

    @property
    def machine(self) -> TransactionMachine:
        (shard,) = self.runtime.shards()
        return shard.machine

    def ask(self, operation: Any) -> Any:
        """Run an operation; return its reply, or the Call that waits for it."""
        call = Call()
        reply = self.runtime.perform_at(0, operation, call.ticket)
        return call if reply is REPLY_PENDING else reply

    def initialise(
        self, transactional_id: str = "tx", expected: tuple[int, int] | None = None, timeout_ms: int = TIMEOUT_MS
    ) -> Any:
        """Send InitProducerId; return replies.InitProducerIdReply, or the Call that waits for it."""

        def attempt(fresh: int | None) -> Any:
            return self.ask(
                lambda machine, now, _: machine.init_producer_id(transactional_id, timeout_ms, expected, fresh, now)
            )

        reply = attempt(None)
        return attempt(next(self.producer_ids)) if reply is NEEDS_PRODUCER_ID else reply

    def begin(self, transactional_id: str = "tx", **options: Any) -> Producer:
        reply = self.initialise(transactional_id, **options)
        assert isinstance(reply, InitProducerIdReply)
        assert reply.error == 0, reply
        return Producer(transactional_id, reply.producer_id, reply.producer_epoch)

    def add(self, producer: Producer, *partitions: PartitionKey) -> Any:
        return self.ask(lambda machine, now, _: machine.add_partitions(*producer, partitions, now))

    def verify(self, producer: Producer, *partitions: PartitionKey) -> Any:
        """Return the error codes by partition, or the Call that waits for replies.VerificationReply."""
        reply = self.ask(lambda machine, now, _: machine.verify_partitions(*producer, partitions))
        return reply.codes if isinstance(reply, VerificationReply) else reply

    def end(self, producer: Producer, committed: bool) -> Any:
        return self.ask(lambda machine, now, _: machine.end(*producer, committed, now))

    def written(self, sent: SendMarkers, partitions: Collection[PartitionKey]) -> Any:
        return self.ask(lambda machine, now, _: machine.record_written_markers(sent, partitions, now))

    def write_markers(self) -> None:
        """Answer all marker requests on behalf of the leaders."""
        sent, self.sent = self.sent, []
        for markers in sent:
            self.written(markers, markers.partitions)

    def describe(self, transactional_id: str = "tx") -> Any:
        return self.ask(lambda machine, now, _: machine.describe(transactional_id))

    def state(self, transactional_id: str = "tx") -> str:
        return str(self.describe(transactional_id).state)

    def list(
        self,
        states: Any = None,
        producer_ids: Collection[int] = (),
        longer_than_ms: int = -1,
        instance: str | None = None,
    ) -> Any:
        return self.ask(
            lambda machine, now, _: machine.list_transactions(instance, states, producer_ids, longer_than_ms, now)
        )

    # -- log -----------------------------------------------------------------------------------------------------------

    @property
    def records(self) -> list[tuple[str, TransactionMetadata | None]]:
        return self._records(self.log.end_offset)

    @property
    def committed_records(self) -> list[tuple[str, TransactionMetadata | None]]:
        return self._records(self.log.high_watermark)

    def _records(self, end_offset: int) -> list[tuple[str, TransactionMetadata | None]]:
        return [
            _decoded(key, value)
            for batch in self.log.batches
            for offset, key, value in batch.records
            if offset < end_offset
        ]

    def successor(self, records: int | None = None) -> Coordinator:
        """Return the coordinator of another broker that took over with the first `records` batches (default: all)."""
        log = FakeLog(leader_epoch=self.log.leader_epoch + 1, at_once=True)
        log.batches = self.log.batches[:records]
        log.high_watermark = log.end_offset
        return Coordinator(log=log, settings=self._settings, producer_ids=self.producer_ids)


@cache
def _decoded(key: bytes, value: bytes | None) -> tuple[str, TransactionMetadata | None]:
    transactional_id = decode_key(key)
    return transactional_id, None if value is None else decode_value(transactional_id, value)


def brought_to(state: TransactionState, coordinator: Coordinator | None = None) -> tuple[Coordinator, Producer]:
    """Return a coordinator whose transaction "tx" is in `state`, and its producer."""
    coordinator = coordinator or Coordinator()
    producer = coordinator.begin()
    if state is not TransactionState.EMPTY:
        assert coordinator.add(producer, A, B) == 0
    if state not in (TransactionState.EMPTY, TransactionState.ONGOING):
        assert (
            coordinator.end(producer, state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)) == 0
        )
    if state in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT):
        coordinator.write_markers()
    assert coordinator.state() == NAMES[state]
    return coordinator, producer
