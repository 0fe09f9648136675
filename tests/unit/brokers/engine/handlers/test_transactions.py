"""Transactions over the wire: a whole one, the error codes of each call, and the isolation of tenants (TXN-5…10,
TXN-26, TXN-28, CKA-16).
"""

from __future__ import annotations

import time

import pytest

from brokers.contract.process import CLUSTER_USER
from brokers.engine.coordinators import limits
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.producers import DescribeTransactionsRequest
from brokers.engine.protocol.messages.topics import DeleteTopicsRequest
from brokers.engine.records.batch import TRANSACTIONAL
from brokers.engine.records.builder import Record, build_batch
from tests.testkit.records import fetch, produce, values
from tests.unit.brokers.engine.handlers.conftest import House
from tests.unit.brokers.engine.handlers.transactional import (
    Transactional,
    coordinated,
    initialise,
    listed,
)

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
    """Returns the records up to the last stable offset, aborted ones included, without control batches."""
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
    assert [item.producer_id for item in aborted] == ([] if committed else [producer.producer_id])


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
    """The zombie's produce gets 47, its EndTxn 90 (47 in old versions), and its records stay invisible (TXN-26)."""
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
    assert [item.producer_id for item in aborted] == [zombie.producer_id]


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
async def test_a_fenced_epoch_has_an_error_code_its_version_knows(house: House, version: int, code: ErrorCode) -> None:
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

    for name in ("", "x" * (limits.TRANSACTIONAL_ID_BYTES_MAX + 1)):
        assert (await initialise(house.mine, name)).error_code == ErrorCode.INVALID_REQUEST
    assert (await initialise(house.mine, "x" * limits.TRANSACTIONAL_ID_BYTES_MAX)).error_code == NONE
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

    (state,) = (await listed(house.mine)).transaction_states
    assert (state.transactional_id, state.producer_id, state.transaction_state) == ("tx", mine.producer_id, "Empty")
    everything = {state.transactional_id for state in (await listed(cluster)).transaction_states}
    assert everything == {"ins-aaaaaaaa.tx", "ins-bbbbbbbb.secret"}


async def test_transactions_are_listed_by_state_producer_and_duration(house: House) -> None:
    await house.topic()
    idle = await Transactional.begin(house.mine, "idle")
    open_ = await Transactional.begin(house.mine, "open")
    await open_.add(("orders", 0))

    async def names(version: int = 1, **filters: object) -> set[str]:
        return {state.transactional_id for state in (await listed(house.mine, version, **filters)).transaction_states}

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

    result = await producer.describe()

    assert result.error_code == NONE
    assert (result.transactional_id, result.transaction_state) == ("tx", "Ongoing")
    assert (result.producer_id, result.producer_epoch) == producer.identity
    assert result.transaction_timeout_ms == 45_000
    assert 0 <= now_ms - result.transaction_start_time_ms < 60_000
    request = DescribeTransactionsRequest(transactional_ids=["tx", "nobody"])
    answer = await house.mine.call(ApiKey.DESCRIBE_TRANSACTIONS, 0, request)
    codes = [state.error_code for state in answer.transaction_states]
    assert codes == [NONE, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND]


async def test_a_deleted_topic_does_not_keep_its_transaction_open(house: House) -> None:
    """A deleted partition counts as done (TXN-12)."""
    await house.topic()
    await house.topic("kept")
    producer = await Transactional.begin(house.mine, "tx")
    await producer.add(("orders", 0), ("kept", 0))
    request = DeleteTopicsRequest(topics=[], topic_names=["orders"], timeout_ms=5_000)
    assert (await house.mine.call(ApiKey.DELETE_TOPICS, 5, request)).responses[0].error_code == NONE

    assert await producer.end(True) == NONE

    await producer.reaches("CompleteCommit")
