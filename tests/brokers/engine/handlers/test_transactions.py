"""Transactions over the wire: a whole one, the codes of each call, and what tenants see of one another (TXN-5…10,
TXN-26, TXN-28, CKA-16).
"""

from __future__ import annotations

import time

import pytest

from brokers.contract import documents, paths
from brokers.contract.process import CLUSTER_USER
from brokers.engine.cluster.tree import Create
from brokers.engine.coordinators.transactions import limits
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.producers import DescribeTransactionsRequest
from brokers.engine.protocol.messages.topics import DeleteTopicsRequest
from brokers.engine.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from brokers.engine.records.batch import TRANSACTIONAL
from brokers.engine.records.builder import Record, build_batch
from tests.brokers.engine.handlers.conftest import MINE, House
from tests.brokers.engine.handlers.transactional import (
    GROUP,
    Transactional,
    coordinated,
    initialise,
    listed,
)
from tests.support.records import fetch, produce, values

NONE = 0
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
NOT_ATTEMPTED = ErrorCode.OPERATION_NOT_ATTEMPTED
FENCED = ErrorCode.PRODUCER_FENCED


@pytest.fixture
def overrides() -> dict[str, str]:
    return {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}


async def sent(producer: Transactional, topic: str, sequence: int, *data: bytes) -> int:
    """Produces one batch of the transaction."""
    now_ms = time.time_ns() // 1_000_000
    records = build_batch(
        [Record(now_ms, None, value) for value in data],
        attributes=TRANSACTIONAL,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=sequence,
    )
    answer = await produce(producer.client, topic, bytes(records), acks=-1, transactional_id=producer.name)
    return int(answer.error_code)


async def read(house: House, topic: str, isolation: int = 1) -> list[bytes | None]:
    """What a reader of committed records may look at, aborted ones included; control batches are left out."""
    answer = await fetch(house.mine, topic, isolation=isolation)
    return [value for value in values(answer.records) if value is None or not value.startswith(b"\0\0\0\0\0\0")]


@pytest.mark.parametrize("committed", [True, False])
async def test_a_transaction_is_invisible_until_it_ends(house: House, committed: bool) -> None:
    await house.topic()
    producer = await Transactional.begin(house.mine, "tx")

    assert await producer.add(("orders", 0)) == {("orders", 0): NONE}
    assert await sent(producer, "orders", 0, b"a", b"b") == NONE
    assert await read(house, "orders") == []
    assert await read(house, "orders", isolation=0) == [b"a", b"b"]
    assert await producer.end(committed) == NONE
    await producer.reaches("CompleteCommit" if committed else "CompleteAbort")

    assert await read(house, "orders") == [b"a", b"b"]
    aborted = (await fetch(house.mine, "orders", isolation=1)).aborted_transactions
    assert [one.producer_id for one in aborted] == ([] if committed else [producer.producer_id])


async def test_the_next_transaction_of_the_same_producer_follows_at_once(house: House) -> None:
    await house.topic(partitions=2)
    producer = await Transactional.begin(house.mine, "tx")
    for round_ in range(3):
        await producer.add(("orders", 0))
        assert await sent(producer, "orders", round_, b"%d" % round_) == NONE
        assert await producer.end(committed=True) == NONE
        await producer.reaches("CompleteCommit")

    assert await read(house, "orders") == [b"0", b"1", b"2"]


async def test_the_second_of_a_name_fences_the_first(house: House) -> None:
    """TXN-26: the zombie's produce gets 47, its EndTxn 90 (47 in old versions), and nothing of it becomes visible."""
    await house.topic()
    zombie = await Transactional.begin(house.mine, "tx")
    await zombie.add(("orders", 0))
    assert await sent(zombie, "orders", 0, b"never") == NONE

    second = await Transactional.begin(house.mine, "tx")

    assert second.producer_id == zombie.producer_id
    assert second.producer_epoch == zombie.producer_epoch + 2
    assert await sent(zombie, "orders", 1, b"zombie") == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await zombie.end(True) == FENCED
    assert await zombie.end(True, version=1) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await zombie.add(("orders", 0)) == {("orders", 0): FENCED}
    assert await zombie.add(("orders", 0), version=1) == {("orders", 0): ErrorCode.INVALID_PRODUCER_EPOCH}
    assert await zombie.add_offsets("group", version=1) in (
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    )
    aborted = (await fetch(house.mine, "orders", isolation=1)).aborted_transactions
    assert [one.producer_id for one in aborted] == [zombie.producer_id]


