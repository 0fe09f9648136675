"""TxnOffsetCommit with both coordinators: offsets are committed with the transaction (TXN-8, TXN-9, TXN-27)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.groups import FindCoordinatorRequest
from brokers.engine.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.testkit.wire import WireClient
from tests.unit.brokers.engine.handlers.conftest import MINE, THEIRS, House
from tests.unit.brokers.engine.handlers.offsets_asking import GROUP, commit, coordinator_ready, fetch, offsets_of

ID = "app-1"
ORDERS = ("orders", 0)
WAIT_S = 10.0
_NOT_YET = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)
_PENDING = (*_NOT_YET, ErrorCode.CONCURRENT_TRANSACTIONS)


class Producer:
    """A transactional producer, as far as offsets are concerned."""

    def __init__(self, client: WireClient, transactional_id: str = ID) -> None:
        self.client = client
        self.transactional_id = transactional_id
        self.id = -1
        self.epoch = -1

    async def begin(self) -> None:
        """Begins a transaction with a new id; retries like clients."""
        request = FindCoordinatorRequest(key=self.transactional_id, key_type=1)
        await self._retried(ApiKey.FIND_COORDINATOR, 3, request, _NOT_YET)
        wanted = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=60_000,
            producer_id=self.id,
            producer_epoch=self.epoch,
        )
        answer = await self._retried(ApiKey.INIT_PRODUCER_ID, 3, wanted, _PENDING)
        assert answer.error_code == 0, answer
        self.id, self.epoch = answer.producer_id, answer.producer_epoch

    async def add_offsets(self, group: str = GROUP) -> None:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id, producer_id=self.id, producer_epoch=self.epoch, group_id=group
        )
        answer = await self._retried(ApiKey.ADD_OFFSETS_TO_TXN, 3, request, _PENDING)
        assert answer.error_code == 0, answer

    async def send_offset(self, offset: int, *, version: int = 3, group: str = GROUP, **changes: Any) -> int:
        line = TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=""
        )
        request = TxnOffsetCommitRequest(
            **{
                "transactional_id": self.transactional_id,
                "group_id": group,
                "producer_id": self.id,
                "producer_epoch": self.epoch,
                "topics": [TxnOffsetCommitRequestTopic(name="orders", partitions=[line])],
                **changes,
            }
        )
        answer = await self.client.call(ApiKey.TXN_OFFSET_COMMIT, version, request)
        return int(answer.topics[0].partitions[0].error_code)

    async def end(self, *, committed: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.id,
            producer_epoch=self.epoch,
            committed=committed,
        )
        answer = await self._retried(ApiKey.END_TXN, 3, request, _PENDING)
        assert answer.error_code == 0, answer

    async def _retried(self, api_key: int, version: int, request: Any, passing: tuple[int, ...]) -> Any:
        async with asyncio.timeout(WAIT_S):
            while True:
                answer = await self.client.call(api_key, version, request)
                if answer.error_code not in passing:
                    return answer


@pytest.fixture
async def producer(house: House) -> Producer:
    """Returns a producer in a transaction, with offsets of the group `g` at 3."""
    await house.topic("orders")
    await coordinator_ready(house.mine)
    assert await commit(house.mine, {ORDERS: 3}) == {ORDERS: 0}
    made = Producer(house.mine)
    await made.begin()
    return made


async def completed(house: House) -> int:
    """Returns the stable offset when no transaction is pending."""
    async with asyncio.timeout(WAIT_S):
        while True:
            _, lines = await fetch(house.mine, {"orders": [0]}, require_stable=True)
            if lines[ORDERS].error_code != ErrorCode.UNSTABLE_OFFSET_COMMIT:
                return int(lines[ORDERS].committed_offset)


async def test_offsets_count_when_the_transaction_is_committed(house: House, producer: Producer) -> None:
    for version in range(5):
        offset = 10 + version
        before = await completed(house)
        await producer.add_offsets()
        assert await producer.send_offset(offset, version=version) == 0

        assert await offsets_of(house.mine) == {ORDERS: before}
        _, lines = await fetch(house.mine, {"orders": [0]}, require_stable=True)
        assert lines[ORDERS].error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT

        await producer.end(committed=True)
        assert await completed(house) == offset


async def test_offsets_of_an_aborted_transaction_never_count(house: House, producer: Producer) -> None:
    await producer.add_offsets()
    assert await producer.send_offset(10) == 0

    await producer.end(committed=False)

    assert await completed(house) == 3


async def test_a_group_that_is_no_part_of_the_transaction_is_refused(house: House, producer: Producer) -> None:
    assert await producer.send_offset(10, version=3) == ErrorCode.INVALID_TXN_STATE
    assert await producer.send_offset(10, version=4) == ErrorCode.TRANSACTION_ABORTABLE
    assert await completed(house) == 3


async def test_an_offset_sent_after_the_end_is_refused(house: House, producer: Producer) -> None:
    await producer.add_offsets()
    assert await producer.send_offset(10) == 0
    await producer.end(committed=True)
    assert await completed(house) == 10

    assert await producer.send_offset(11) in (ErrorCode.INVALID_TXN_STATE, ErrorCode.CONCURRENT_TRANSACTIONS)
    assert await completed(house) == 10


async def test_a_producer_that_has_been_replaced_is_fenced(house: House, producer: Producer) -> None:
    await producer.add_offsets()
    replacement = Producer(house.mine)
    await replacement.begin()

    assert await producer.send_offset(10) == ErrorCode.INVALID_PRODUCER_EPOCH
    await replacement.add_offsets()
    assert await producer.send_offset(10) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await replacement.send_offset(11) == 0
    assert await producer.send_offset(12) == ErrorCode.INVALID_PRODUCER_EPOCH
    await replacement.end(committed=True)
    assert await completed(house) == 11


async def test_another_producers_id_is_not_taken(house: House, producer: Producer) -> None:
    await producer.add_offsets()

    wrong = await producer.send_offset(10, producer_id=producer.id + 1)
    nobodys = await producer.send_offset(10, transactional_id="nobody")

    assert wrong == nobodys == ErrorCode.INVALID_PRODUCER_ID_MAPPING


async def test_nobody_takes_over_the_open_transaction_of_another_tenant_by_guessing_its_id(
    house: House, producer: Producer
) -> None:
    await producer.add_offsets()
    assert await producer.send_offset(10) == 0
    await house.broker.create_topic(house.theirs, "orders", 1)
    stranger = Producer(house.theirs, "theirs")
    await stranger.begin()
    groups = [f"g{number}" for number in range(100)]
    internal = [f"{THEIRS}.{group}" for group in groups]
    runtime = house.broker.broker.services.coordination.groups
    assert runtime is not None
    (beside, *_) = [
        group
        for group, id in zip(groups, internal, strict=True)
        if runtime.partition_of(id) == runtime.partition_of(f"{MINE}.{GROUP}")
    ]

    taken = await stranger.send_offset(1, group=beside, producer_id=producer.id, producer_epoch=32_767)

    assert taken == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert await producer.send_offset(11) == 0
    await producer.end(committed=True)
    assert await completed(house) == 11


async def test_members_are_looked_at_where_the_version_names_them(house: House, producer: Producer) -> None:
    await producer.add_offsets()

    assert await producer.send_offset(10, generation_id=4, member_id="m") == ErrorCode.UNKNOWN_MEMBER_ID
    assert await producer.send_offset(10, generation_id=-1, member_id="") == 0


async def test_a_transaction_has_no_offsets_without_a_group(house: House, producer: Producer) -> None:
    assert await producer.send_offset(10, group="") == ErrorCode.INVALID_GROUP_ID


async def test_pending_offsets_survive_the_coordinator(house: House, producer: Producer) -> None:
    await producer.add_offsets()
    assert await producer.send_offset(10) == 0
    groups = house.broker.broker.services.coordination.groups
    assert groups is not None

    for shard in list(groups.shards()):
        groups.resign(shard.index)
        groups.lead(shard.log)
    await coordinator_ready(house.mine)

    assert await offsets_of(house.mine) == {ORDERS: 3}
    await producer.end(committed=True)
    assert await completed(house) == 10
