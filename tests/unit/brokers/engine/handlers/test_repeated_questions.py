"""Repetitions in one request, whose response could be much longer than the request."""

from __future__ import annotations

import pytest

from brokers.engine.handlers.common import long_requests
from brokers.engine.handlers.groups import find_coordinator
from brokers.engine.handlers.transactions import describing
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.groups import DescribeGroupsRequest, FindCoordinatorRequest
from brokers.engine.protocol.messages.offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from brokers.engine.protocol.messages.producers import DescribeTransactionsRequest
from tests.unit.brokers.engine.handlers.conftest import House
from tests.unit.brokers.engine.handlers.offsets_asking import commit, coordinator_ready

ORDERS = ("orders", 0)
REFUSED = int(ErrorCode.INVALID_REQUEST)


@pytest.fixture
async def ready(house: House) -> House:
    await house.topic("orders")
    await coordinator_ready(house.mine, "g", "h", "i")
    await commit(house.mine, {ORDERS: 5})
    return house


async def test_a_group_that_is_described_again_and_again_is_refused(
    ready: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_requests, "REPEATED_IDS_MAX", 2)
    request = DescribeGroupsRequest(groups=["g", "g", "g", "g", "h", "g"])
    result = (await ready.mine.call(ApiKey.DESCRIBE_GROUPS, 5, request)).groups
    assert [(item.group_id, item.error_code) for item in result] == [
        *[("g", 0)] * 3, ("g", REFUSED), ("h", 0), ("g", REFUSED),
    ]  # fmt: skip


async def test_a_group_whose_offsets_are_fetched_again_and_again_is_refused(
    ready: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_requests, "REPEATED_IDS_MAX", 1)
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)] * 3)
    result = (await ready.mine.call(ApiKey.OFFSET_FETCH, 8, request)).groups
    assert [(item.error_code, len(item.topics)) for item in result] == [(0, 1), (0, 1), (REFUSED, 0)]


async def test_a_partition_whose_offset_is_fetched_again_and_again_is_refused(
    ready: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_requests, "REPEATED_ELEMENTS_MAX", 3)
    for count, error in ((3, 0), (4, 0), (5, REFUSED)):
        topics = [OffsetFetchRequestTopic(name="orders", partition_indexes=[0])] * count
        answer = await ready.mine.call(ApiKey.OFFSET_FETCH, 7, OffsetFetchRequest(group_id="g", topics=topics))
        assert (answer.error_code, len(answer.topics)) == (error, 0 if error else count)
    several = [OffsetFetchRequestTopics(name="orders", partition_indexes=[0, 0, 0])]
    groups = [OffsetFetchRequestGroup(group_id=name, topics=several) for name in ("g", "h", "i")]
    answer = await ready.mine.call(ApiKey.OFFSET_FETCH, 8, OffsetFetchRequest(groups=groups))
    assert [item.error_code for item in answer.groups] == [0, REFUSED, REFUSED]


async def test_many_distinct_partitions_are_no_repetition(ready: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_requests, "REPEATED_ELEMENTS_MAX", 3)
    topics = [OffsetFetchRequestTopic(name=name, partition_indexes=list(range(9))) for name in ("orders", "others")]
    answer = await ready.mine.call(ApiKey.OFFSET_FETCH, 7, OffsetFetchRequest(group_id="g", topics=topics))
    assert (answer.error_code, [len(topic.partitions) for topic in answer.topics]) == (0, [9, 9])


async def test_keys_beyond_the_limit_are_answered_with_an_error(ready: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find_coordinator, "KEYS_MAX", 1)
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=["g", "h"])
    result = (await ready.mine.call(ApiKey.FIND_COORDINATOR, 4, request)).coordinators
    assert [(item.key, item.error_code, item.node_id) for item in result] == [("g", 0, 1), ("h", REFUSED, -1)]


async def test_transactions_beyond_the_limit_are_answered_with_an_error(
    ready: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(describing, "IDS_PER_REQUEST_MAX", 4)
    monkeypatch.setattr(long_requests, "REPEATED_IDS_MAX", 1)
    request = DescribeTransactionsRequest(transactional_ids=["a", "a", "a", "b", "c"])
    result = (await ready.mine.call(ApiKey.DESCRIBE_TRANSACTIONS, 0, request)).transaction_states
    assert [item.transactional_id for item in result] == ["a", "a", "a", "b", "c"]
    assert [item.error_code == REFUSED for item in result] == [False, False, True, False, True]
