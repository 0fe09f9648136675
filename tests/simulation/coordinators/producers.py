"""Simulated transactional producers, several of which may have the same transactional id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from brokers.engine.handlers.groups.find_coordinator import GROUP, TRANSACTION
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from brokers.engine.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from brokers.engine.records.batch import TRANSACTIONAL
from brokers.engine.records.builder import Record, build_batch
from tests.simulation.cluster.clock import BEGAN_MS, US_PER_MS
from tests.simulation.cluster.records import TOPIC
from tests.simulation.coordinators.clients import ClientContext, Machine, NoAnswer
from tests.simulation.coordinators.transaction_promises import Initialised, Transaction, TransactionPromises

TRANSACTION_MS_MAX: Final = 1_500
SETTLE_MS_MAX: Final = 700
# Attempts of a request before the transaction is given up.
ATTEMPTS: Final = 25
ABORTS: Final = 0.2

FENCED: Final = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
# Errors after which a transaction can only be aborted.
LOST: Final = frozenset(
    {ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER}
)
# Errors after which a request is retried, possibly on another broker.
PASSING: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)


class Over(Exception):
    """Another producer has the transactional id, or the transaction timed out."""


class GivenUp(Exception):
    """The transaction must be aborted."""


class Transactional(Machine):
    """A client with a transactional id. `is_idle` is True while it has no transaction; with `rests` it begins none.

    Call `use` first.
    """

    def use(self, id: str, partitions: int, promises: TransactionPromises) -> None:
        self.id = id
        self.is_idle = True
        self.rests = False
        self._topic_partitions = partitions
        self._transactions = promises
        self._initialised: Initialised | None = None
        self._sequences: dict[int, int] = {}
        self._value_count = 0
        # True if a request may still be on the way, so that the epoch must not be used again.
        self._is_doubtful = False

    # -- one call ------------------------------------------------------------------------------------------------------

    async def _call_until_answered(
        self, kind: int, key: str, api_key: int, version: int, message: Any, step: str
    ) -> int:
        """Retries a request and returns its final error code. Raises Over, and GivenUp after ATTEMPTS."""
        for _ in range(ATTEMPTS):
            try:
                answer = await self.call(self.coordinator(kind, key), api_key, version, message)
            except NoAnswer:
                self._is_doubtful = True
                await self.wait_before_retry()
                continue
            code = code_of(answer)
            if code in FENCED:
                raise Over(step)
            if code not in PASSING:
                return code
            if code == ErrorCode.REQUEST_TIMED_OUT:
                self._is_doubtful = True
            await self.wait_before_retry()
        raise GivenUp(step)

    async def _call_until_success(
        self, kind: int, key: str, api_key: int, version: int, message: Any, step: str
    ) -> None:
        code = await self._call_until_answered(kind, key, api_key, version, message, step)
        if code in LOST:
            raise GivenUp(step)
        assert not code, f"{self.name} is answered {ErrorCode(code).name} to {step}"

    async def _initialise(self) -> Initialised:
        """Retries InitProducerId until it succeeds."""
        while True:
            previous = self._initialised
            expected = (-1, -1) if previous is None else (previous.producer_id, previous.producer_epoch)
            asked_us = self.client_context.now_us
            request = InitProducerIdRequest(
                transactional_id=self.id,
                transaction_timeout_ms=TRANSACTION_MS_MAX,
                producer_id=expected[0],
                producer_epoch=expected[1],
            )
            try:
                answer = await self.call(self.coordinator(TRANSACTION, self.id), ApiKey.INIT_PRODUCER_ID, 4, request)
            except NoAnswer:
                await self.wait_before_retry()
                continue
            code = answer.error_code
            if code in FENCED:
                raise Over("initialise")
            if code:
                assert code in PASSING, f"{self.name} is answered {ErrorCode(code).name}"
                await self.wait_before_retry()
                continue
            initialised = Initialised(self.name, answer.producer_id, answer.producer_epoch, self.client_context.now_us)
            self._transactions.initialised(self.id, initialised, asked_us)
            self.note(f"is producer {initialised.producer_id} epoch {initialised.producer_epoch} of {self.id}")
            self._initialised = initialised
            self._sequences.clear()
            self._is_doubtful = False
            return initialised

    # -- steps of a transaction ---------------------------------------------------------------------------------------

    async def _add(self, transaction: Transaction, indexes: Sequence[int]) -> None:
        by = transaction.by
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.id,
            v3_and_below_producer_id=by.producer_id,
            v3_and_below_producer_epoch=by.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(TOPIC, list(indexes))],
        )
        await self._call_until_success(
            TRANSACTION, self.id, ApiKey.ADD_PARTITIONS_TO_TXN, 3, request, f"adding {indexes}"
        )

    async def _produce(self, transaction: Transaction, index: int) -> None:
        by = transaction.by
        values = []
        for _ in range(self.dice.randint(1, 2)):
            self._value_count += 1
            values.append(f"{transaction.number}:{self.name}:{self._value_count}".encode())
        self._transactions.writes(transaction, values)
        sequence = self._sequences.get(index, 0)
        now_ms = BEGAN_MS + self.client_context.now_us // US_PER_MS
        batch = build_batch(
            [Record(now_ms, None, value) for value in values],
            attributes=TRANSACTIONAL,
            producer_id=by.producer_id,
            producer_epoch=by.producer_epoch,
            base_sequence=sequence,
        )
        request = ProduceRequest(
            transactional_id=self.id,
            acks=-1,
            timeout_ms=SETTLE_MS_MAX,
            topic_data=[TopicProduceData(TOPIC, [PartitionProduceData(index=index, records=bytes(batch))])],
        )
        for _ in range(ATTEMPTS):
            try:
                response = await self.call(self.leader(TOPIC, index), ApiKey.PRODUCE, 9, request)
            except NoAnswer:
                self._is_doubtful = True
                await self.wait_before_retry()
                continue
            partition = response.responses[0].partition_responses[0]
            code = partition.error_code
            if not code:
                transaction.acknowledged.append((index, partition.base_offset, values[0]))
                self._sequences[index] = sequence + len(values)
                return
            if code in FENCED:
                raise Over("a batch")
            if code in LOST:
                raise GivenUp(f"a batch at {index}: {ErrorCode(code).name}")
            assert code in PASSING, f"{self.name} is answered {ErrorCode(code).name} to a batch"
            self._is_doubtful = True
            await self.wait_before_retry()
        raise GivenUp(f"a batch at {index}")

    async def _end(self, transaction: Transaction, committed: bool) -> None:
        """Ends a transaction, with retries until the outcome is known. Raises Over."""
        by = transaction.by
        if committed:
            transaction.asked_us = self.client_context.now_us
        request = EndTxnRequest(
            transactional_id=self.id,
            producer_id=by.producer_id,
            producer_epoch=by.producer_epoch,
            committed=committed,
        )
        while True:
            try:
                code = await self._call_until_answered(TRANSACTION, self.id, ApiKey.END_TXN, 3, request, "the end")
            except GivenUp:
                continue
            if code == ErrorCode.INVALID_TXN_STATE:
                # Nothing was added, or the transaction has ended with the other outcome.
                self.note(f"cannot {'commit' if committed else 'abort'} {transaction.number}")
                self._is_doubtful = True
                return
            assert not code, f"{self.name} is answered {ErrorCode(code).name} to the end"
            break
        self._transactions.sent(transaction, committed, self.client_context.now_us)
        self.note(f"has {transaction.number} {'committed' if committed else 'aborted'}")


class Producer(Transactional):
    """A producer that writes records, and commits offsets of a group without members."""

    def __init__(
        self, name: str, id: str, partitions: int, client_context: ClientContext, promises: TransactionPromises
    ) -> None:
        super().__init__(name, client_context)
        self.use(id, partitions, promises)
        self.group = f"x-{id}"
        self.start(self._live())

    async def _live(self) -> None:
        while True:
            try:
                initialised = await self._initialise()
                while not self._is_doubtful:
                    await self.sleep(self.dice.choice((10, 40, 120)))
                    if not self.rests:
                        self.is_idle = False
                        await self._run(initialised)
                        self.is_idle = True
            except Over:
                self.note("is over")
                # Like an application that was restarted.
                self._initialised = None
                self.is_idle = True
                await self.sleep(self.dice.choice((50, 200, 600)))

    # -- one transaction -----------------------------------------------------------------------------------------------

    async def _run(self, initialised: Initialised) -> None:
        transaction = self._transactions.begin(self.id, initialised, self.client_context.now_us)
        committed = self.dice.random() > ABORTS
        try:
            await self._fill(transaction)
        except GivenUp as reason:
            self.note(f"gives {transaction.number} up: {reason}")
            self._is_doubtful = True
            committed = False
        await self._end(transaction, committed)

    async def _fill(self, transaction: Transaction) -> None:
        dice = self.dice
        indexes = dice.sample(range(self._topic_partitions), dice.randint(1, self._topic_partitions))
        at_once = dice.random() < 0.5
        if at_once:
            await self._add(transaction, indexes)
        for index in indexes:
            if not at_once:
                await self._add(transaction, [index])
            for _ in range(dice.choice((1, 1, 2))):
                await self._produce(transaction, index)
        if dice.random() < 0.6:
            await self._commit_offsets(transaction)
        if dice.random() < 0.2:
            await self.sleep(dice.choice((100, 400)))

    async def _commit_offsets(self, transaction: Transaction) -> None:
        by = transaction.by
        added = AddOffsetsToTxnRequest(
            transactional_id=self.id,
            producer_id=by.producer_id,
            producer_epoch=by.producer_epoch,
            group_id=self.group,
        )
        await self._call_until_success(TRANSACTION, self.id, ApiKey.ADD_OFFSETS_TO_TXN, 3, added, "adding offsets")
        lines = [TxnOffsetCommitRequestPartition(0, transaction.number, -1, None)]
        request = TxnOffsetCommitRequest(
            transactional_id=self.id,
            group_id=self.group,
            producer_id=by.producer_id,
            producer_epoch=by.producer_epoch,
            topics=[TxnOffsetCommitRequestTopic(TOPIC, lines)],
        )
        await self._call_until_success(GROUP, self.group, ApiKey.TXN_OFFSET_COMMIT, 3, request, "its offsets")
        transaction.offsets_acknowledged = True


def code_of(answer: Any) -> int:
    """Returns the error code of a response with a single result."""
    if hasattr(answer, "results_by_topic_v3_and_below"):
        return int(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)
    if hasattr(answer, "topics"):
        return int(answer.topics[0].partitions[0].error_code)
    return int(answer.error_code)
