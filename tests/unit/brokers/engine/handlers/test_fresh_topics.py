"""Topics just created by another broker: a broker reads the change log before it answers that they are unknown."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from brokers.contract import paths
from brokers.engine.cluster.errors import StoreUnavailable
from brokers.engine.handlers.change_turns import CHANGE_LOG_READS_BURST, CHANGE_LOG_READS_PER_S, ChangeLogReadBudget
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from brokers.engine.protocol.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    DeleteTopicsRequest,
)
from brokers.engine.protocol.messages.transactions import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from tests.testkit.fake_store import FakeEnsemble
from tests.testkit.in_process import InProcessBroker
from tests.testkit.wire import WireClient
from tests.unit.brokers.engine.handlers.asking import config_of, create, wanted_topic

INSTANCE = "ins-aaaaaaaa"
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@dataclass
class Late:
    """Two brokers, of which the second does not watch for changes. The requests come from the instance's owner."""

    one: InProcessBroker
    two: InProcessBroker
    there: WireClient
    here: WireClient
    looks: list[str]

    async def make(self, name: str, partitions: int = 1) -> None:
        (made,) = await create(self.there, wanted_topic(name, partitions))
        assert made.error_code == 0
        assert f"{INSTANCE}.{name}" not in self.two.broker.current.image.topics


@pytest.fixture
async def late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Late]:
    ensemble = FakeEnsemble()
    async with AsyncExitStack() as stack:
        one, two = [
            await stack.enter_async_context(InProcessBroker(tmp_path / str(id), broker_id=id, ensemble=ensemble))
            for id in (1, 2)
        ]
        await one.create_instance(INSTANCE)
        await two.until(lambda: INSTANCE in two.broker.current.image.instances)
        clients = [await broker.internal_client(INSTANCE) for broker in (one, two)]
        watcher, children = two.broker.watcher, two.tree.children
        looks: list[str] = []

        async def never() -> None:
            await asyncio.get_running_loop().create_future()

        async def counted(path: str, watch: Callable[[], Any] | None = None) -> list[str] | None:
            if path == paths.CHANGES and watch is None:
                looks.append(path)
            return await children(path, watch)

        monkeypatch.setattr(watcher, "_wait_for_rate_limit", never)
        monkeypatch.setattr(two.tree, "children", counted)
        yield Late(one, two, *clients, looks)


async def commit(client: WireClient, topic: str, partition: int = 0) -> int:
    line = OffsetCommitRequestPartition(partition_index=partition, committed_offset=1, committed_metadata="")
    request = OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name=topic, partitions=[line])])
    answer = await client.call(ApiKey.OFFSET_COMMIT, 8, request)
    return int(answer.topics[0].partitions[0].error_code)


async def add(client: WireClient, topic: str, partition: int = 0) -> int:
    named = AddPartitionsToTxnTopic(name=topic, partitions=[partition])
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="t", v3_and_below_producer_id=1, v3_and_below_producer_epoch=0,
        v3_and_below_topics=[named],
    )  # fmt: skip
    answer = await client.call(ApiKey.ADD_PARTITIONS_TO_TXN, 3, request)
    return int(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)


async def describe(client: WireClient, topic: str, _: int = 0) -> int:
    return int((await config_of(client, topic)).error_code)


async def delete(client: WireClient, topic: str, _: int = 0) -> int:
    request = DeleteTopicsRequest(topic_names=[topic], timeout_ms=1_000)
    return int((await client.call(ApiKey.DELETE_TOPICS, 5, request)).responses[0].error_code)


async def grow(client: WireClient, topic: str, count: int) -> int:
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=topic, count=count, assignments=None)], timeout_ms=1_000
    )
    return int((await client.call(ApiKey.CREATE_PARTITIONS, 3, request)).results[0].error_code)


@pytest.mark.parametrize("ask", [commit, add, describe])
async def test_a_topic_that_was_made_through_another_broker_is_known(late: Late, ask: Any) -> None:
    await late.make("orders")
    assert await ask(late.here, "orders") != UNKNOWN
    assert len(late.looks) == 1
    assert await ask(late.here, "orders") != UNKNOWN
    assert len(late.looks) == 1, "by then the image has it"


@pytest.mark.parametrize("ask", [commit, add])
async def test_a_partition_that_was_made_through_another_broker_is_known(late: Late, ask: Any) -> None:
    await late.make("orders")
    assert await ask(late.here, "orders") != UNKNOWN
    assert await grow(late.there, "orders", 3) == 0
    assert await ask(late.here, "orders", 2) != UNKNOWN
    assert await ask(late.here, "orders", 3) == UNKNOWN


@pytest.mark.parametrize("ask", [commit, add, describe, delete])
async def test_a_topic_that_is_nowhere_is_unknown_after_one_look(late: Late, ask: Any) -> None:
    assert await ask(late.here, "nowhere") == UNKNOWN
    assert len(late.looks) == 1


async def test_looks_are_bounded_whatever_is_asked(late: Late) -> None:
    clients = [await late.two.internal_client(INSTANCE) for _ in range(20)]
    began_s = asyncio.get_running_loop().time()
    for _ in range(10):
        codes = await asyncio.gather(*(commit(client, "nowhere") for client in clients))
        assert set(codes) == {UNKNOWN}
    took_s = asyncio.get_running_loop().time() - began_s
    assert 0 < len(late.looks) <= CHANGE_LOG_READS_BURST + CHANGE_LOG_READS_PER_S * took_s + 1


async def test_a_look_that_fails_leaves_the_answer_as_it_was(late: Late, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(path: str, watch: Callable[[], Any] | None = None) -> list[str]:
        raise StoreUnavailable("ZooKeeper is away")

    await late.make("orders")
    with monkeypatch.context() as patched:
        patched.setattr(late.two.tree, "children", fails)
        assert await commit(late.here, "orders") == UNKNOWN
    assert await commit(late.here, "orders") != UNKNOWN


def test_instances_share_a_budget_and_one_has_a_part_of_it() -> None:
    class Stopped:
        def monotonic_ms(self) -> int:
            return 1_000

        def now_ms(self) -> int:
            return 1_000

    looks = ChangeLogReadBudget(Stopped())
    assert sum(looks.take("ins-aaaaaaaa") for _ in range(100)) == CHANGE_LOG_READS_BURST
    others = sum(looks.take(f"ins-{number:08}") for number in range(1_000))
    assert 0 < others < 100
