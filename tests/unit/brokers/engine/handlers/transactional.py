"""A minimal transactional producer on `WireClient`: each step is one call, in any version."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.groups import FindCoordinatorRequest
from brokers.engine.protocol.messages.producers import (
    DescribeTransactionsRequest,
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionDescription,
)
from brokers.engine.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from tests.testkit.wire import WireClient

GROUP, TRANSACTION = 0, 1
RETRIABLE = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)


TIMEOUT_S = 20.0
POLL_S = 0.01


async def until(holds: Callable[[], Awaitable[bool]], what: str) -> None:
    """Retries until the condition holds; fails after TIMEOUT_S."""
    try:
        async with asyncio.timeout(TIMEOUT_S):
            while not await holds():  # noqa: ASYNC110 (any condition: there is no event to wait for)
                await asyncio.sleep(POLL_S)
    except TimeoutError:
        raise AssertionError(f"not in time: {what}") from None


async def coordinated(client: WireClient, key: str, key_type: int = TRANSACTION) -> None:
    """Waits until the id has a coordinator."""

    async def found() -> bool:
        request = FindCoordinatorRequest(key=key, key_type=key_type, coordinator_keys=[key])
        answer = await client.call(ApiKey.FIND_COORDINATOR, 4, request)
        return bool(answer.coordinators[0].error_code == 0)

    await until(found, f"{key} is coordinated")


async def initialise(
    client: WireClient, name: str, *, version: int = 5, timeout_ms: int = 60_000, identity: tuple[int, int] = (-1, -1)
) -> InitProducerIdResponse:
    """Sends one InitProducerId."""
    request = InitProducerIdRequest(
        transactional_id=name,
        transaction_timeout_ms=timeout_ms,
        producer_id=identity[0],
        producer_epoch=identity[1],
    )
    answer: InitProducerIdResponse = await client.call(ApiKey.INIT_PRODUCER_ID, version, request)
    return answer


@dataclass
class Transactional:
    """A producer with its id and epoch."""

    client: WireClient
    name: str
    producer_id: int
    producer_epoch: int

    @classmethod
    async def begin(cls, client: WireClient, name: str, timeout_ms: int = 60_000) -> Transactional:
        """Begins like a client, with retries until it gets an epoch."""
        await coordinated(client, name)
        answer = await initialise(client, name, timeout_ms=timeout_ms)

        async def given() -> bool:
            nonlocal answer
            if answer.error_code in RETRIABLE:
                answer = await initialise(client, name, timeout_ms=timeout_ms)
            return answer.error_code not in RETRIABLE

        await until(given, f"{name} is initialised")
        assert answer.error_code == 0, answer
        return cls(client, name, answer.producer_id, answer.producer_epoch)

    @property
    def identity(self) -> tuple[int, int]:
        return self.producer_id, self.producer_epoch

    async def add(self, *partitions: tuple[str, int], version: int = 3) -> dict[tuple[str, int], int]:
        """Adds partitions; returns the error code of each."""
        topics: dict[str, list[int]] = {}
        for topic, index in partitions:
            topics.setdefault(topic, []).append(index)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=item, partitions=at) for item, at in topics.items()],
        )
        answer = await self.client.call(ApiKey.ADD_PARTITIONS_TO_TXN, version, request)
        return {
            (topic.name, line.partition_index): line.partition_error_code
            for topic in answer.results_by_topic_v3_and_below
            for line in topic.results_by_partition
        }

    async def add_offsets(self, group_id: str, version: int = 4) -> int:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.name,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            group_id=group_id,
        )
        return int((await self.client.call(ApiKey.ADD_OFFSETS_TO_TXN, version, request)).error_code)

    async def end(self, committed: bool, version: int = 4) -> int:
        request = EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            committed=committed,
        )
        return int((await self.client.call(ApiKey.END_TXN, version, request)).error_code)

    async def describe(self) -> TransactionDescription:
        request = DescribeTransactionsRequest(transactional_ids=[self.name])
        answer = await self.client.call(ApiKey.DESCRIBE_TRANSACTIONS, 0, request)
        state: TransactionDescription = answer.transaction_states[0]
        return state

    async def reaches(self, state: str) -> None:
        """Waits until the transaction is in `state`."""

        async def reached() -> bool:
            return (await self.describe()).transaction_state == state

        await until(reached, f"{self.name} is {state}")


async def listed(client: WireClient, version: int = 1, **filters: Any) -> ListTransactionsResponse:
    answer: ListTransactionsResponse = await client.call(
        ApiKey.LIST_TRANSACTIONS, version, ListTransactionsRequest(**filters)
    )
    return answer
