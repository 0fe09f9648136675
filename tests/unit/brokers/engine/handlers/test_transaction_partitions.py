"""AddPartitionsToTxn and AddOffsetsToTxn over the wire: all or nothing, and only the instance's topics (TXN-7, TXN-8,
TXN-27, CKA-16).
"""

from __future__ import annotations

import pytest

from brokers.contract.process import CLUSTER_USER
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from tests.unit.brokers.engine.handlers.conftest import House
from tests.unit.brokers.engine.handlers.transactional import GROUP, Transactional, coordinated

NONE = 0
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
NOT_ATTEMPTED = ErrorCode.OPERATION_NOT_ATTEMPTED


async def test_one_bad_partition_spoils_the_others(house: House) -> None:
    """All partitions are added or none (TXN-7)."""
    await house.topic(partitions=2)
    producer = await Transactional.begin(house.mine, "tx")

    codes = await producer.add(("orders", 0), ("orders", 7), ("nothing", 0), ("orders", 1))

    assert codes == {
        ("orders", 0): NOT_ATTEMPTED,
        ("orders", 7): UNKNOWN,
        ("nothing", 0): UNKNOWN,
        ("orders", 1): NOT_ATTEMPTED,
    }
    assert (await producer.describe()).transaction_state == "Empty"


async def test_a_topic_that_may_not_be_written_to_spoils_the_others(house: House) -> None:
    await house.topic()
    await house.topic("locked")
    await house.allow("locked", produce_ips=("203.0.113.7",))
    producer = await Transactional.begin(house.mine, "tx")

    codes = await producer.add(("orders", 0), ("locked", 0))

    assert codes == {("orders", 0): NOT_ATTEMPTED, ("locked", 0): ErrorCode.TOPIC_AUTHORIZATION_FAILED}


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state", "ins-bbbbbbbb.orders"])
async def test_partitions_of_other_tenants_do_not_exist(house: House, name: str) -> None:
    producer = await Transactional.begin(house.mine, "tx")

    assert await producer.add((name, 0)) == {(name, 0): UNKNOWN}


@pytest.mark.parametrize("version", [0, 1, 2, 3])
async def test_partitions_may_be_named_twice_and_in_any_version(house: House, version: int) -> None:
    await house.topic(partitions=3)
    producer = await Transactional.begin(house.mine, "tx")

    assert await producer.add(("orders", 2), ("orders", 0), ("orders", 2), version=version) == {
        ("orders", 2): NONE,
        ("orders", 0): NONE,
    }
    (topic,) = (await producer.describe()).topics
    assert (topic.topic, topic.partitions) == ("orders", [0, 2])


def batched(*transactions: AddPartitionsToTxnTransaction) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(transactions=list(transactions))


def transaction(producer: Transactional, name: str, topic: str, index: int, verify_only: bool) -> object:
    return AddPartitionsToTxnTransaction(
        transactional_id=name,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        verify_only=verify_only,
        topics=[AddPartitionsToTxnTopic(name=topic, partitions=[index])],
    )


async def test_only_brokers_ask_for_many_transactions_at_once(house: House) -> None:
    answer = await house.mine.call(ApiKey.ADD_PARTITIONS_TO_TXN, 4, batched())
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    as_owner = await house.broker.internal_client("ins-aaaaaaaa")
    answer = await as_owner.call(ApiKey.ADD_PARTITIONS_TO_TXN, 5, batched())
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.parametrize("version", [4, 5])
async def test_a_broker_asks_whether_partitions_are_part_of_transactions(house: House, version: int) -> None:
    """Several transactions in one request, each with its result (TXN-27)."""
    await house.topic(partitions=2)
    producer = await Transactional.begin(house.mine, "tx")
    await producer.add(("orders", 0))
    cluster = await house.broker.internal_client(CLUSTER_USER)
    inside = "ins-aaaaaaaa.tx"

    answer = await cluster.call(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        version,
        batched(
            transaction(producer, inside, "ins-aaaaaaaa.orders", 0, verify_only=True),
            transaction(producer, inside, "ins-aaaaaaaa.orders", 1, verify_only=True),
            transaction(producer, "ins-bbbbbbbb.tx", "ins-aaaaaaaa.orders", 0, verify_only=True),
            transaction(producer, inside, "ins-aaaaaaaa.gone", 0, verify_only=True),
            transaction(producer, inside, "ins-aaaaaaaa.orders", 1, verify_only=False),
        ),
    )

    assert answer.error_code == NONE
    assert [item.transactional_id for item in answer.results_by_transaction] == [
        inside, inside, "ins-bbbbbbbb.tx", inside, inside,
    ]  # fmt: skip
    codes = [
        item.topic_results[0].results_by_partition[0].partition_error_code for item in answer.results_by_transaction
    ]
    assert codes == [
        NONE,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        UNKNOWN,
        NONE,
    ]
    assert (await producer.describe()).topics[0].partitions == [0, 1]


async def test_a_leader_verifies_with_the_coordinator_in_the_same_broker(house: House) -> None:
    await house.topic(partitions=2)
    producer = await Transactional.begin(house.mine, "tx")
    await producer.add(("orders", 0))
    partitions = [("ins-aaaaaaaa.orders", 0), ("ins-aaaaaaaa.orders", 1)]

    codes = await house.broker.broker.services.coordination.verify_transaction(
        "ins-aaaaaaaa.tx", *producer.identity, partitions
    )

    assert codes == dict(zip(partitions, [NONE, ErrorCode.TRANSACTION_ABORTABLE], strict=True))


# -- AddOffsetsToTxn ---------------------------------------------------------------------------------------------------


async def test_the_offsets_of_a_group_become_part_of_the_transaction(house: House) -> None:
    producer = await Transactional.begin(house.mine, "tx")
    await coordinated(house.mine, "group", GROUP)

    for version in range(5):
        assert await producer.add_offsets("group", version) == NONE
    assert await producer.add_offsets("") == NONE, "observed of 3.9.1"

    described = await producer.describe()
    assert described.transaction_state == "Ongoing"
    assert described.topics == [], "the offsets topic is the cluster's own"
    cluster = await house.broker.internal_client(CLUSTER_USER)
    inside = Transactional(cluster, "ins-aaaaaaaa.tx", *producer.identity)
    assert {topic.topic for topic in (await inside.describe()).topics} == {"__consumer_offsets"}
    assert await producer.end(True) == NONE
    await producer.reaches("CompleteCommit")


async def test_offsets_have_their_topic_made_when_a_transaction_needs_it_first(house: House) -> None:
    """A producer looks for the group's coordinator only after this was accepted."""
    producer = await Transactional.begin(house.mine, "tx")

    assert await producer.add_offsets("group") == ErrorCode.COORDINATOR_NOT_AVAILABLE
    await house.broker.until(lambda: "__consumer_offsets" in house.broker.broker.current.image.topics)

    assert await producer.add_offsets("group") == NONE