async def test_a_transaction_that_takes_too_long_is_aborted(house: House) -> None:
    await house.topic()
    producer = await Transactional.begin(house.mine, "tx", timeout_ms=300)
    await producer.add(("orders", 0))
    assert await sent(producer, "orders", 0, b"too late") == NONE

    await producer.reaches("CompleteAbort")

    assert await producer.end(True) == FENCED
    assert (await initialise(house.mine, "tx", identity=producer.identity)).error_code == FENCED
    again = await Transactional.begin(house.mine, "tx")
    assert again.producer_epoch == producer.producer_epoch + 2


@pytest.mark.parametrize(("version", "code"), [(3, ErrorCode.INVALID_PRODUCER_EPOCH), (4, FENCED), (5, FENCED)])
async def test_an_epoch_of_the_past_is_told_in_words_its_version_knows(
    house: House, version: int, code: ErrorCode
) -> None:
    producer = await Transactional.begin(house.mine, "tx")
    await Transactional.begin(house.mine, "tx")

    assert (await initialise(house.mine, "tx", version=version, identity=producer.identity)).error_code == code


@pytest.mark.parametrize("timeout_ms", [0, -5, 900_001])
async def test_a_timeout_out_of_bounds_is_refused(house: House, timeout_ms: int) -> None:
    await coordinated(house.mine, "tx")

    answer = await initialise(house.mine, "tx", timeout_ms=timeout_ms)

    assert answer.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert (answer.producer_id, answer.producer_epoch) == (-1, -1)


async def test_an_empty_name_and_one_that_is_too_long_are_refused(house: House) -> None:
    await coordinated(house.mine, "tx")

    for name in ("", "x" * (limits.ID_BYTES_MAX + 1)):
        assert (await initialise(house.mine, name)).error_code == ErrorCode.INVALID_REQUEST
    assert (await initialise(house.mine, "x" * limits.ID_BYTES_MAX)).error_code == NONE
    producer = Transactional(house.mine, "", 1, 0)
    await house.topic()
    assert await producer.end(True) == ErrorCode.INVALID_REQUEST
    assert await producer.add_offsets("group") == ErrorCode.INVALID_REQUEST
    assert await producer.add(("orders", 0)) == {("orders", 0): ErrorCode.INVALID_REQUEST}
    assert (await producer.describe()).error_code == ErrorCode.INVALID_REQUEST


async def test_before_there_is_a_coordinator_everything_is_to_be_asked_again(house: House) -> None:
    await house.topic()
    producer = Transactional(house.mine, "tx", 1, 0)

    codes = {
        (await initialise(house.mine, "tx")).error_code,
        await producer.end(True),
        (await producer.add(("orders", 0)))["orders", 0],
        (await producer.describe()).error_code,
    }

    assert codes <= {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}


