"""Longest legal requests of a hostile tenant at a gateway: turns of its event loop by CPU time, and requests that hold
memory while the upstream does not answer. Gateway and upstream run in the test's own loop.
"""

from __future__ import annotations

import asyncio
import gc
from asyncio.events import Handle
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from benchmarks.longest_turns import LongestTurn
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.codec import encode_request
from brokers.engine.protocol.headers import encode_request_frame
from brokers.engine.protocol.messages import fetch, list_offsets, metadata, offsets, produce
from brokers.engine.scheduling.permits import DELAYED_BYTES_PER_INSTANCE_MAX
from brokers.engine.upstream.connection import Admit, Body
from tests.component.gateway.conftest import HOSTILE, NEIGHBOUR, TOPIC, Running, write_and_read
from tests.testkit.wire import WireClient

PARTITIONS = 24_000
TOPICS = 12_000
# Decided by the best of some attempts: 4 to 9 ms of Python sources, and 30 to 60 ms if such a request is one turn.
TURN_MS_MAX = 20.0
ATTEMPTS = 4
ANSWER_S_MAX = 60.0
# No topic can have this name, so that the gateway refuses it.
REFUSED = "orders/"
WAITING = 60
PAUSE_S = 0.01


def produced(name: str) -> Any:
    data = [produce.PartitionProduceData(index=index, records=b"") for index in range(PARTITIONS)]
    topic = produce.TopicProduceData(name=name, partition_data=data)
    return produce.ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=[topic])


def fetched(name: str) -> Any:
    partitions = [fetch.FetchPartition(partition=index) for index in range(PARTITIONS)]
    return fetch.FetchRequest(max_wait_ms=0, topics=[fetch.FetchTopic(topic=name, partitions=partitions)])


def committed(name: str) -> Any:
    partitions = [offsets.OffsetCommitRequestPartition(partition_index=index) for index in range(PARTITIONS)]
    topic = offsets.OffsetCommitRequestTopic(name=name, partitions=partitions)
    return offsets.OffsetCommitRequest(group_id="group", topics=[topic])


def listed(name: str) -> Any:
    partitions = [list_offsets.ListOffsetsPartition(partition_index=index) for index in range(PARTITIONS)]
    topic = list_offsets.ListOffsetsTopic(name=name, partitions=partitions)
    return list_offsets.ListOffsetsRequest(topics=[topic])


def described(name: str) -> Any:
    return metadata.MetadataRequest(
        topics=[metadata.MetadataRequestTopic(name=f"{name}{number}") for number in range(TOPICS)]
    )


REQUESTS: list[tuple[ApiKey, int, Callable[[str], Any]]] = [
    (ApiKey.PRODUCE, 9, produced),
    (ApiKey.FETCH, 12, fetched),
    (ApiKey.OFFSET_COMMIT, 8, committed),
    (ApiKey.LIST_OFFSETS, 7, listed),
    (ApiKey.METADATA, 11, described),
]


@pytest.fixture
def longest(monkeypatch: pytest.MonkeyPatch) -> Iterator[LongestTurn]:
    """A gateway collects garbage seldom and in small parts; the modules of this process are not a gateway's."""
    monkeypatch.setattr(Handle, "_run", Handle._run)  # restored afterwards
    result = LongestTurn()
    result.install()
    gc.collect()
    gc.freeze()
    gc.disable()
    yield result
    gc.enable()
    gc.unfreeze()


@pytest.mark.parametrize("name", [TOPIC, REFUSED])
@pytest.mark.parametrize(("api_key", "version", "make"), REQUESTS, ids=[api_key.name for api_key, _, _ in REQUESTS])
async def test_the_longest_request_takes_no_long_turn(
    running: Running, longest: LongestTurn, api_key: ApiKey, version: int, make: Callable[[str], Any], name: str
) -> None:
    await write_and_read(running.ports[HOSTILE], b"first")
    frame = encode_request_frame(api_key, version, 1, "hostile", encode_request(api_key, version, make(name)))
    client = await WireClient.connect(running.ports[HOSTILE])
    turns_ms = []
    for _ in range(ATTEMPTS):
        longest.reset()
        await client.send_raw(frame)
        async with asyncio.timeout(ANSWER_S_MAX):
            await client.receive_frame()
        turns_ms.append(longest.ms)
    await client.close()
    assert min(turns_ms) < TURN_MS_MAX, longest.description()
    await write_and_read(running.ports[NEIGHBOUR], b"neighbour")


class Silent:
    """A connection to an upstream that never answers."""

    is_closed = False

    def __init__(self, requests: list[int]) -> None:
        self._requests = requests

    async def exchange(
        self, api_key: int, version: int, client_id: str | None, body: Body, admit: Admit
    ) -> tuple[bytes, int]:
        self._requests.append(api_key)
        await asyncio.Event().wait()
        raise AssertionError("nothing sets the event")

    def close(self) -> None:
        """Nothing is open."""


async def test_decoded_produces_of_an_instance_take_limited_memory_while_the_upstream_is_silent(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, requests = running.gateway.nodes[0], list[int]()
    connect = node.connect

    async def silent() -> Any:
        return Silent(requests)

    monkeypatch.setattr(node, "connect", silent)
    frame = encode_request_frame(ApiKey.PRODUCE, 9, 1, "hostile", encode_request(ApiKey.PRODUCE, 9, produced(TOPIC)))
    clients = [await WireClient.connect(running.ports[HOSTILE]) for _ in range(WAITING)]
    for client in clients:
        await client.send_raw(frame)
    at_once_max = DELAYED_BYTES_PER_INSTANCE_MAX // len(frame)
    async with asyncio.timeout(ANSWER_S_MAX):
        while len(requests) < at_once_max:  # noqa: ASYNC110
            await asyncio.sleep(PAUSE_S)
    monkeypatch.setattr(node, "connect", connect)
    await write_and_read(running.ports[NEIGHBOUR], b"neighbour")
    # One more keeps the memory in which requests are decoded.
    assert len(requests) <= at_once_max + 1 < WAITING
    for client in clients:
        await client.close()
