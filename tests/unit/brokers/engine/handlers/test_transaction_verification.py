"""Verification of transactional batches before a transaction's first append to a partition (TXN-27), markers (TXN-14),
and DescribeProducers; the coordinator's replies are scripted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from brokers.contract.process import CLUSTER_USER
from brokers.engine.handlers.produce.transaction_verification import NOT_ADDED, NOT_VERIFIED, refusal
from brokers.engine.handlers.transactions.write_markers import write_markers
from brokers.engine.partitions.partition import Partition
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from brokers.engine.protocol.messages.producers import DescribeProducersRequest, DescribeProducersTopic
from brokers.engine.protocol.messages.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from brokers.engine.records.batch import TRANSACTIONAL
from brokers.engine.records.message_set import read_entries, read_message
from tests.testkit.records import batch, fetch, produce, produce_request, values
from tests.unit.brokers.engine.handlers.conftest import MINE, House

TX = "mine"
READ_COMMITTED = 1


def of_transaction(sequence: int = 0, *, producer_id: int = 7, epoch: int = 0, value: bytes = b"v") -> bytes:
    return batch(value, attributes=TRANSACTIONAL, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


class Coordinator:
    """A coordinator that replies `code` to every request, once `may_answer` is set."""

    def __init__(self, house: House) -> None:
        self.code = 0
        self.questions: list[tuple[str, int, int, list[tuple[str, int]]]] = []
        self.asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        house.broker.broker.services.coordination.verify_transaction = self.verify

    async def verify(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Sequence[tuple[str, int]]
    ) -> dict[tuple[str, int], int]:
        self.questions.append((transactional_id, producer_id, producer_epoch, list(partitions)))
        self.asked.set()
        await self.may_answer.wait()
        return dict.fromkeys(partitions, self.code)


@pytest.fixture
async def coordinator(house: House) -> Coordinator:
    await house.topic(partitions=3)
    return Coordinator(house)


def held(house: House, index: int = 0) -> Partition:
    result = house.broker.broker.services.storage.table.get(f"{MINE}.orders", index)
    assert result is not None
    return result


async def sent(house: House, records: bytes, **more: Any) -> Any:
    return await produce(house.mine, "orders", records, acks=-1, transactional_id=TX, **more)


async def marked(
    house: House, *, committed: bool, producer_id: int = 7, epoch: int = 0, topic: str = "orders", index: int = 0
) -> int:
    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=committed,
        topics=[WritableTxnMarkerTopic(name=f"{MINE}.{topic}", partition_indexes=[index])],
        coordinator_epoch=0,
    )
    services = house.broker.broker.services
    answer = await write_markers(services, WriteTxnMarkersRequest(markers=[marker]), timeout_ms=100)
    return int(answer.markers[0].topics[0].partitions[0].error_code)


# -- verification ------------------------------------------------------------------------------------------------------


async def test_the_coordinator_is_asked_once_for_each_partition_of_a_transaction(
    house: House, coordinator: Coordinator
) -> None:
    """The request has internal names (CKA-16)."""
    for sequence in range(3):
        assert (await sent(house, of_transaction(sequence))).error_code == 0
    assert (await sent(house, of_transaction(), partition=1)).error_code == 0
    internal_id = f"{MINE}.{TX}"
    assert [(question[1:3], question[3]) for question in coordinator.questions] == [
        ((7, 0), [(f"{MINE}.orders", 0)]),
        ((7, 0), [(f"{MINE}.orders", 1)]),
    ]
    assert {question[0] for question in coordinator.questions} == {
        house.broker.broker.services.metadata.current.image.instances[MINE].id + internal_id.removeprefix(MINE)
    }


@pytest.mark.parametrize("version", [8, 10, 11])
@pytest.mark.parametrize(
    ("answer", "code", "message"),
    [
        (ErrorCode.TRANSACTION_ABORTABLE, None, None),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING, None),
        (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, None),
        (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS, NOT_VERIFIED + "CONCURRENT_TRANSACTIONS"),
        (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_ENOUGH_REPLICAS, NOT_VERIFIED + "NOT_COORDINATOR"),
        (ErrorCode.NETWORK_EXCEPTION, ErrorCode.NOT_ENOUGH_REPLICAS, NOT_VERIFIED + "NETWORK_EXCEPTION"),
    ],
)
async def test_a_batch_the_coordinator_refuses_is_not_appended(
    house: House,
    coordinator: Coordinator,
    version: int,
    answer: ErrorCode,
    code: ErrorCode | None,
    message: str | None,
) -> None:
    """Observed codes: 48 up to version 10, 120 in 11; transient ones become 19, which all clients retry."""
    if code is None:
        known = version >= 11
        code = ErrorCode.TRANSACTION_ABORTABLE if known else ErrorCode.INVALID_TXN_STATE
        message = None if known else NOT_ADDED
    coordinator.code = int(answer)
    line = await sent(house, of_transaction(), version=version)
    assert (line.error_code, line.error_message, line.base_offset, line.log_start_offset) == (code, message, -1, -1)
    assert held(house).log_end_offset == 0
    assert refusal(int(answer), version) == (code, message)


async def test_the_next_request_of_the_connection_waits_and_other_connections_do_not(
    house: House, coordinator: Coordinator
) -> None:
    coordinator.may_answer.clear()
    first = asyncio.create_task(
        house.mine.call(ApiKey.PRODUCE, 9, produce_request("orders", of_transaction(), acks=-1, transactional_id=TX))
    )
    await coordinator.asked.wait()
    await house.mine.send(ApiKey.PRODUCE, 9, produce_request("orders", batch(b"second"), acks=0))
    other = await house.broker.client(house.my_port)
    assert (await produce(other, "orders", batch(b"elsewhere"), acks=-1)).base_offset == 0
    coordinator.may_answer.set()
    answered = await first
    assert answered.responses[0].partition_responses[0].base_offset == 1
    await house.broker.until(lambda: held(house).log_end_offset == 3)
    assert values((await fetch(house.mine, "orders")).records) == [b"elsewhere", b"v", b"second"]


async def test_a_transaction_that_ended_before_the_append_takes_no_more_batches(
    house: House, coordinator: Coordinator
) -> None:
    """The coordinator confirmed the partition, and then its marker arrived first."""
    coordinator.may_answer.clear()
    sending = asyncio.create_task(sent(house, of_transaction()))
    await coordinator.asked.wait()
    assert await marked(house, committed=False) == 0
    coordinator.may_answer.set()
    assert (await sending).error_code == ErrorCode.INVALID_TXN_STATE
    assert held(house).last_stable_offset == held(house).log_end_offset == 1


async def test_a_client_that_goes_while_the_coordinator_is_asked_has_nothing_appended(
    house: House, coordinator: Coordinator
) -> None:
    coordinator.may_answer.clear()
    leaving = await house.broker.client(house.my_port)
    await leaving.send(ApiKey.PRODUCE, 9, produce_request("orders", of_transaction(), acks=-1, transactional_id=TX))
    await coordinator.asked.wait()
    services = house.broker.broker.services
    (asking,) = [task for task in services.tasks if "_fail_channel_on_error" in repr(task.get_coro())]
    await leaving.close()
    await house.broker.until(asking.done)
    coordinator.may_answer.set()
    assert (await produce(house.mine, "orders", batch(b"a"), acks=-1)).base_offset == 0


async def test_each_partition_is_answered_for_itself_and_two_producers_in_a_request_for_all(
    house: House, coordinator: Coordinator
) -> None:
    async def asked(*parts: tuple[int, bytes]) -> list[int]:
        data = [PartitionProduceData(index=index, records=records) for index, records in parts]
        request = ProduceRequest(
            transactional_id=TX,
            acks=-1,
            timeout_ms=1_000,
            topic_data=[TopicProduceData(name="orders", partition_data=data)],
        )
        answer = await house.mine.call(ApiKey.PRODUCE, 9, request)
        return [line.error_code for line in answer.responses[0].partition_responses]

    await sent(house, of_transaction())
    coordinator.code = int(ErrorCode.TRANSACTION_ABORTABLE)
    assert await asked((0, of_transaction(1)), (1, of_transaction()), (2, batch(b"plain")), (9, of_transaction())) == [
        0, 48, 0, 3,
    ]  # fmt: skip
    assert await asked((0, of_transaction(2)), (1, of_transaction(producer_id=8))) == [49, 49]
    assert await asked((0, of_transaction(2)[:40])) == [int(ErrorCode.INVALID_RECORD)]


@pytest.mark.parametrize("overrides", [{"transaction.partition.verification.enable": "false"}])
async def test_nobody_is_asked_when_an_operator_does_not_want_it(house: House, coordinator: Coordinator) -> None:
    assert (await sent(house, of_transaction(4))).error_code == 0
    assert coordinator.questions == []


# -- readers -----------------------------------------------------------------------------------------------------------


async def test_a_waiting_reader_of_committed_data_is_answered_when_the_marker_comes(
    house: House, coordinator: Coordinator
) -> None:
    """The response also lists aborted transactions (TXN-21, TXN-23)."""
    await sent(house, of_transaction(value=b"open"))
    reader = await house.broker.client(house.my_port)
    waiting = asyncio.create_task(fetch(reader, "orders", isolation=READ_COMMITTED, max_wait_ms=20_000))
    await house.broker.until(lambda: bool(held(house).delayed_operations))
    await produce(house.mine, "orders", batch(b"plain"), acks=-1)
    assert (await fetch(house.mine, "orders")).last_stable_offset == 0
    assert not waiting.done()
    assert await marked(house, committed=False) == 0
    result = await waiting
    assert (result.high_watermark, result.last_stable_offset) == (3, 3)
    assert [(transaction.producer_id, transaction.first_offset) for transaction in result.aborted_transactions] == [
        (7, 0)
    ]
    assert values(result.records)[:2] == [b"open", b"plain"]


@pytest.mark.parametrize("version", [4, 11, 12, 17])
async def test_the_aborted_list_is_empty_or_null_as_observed(
    house: House, coordinator: Coordinator, version: int
) -> None:
    topic_id = held(house).topic_id if version >= 13 else bytes(16)
    await produce(house.mine, "orders", batch(b"a"))

    async def listed(offset: int, isolation: int) -> Any:
        answer = await fetch(house.mine, "orders", offset, version=version, isolation=isolation, topic_id=topic_id)
        return answer.aborted_transactions

    assert [await listed(offset, READ_COMMITTED) for offset in (0, 1)] == [[], []]
    assert not await listed(9, READ_COMMITTED)
    assert not await listed(0, 0)
    await sent(house, of_transaction())
    await marked(house, committed=False)
    for offset, expected in ((0, [(7, 1)]), (1, [(7, 1)]), (2, [(7, 1)]), (3, [])):
        result = await listed(offset, READ_COMMITTED)
        assert [(item.producer_id, item.first_offset) for item in result] == expected
    assert await listed(9, READ_COMMITTED) is None
    assert await listed(1, 0) is None


async def test_old_clients_get_the_data_without_markers(house: House, coordinator: Coordinator) -> None:
    """Old clients know neither aborted transactions nor control records (REC-31)."""
    await sent(house, of_transaction(value=b"open"))
    await marked(house, committed=False)
    await produce(house.mine, "orders", batch(b"plain"))
    shown = []
    for offset in (0, 1, 2):
        records = (await fetch(house.mine, "orders", offset, version=3)).records
        shown.append([message.offset for entry in read_entries(records) for message in [read_message(records, entry)]])
    assert shown == [[0], [2], [2]], "the marker has a segment of its own: its time is not that of the data"


# -- markers and producers ---------------------------------------------------------------------------------------------


async def test_only_the_cluster_itself_ends_transactions(house: House, coordinator: Coordinator) -> None:
    await sent(house, of_transaction())
    marker = WritableTxnMarker(
        producer_id=7,
        producer_epoch=0,
        transaction_result=True,
        topics=[WritableTxnMarkerTopic(name=f"{MINE}.orders", partition_indexes=[0, 9])],
        coordinator_epoch=0,
    )
    request = WriteTxnMarkersRequest(markers=[marker])
    tenant = await house.broker.internal_client(MINE)
    for version in (0, 1):
        answer = await tenant.call(ApiKey.WRITE_TXN_MARKERS, version, request)
        assert [line.error_code for line in answer.markers[0].topics[0].partitions] == [31, 31]
    await house.mine.send(ApiKey.WRITE_TXN_MARKERS, 1, request)
    assert await house.mine.is_closed(), "a tenant's port does not know the call"
    cluster = await house.broker.internal_client(CLUSTER_USER)
    answer = await cluster.call(ApiKey.WRITE_TXN_MARKERS, 1, request)
    assert [line.error_code for line in answer.markers[0].topics[0].partitions] == [0, 3]
    assert held(house).last_stable_offset == 2


async def test_a_marker_is_answered_when_it_is_replicated_or_the_time_is_over(
    house: House, coordinator: Coordinator
) -> None:
    await sent(house, of_transaction())
    partition = held(house)
    partition.become_leader(partition.leader_epoch, (1, 2), (1, 2), 1, 0)
    assert await marked(house, committed=True) == ErrorCode.REQUEST_TIMED_OUT
    services = house.broker.broker.services
    ending = asyncio.create_task(marked(house, committed=True))
    await house.broker.until(lambda: partition.log_end_offset == 3)
    partition.update_follower_fetch_state(2, 1, 3, 0, services.clock.monotonic_ms())
    assert await ending == 0
    assert await marked(house, committed=True, epoch=-1) == ErrorCode.INVALID_REQUEST


async def test_producers_are_described_by_the_leader_to_who_may_read(house: House, coordinator: Coordinator) -> None:
    await sent(house, of_transaction(epoch=2))
    await produce(house.mine, "orders", batch(b"a", producer_id=9, producer_epoch=0, base_sequence=5))

    async def described(client: Any, name: str, *indexes: int) -> list[Any]:
        wanted = [DescribeProducersTopic(name=name, partition_indexes=list(indexes))]
        answer = await client.call(ApiKey.DESCRIBE_PRODUCERS, 0, DescribeProducersRequest(topics=wanted))
        return list(answer.topics[0].partitions)

    result, empty, unknown = await described(house.mine, "orders", 0, 1, 7)
    shown = [
        (
            producer.producer_id,
            producer.producer_epoch,
            producer.last_sequence,
            producer.coordinator_epoch,
            producer.current_txn_start_offset,
        )
        for producer in result.active_producers
    ]
    assert shown == [(7, 2, 0, -1, 0), (9, 0, 5, -1, -1)]
    assert (empty.error_code, empty.active_producers, unknown.error_code) == (0, [], 3)
    await marked(house, committed=True, epoch=2)
    (after,) = await described(house.mine, "orders", 0)
    assert after.active_producers[0].current_txn_start_offset == -1
    assert after.active_producers[0].coordinator_epoch == 0
    assert [line.error_code for line in await described(house.theirs, "orders", 0)] == [3]
    assert [line.error_code for line in await described(house.mine, "a/b", 0)] == [17]
    held(house, 2).resign()
    assert [line.error_code for line in await described(house.mine, "orders", 2)] == [6]