async def test_a_stranger_to_the_name_is_no_producer_of_it(house: House) -> None:
    await house.topic()
    producer = await Transactional.begin(house.mine, "tx")
    stranger = Transactional(house.mine, "tx", producer.producer_id + 1, 0)

    assert await stranger.add(("orders", 0)) == {("orders", 0): ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    assert await stranger.end(True) == ErrorCode.INVALID_PRODUCER_ID_MAPPING


async def test_an_end_without_a_transaction_is_out_of_place(house: House) -> None:
    producer = await Transactional.begin(house.mine, "tx")

    assert await producer.end(True) == ErrorCode.INVALID_TXN_STATE


# -- AddPartitionsToTxn ------------------------------------------------------------------------------------------------


async def test_one_bad_partition_spoils_the_others(house: House) -> None:
    """TXN-7: all or nothing."""
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


async def lock(house: House, topic: str) -> None:
    """Nobody in this house may write to it."""
    internal = f"{MINE}.{topic}"
    document = documents.InstanceTopicDocument(name=topic, produce_ips=("203.0.113.7",))
    folder = Create(paths.instance_topics(MINE))
    write = Create(paths.instance_topic(MINE, internal), document.to_json())
    announce = Create(paths.CHANGE_PREFIX, documents.change_to_json([f"topics/{internal}"]), sequence=True)
    await house.broker.tree.commit([folder, write, announce])
    current = house.broker.broker.current
    await house.broker.until(lambda: current.image.topics[internal].produce_ips)


async def test_a_topic_that_may_not_be_written_to_spoils_the_others(house: House) -> None:
    await house.topic()
    await house.topic("locked")
    await lock(house, "locked")
    producer = await Transactional.begin(house.mine, "tx")

    codes = await producer.add(("orders", 0), ("locked", 0))

    assert codes == {("orders", 0): NOT_ATTEMPTED, ("locked", 0): ErrorCode.TOPIC_AUTHORIZATION_FAILED}


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state", "ins-bbbbbbbb.orders"])
async def test_what_is_not_the_tenants_is_not_there(house: House, name: str) -> None:
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
    """TXN-27, for several transactions with answers of their own."""
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
    assert [one.transactional_id for one in answer.results_by_transaction] == [
        inside, inside, "ins-bbbbbbbb.tx", inside, inside,
    ]  # fmt: skip
    codes = [one.topic_results[0].results_by_partition[0].partition_error_code for one in answer.results_by_transaction]
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

    codes = await house.broker.broker.engine.verify_transaction("ins-aaaaaaaa.tx", *producer.identity, partitions)

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
    """A producer asks for the group's coordinator only after this was accepted."""
    producer = await Transactional.begin(house.mine, "tx")

    assert await producer.add_offsets("group") == ErrorCode.COORDINATOR_NOT_AVAILABLE
    await house.broker.until(lambda: "__consumer_offsets" in house.broker.broker.current.image.topics)

    assert await producer.add_offsets("group") == NONE


# -- names of tenants --------------------------------------------------------------------------------------------------


async def test_tenants_use_the_same_name_without_meeting(house: House) -> None:
    mine = await Transactional.begin(house.mine, "tx")
    theirs = await Transactional.begin(house.theirs, "tx")

    assert mine.producer_id != theirs.producer_id
    assert (mine.producer_epoch, theirs.producer_epoch) == (0, 0)
    spy = Transactional(house.theirs, "tx", *mine.identity)
    assert await spy.end(True) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    spy.name = "ins-aaaaaaaa.tx"
    assert await spy.end(True) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert (await spy.describe()).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


async def test_a_tenant_lists_its_own_transactions(house: House) -> None:
    mine = await Transactional.begin(house.mine, "tx")
    await Transactional.begin(house.theirs, "secret")
    cluster = await house.broker.internal_client(CLUSTER_USER)

    (one,) = (await listed(house.mine)).transaction_states
    assert (one.transactional_id, one.producer_id, one.transaction_state) == ("tx", mine.producer_id, "Empty")
    everything = {one.transactional_id for one in (await listed(cluster)).transaction_states}
    assert everything == {"ins-aaaaaaaa.tx", "ins-bbbbbbbb.secret"}


async def test_transactions_are_listed_by_state_producer_and_duration(house: House) -> None:
    await house.topic()
    idle = await Transactional.begin(house.mine, "idle")
    open_ = await Transactional.begin(house.mine, "open")
    await open_.add(("orders", 0))

    async def names(version: int = 1, **filters: object) -> set[str]:
        return {one.transactional_id for one in (await listed(house.mine, version, **filters)).transaction_states}

    assert await names() == await names(0) == {"idle", "open"}
    assert await names(state_filters=["Ongoing"]) == {"open"}
    assert await names(state_filters=["Empty", "Ongoing"]) == {"idle", "open"}
    assert await names(producer_id_filters=[idle.producer_id, 999]) == {"idle"}
    assert await names(state_filters=["Ongoing"], duration_filter=600_000) == set()
    assert await names(state_filters=["Ongoing"], duration_filter=-1) == {"open"}
    unknown = await listed(house.mine, state_filters=["Nonsense", "ongoing", "Dead"])
    assert unknown.unknown_state_filters == ["Nonsense", "ongoing"]
    assert unknown.transaction_states == []


async def test_a_transaction_is_described_to_its_owner(house: House) -> None:
    await house.topic(partitions=3)
    producer = await Transactional.begin(house.mine, "tx", timeout_ms=45_000)
    await producer.add(("orders", 2))
    now_ms = house.broker.broker.clock.now_ms()

    found = await producer.describe()

    assert found.error_code == NONE
    assert (found.transactional_id, found.transaction_state) == ("tx", "Ongoing")
    assert (found.producer_id, found.producer_epoch) == producer.identity
    assert found.transaction_timeout_ms == 45_000
    assert 0 <= now_ms - found.transaction_start_time_ms < 60_000
    request = DescribeTransactionsRequest(transactional_ids=["tx", "nobody"])
    answer = await house.mine.call(ApiKey.DESCRIBE_TRANSACTIONS, 0, request)
    codes = [one.error_code for one in answer.transaction_states]
    assert codes == [NONE, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND]


async def test_a_deleted_topic_does_not_keep_its_transaction_open(house: House) -> None:
    """TXN-12: a partition that is gone counts as done."""
    await house.topic()
    await house.topic("kept")
    producer = await Transactional.begin(house.mine, "tx")
    await producer.add(("orders", 0), ("kept", 0))
    request = DeleteTopicsRequest(topics=[], topic_names=["orders"], timeout_ms=5_000)
    assert (await house.mine.call(ApiKey.DELETE_TOPICS, 5, request)).responses[0].error_code == NONE

    assert await producer.end(True) == NONE

    await producer.reaches("CompleteCommit")
