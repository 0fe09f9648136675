"""Storage of instances on an upstream broker: measured sizes, and bytes that were forwarded since."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
import structlog

from brokers.engine.capacity.room import FULL, StorageRoom
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.codec import decode_request, encode_response
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from brokers.engine.upstream.connection import UpstreamLost
from brokers.engine.upstream.storage import UpstreamStorage

MINE, THEIRS = "ins-aaaaaaaa", "ins-bbbbbbbb"
MANY = 60_000


class Broker:
    """An upstream broker with replicas of the given sizes by topic, and its only connection."""

    def __init__(self, sizes_by_topic: dict[str, list[int]], version: int = 4) -> None:
        self.sizes_by_topic = sizes_by_topic
        self.versions = {int(ApiKey.DESCRIBE_LOG_DIRS): (1, version)}
        self.is_allowed = True
        self.is_closed = False
        # Called while a request is on its way.
        self.meanwhile: Any = lambda: None

    async def connect(self) -> Any:
        self.is_closed = False
        return self

    async def exchange(self, api_key: int, version: int, _: str, body: bytes, *, bytes_max: int) -> tuple[bytes, int]:
        assert decode_request(api_key, version, body, 0, len(body)).topics is None
        topics = [
            DescribeLogDirsTopic(
                name=name,
                partitions=[
                    DescribeLogDirsPartition(partition_index=index, partition_size=size, offset_lag=0)
                    for index, size in enumerate(sizes)
                ],
            )
            for name, sizes in self.sizes_by_topic.items()
        ]
        response = DescribeLogDirsResponse(results=[DescribeLogDirsResult(log_dir="/data", topics=topics)])
        if not self.is_allowed:
            code = int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            response = DescribeLogDirsResponse(error_code=code if version >= 3 else 0, results=[])
        self.meanwhile()
        frame = encode_response(api_key, version, response)
        assert len(frame) <= bytes_max
        return frame, 0

    def close(self) -> None:
        self.is_closed = True


def bounded(storage: UpstreamStorage, left_bytes: int) -> StorageRoom:
    """Gives each instance the same room of some bytes."""
    room = StorageRoom()
    room.credit_bytes = left_bytes
    storage.room_of = lambda _instance_id: room
    return room


@pytest.mark.parametrize("version", [1, 2, 3, 4])
async def test_replicas_of_instances_are_summed_and_topics_of_others_ignored(version: int) -> None:
    sizes = {f"{MINE}.a": [5, 7], f"{MINE}.b": [1], f"{THEIRS}.a": [100], "orders": [9], "ins-short.a": [9]}
    storage = UpstreamStorage(Broker(sizes, version).connect)
    await storage.measure_upstream()
    assert await storage.measure([MINE, THEIRS, "ins-cccccccc"]) == {MINE: 13, THEIRS: 100, "ins-cccccccc": 0}
    assert storage.replicas_by_topic(MINE) == {"a": {0: 5, 1: 7}, "b": {0: 1}}
    assert storage.bytes_by_instance[MINE] == 13


async def test_bytes_that_were_forwarded_count_until_a_measurement_has_them() -> None:
    broker = Broker({f"{MINE}.a": [100]})
    storage = UpstreamStorage(broker.connect)
    bounded(storage, 1_000)
    await storage.measure_upstream()
    storage.spend(MINE, 50)
    assert storage.measure_now(MINE) == 150
    broker.sizes_by_topic[f"{MINE}.a"] = [150]
    broker.meanwhile = lambda: storage.spend(MINE, 7)
    await storage.measure_upstream()
    assert storage.measure_now(MINE) == 157, "those of the time of the measurement may not be in it"


@pytest.mark.parametrize("version", [2, 4])
async def test_without_sizes_the_last_ones_and_all_forwarded_bytes_remain(version: int) -> None:
    broker = Broker({f"{MINE}.a": [100]}, version)
    storage = UpstreamStorage(broker.connect)
    bounded(storage, 1_000)
    await storage.measure_upstream()
    broker.is_allowed = False
    with structlog.testing.capture_logs() as logs:
        for _ in range(3):
            storage.spend(MINE, 10)
            await storage.measure_upstream()
    assert storage.measure_now(MINE) == 130
    (entry,) = logs
    assert "DESCRIBE on the cluster" in entry["reason"]
    broker.is_allowed = True
    await storage.measure_upstream()
    assert storage.measure_now(MINE) == 100


async def test_a_refusal_of_the_sizes_lets_forwarded_bytes_be_reported() -> None:
    broker = Broker({f"{MINE}.a": [100]})
    broker.is_allowed = False
    storage = UpstreamStorage(broker.connect)
    assert not storage.is_known
    await storage.measure_upstream()
    assert storage.is_known


async def test_an_upstream_that_is_gone_leaves_the_figures() -> None:
    async def refuse() -> Any:
        raise UpstreamLost("gone")

    storage = UpstreamStorage(cast(Any, refuse))
    bounded(storage, 1_000)
    storage.spend(MINE, 10)
    await storage.measure_upstream()
    assert storage.measure_now(MINE) == 10
    assert not storage.is_known, "an empty storage must not be reported"


async def test_a_produce_beyond_the_room_is_refused_and_not_counted() -> None:
    storage = UpstreamStorage(Broker({}).connect)
    room = bounded(storage, 100)
    assert storage.spend(MINE, 60) == (0, "")
    room.is_full = True
    code, message = storage.spend(MINE, 60)
    assert code == FULL
    assert "storage of the instance is used up" in message
    assert storage.measure_now(MINE) == 60


async def test_others_have_turns_while_many_replicas_are_measured() -> None:
    storage = UpstreamStorage(Broker({f"{MINE}.t{number}": [1] * 10 for number in range(MANY // 10)}).connect)
    measuring = asyncio.create_task(storage.measure_upstream())
    turns = 0
    while not measuring.done():
        turns += 1
        await asyncio.sleep(0)
    assert storage.measure_now(MINE) == MANY
    assert turns > MANY // 1_000
