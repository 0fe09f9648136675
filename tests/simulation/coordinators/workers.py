"""Simulated members that process exactly once: their output and their positions are in one transaction."""

from __future__ import annotations

from typing import Final

from brokers.engine.handlers.groups.find_coordinator import GROUP, TRANSACTION
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.simulation.cluster.records import TOPIC
from tests.simulation.coordinators.clients import ClientContext
from tests.simulation.coordinators.group_promises import Commit, GroupPromises
from tests.simulation.coordinators.members import NOT_DONE, Member
from tests.simulation.coordinators.producers import LOST, GivenUp, Over, Transactional
from tests.simulation.coordinators.transaction_promises import Transaction, TransactionPromises

ABORTS: Final = 0.15


class Worker(Member, Transactional):
    """An exactly-once member with its own transactional id; an unfinished transaction ends by its time-out."""

    needs_stable = True

    def __init__(
        self,
        name: str,
        group: str,
        seat: str | None,
        partitions: int,
        client_context: ClientContext,
        groups: GroupPromises,
        transactions: TransactionPromises,
    ) -> None:
        self.use(f"w-{name}", partitions, transactions)
        super().__init__(name, group, seat, partitions, client_context, groups)

    async def _work(self, positions: dict[int, int]) -> bool:
        if self.rests:
            return True
        self.is_idle = False
        try:
            return await self._transact(positions)
        except Over:
            self.note("is over")
            self._initialised = None
            return False
        finally:
            self.is_idle = True

    async def _transact(self, positions: dict[int, int]) -> bool:
        initialised = self._initialised
        if initialised is None or self._is_doubtful:
            initialised = await self._initialise()
        transaction = self._transactions.begin(self.id, initialised, self.client_context.now_us)
        commits = self._next(positions)
        transaction.commits = list(commits.values())
        for commit in transaction.commits:
            commit.transaction = transaction
        committed = self.dice.random() > ABORTS
        try:
            index = self.dice.randrange(self._topic_partitions)
            await self._add(transaction, [index])
            await self._produce(transaction, index)
            await self._send_offsets(transaction, commits)
        except GivenUp as reason:
            self.note(f"gives {transaction.number} up: {reason}")
            self._is_doubtful = True
            committed = False
        await self._end(transaction, committed)
        return transaction.sent is True

    async def _send_offsets(self, transaction: Transaction, commits: dict[int, Commit]) -> None:
        by = transaction.by
        added = AddOffsetsToTxnRequest(
            transactional_id=self.id,
            producer_id=by.producer_id,
            producer_epoch=by.producer_epoch,
            group_id=self.group,
        )
        await self._call_until_success(TRANSACTION, self.id, ApiKey.ADD_OFFSETS_TO_TXN, 3, added, "adding offsets")
        lines = [
            TxnOffsetCommitRequestPartition(index, commit.position, -1, self.name) for index, commit in commits.items()
        ]
        request = TxnOffsetCommitRequest(
            transactional_id=self.id,
            group_id=self.group,
            producer_id=by.producer_id,
            producer_epoch=by.producer_epoch,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            topics=[TxnOffsetCommitRequestTopic(TOPIC, lines)],
        )
        code = await self._call_until_answered(GROUP, self.group, ApiKey.TXN_OFFSET_COMMIT, 3, request, "its offsets")
        if code in LOST or code in NOT_DONE:
            raise GivenUp(f"its offsets: {ErrorCode(code).name}")
        assert not code, f"{self.name} is answered {ErrorCode(code).name} to its offsets"
        for commit in commits.values():
            self._promises.accepted(commit)
