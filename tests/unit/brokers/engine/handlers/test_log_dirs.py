"""DescribeLogDirs for a tenant and for the cluster itself, and the effects of one broken disk of several (LOG-3)."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from brokers.engine.protocol import codec
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from brokers.engine.storage.files import StorageFailed
from brokers.engine.telemetry.admin_http import Request
from tests.testkit.in_process import SECRET, InProcessBroker
from tests.testkit.records import batch, fetch, produce
from tests.testkit.wire import WireClient
from tests.unit.brokers.engine.handlers.conftest import MINE, THEIRS, House


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    """A house with two log directories."""
    async with InProcessBroker(tmp_path, log_dirs=2) as broker:
        my_port = await broker.create_instance(MINE)
        their_port = await broker.create_instance(THEIRS)
        yield House(broker, await broker.client(my_port), await broker.client(their_port), my_port)


async def described(client: WireClient, *topics: tuple[str, list[int]], version: int = 4) -> Any:
    asked = [DescribableLogDirTopic(topic=name, partitions=indexes) for name, indexes in topics]
    answer = await client.call(ApiKey.DESCRIBE_LOG_DIRS, version, DescribeLogDirsRequest(topics=asked or None))
    assert answer.error_code == 0
    return answer.results


def asked(path: str) -> Request:
    """Returns a request to the admin port with the control secret."""
    return Request(path, {}, SECRET)


def sizes(results: Any) -> dict[tuple[str, int], int]:
    """Returns the sizes by topic and partition, over all directories."""
    return {
        (topic.name, line.partition_index): line.partition_size
        for result in results
        for topic in result.topics
        for line in topic.partitions
    }


@pytest.mark.parametrize("version", range(5))
async def test_partitions_are_shown_with_their_sizes_in_every_version(house: House, version: int) -> None:
    await house.topic(partitions=2)
    await produce(house.mine, "orders", batch(b"x" * 100), partition=1)
    size = len(batch(b"x" * 100))

    results = await described(house.mine, version=version)

    assert sizes(results) == {("orders", 0): 0, ("orders", 1): size}
    assert [(result.error_code, result.log_dir) for result in results] == [(0, "/log-dirs/0"), (0, "/log-dirs/1")]
    assert {(line.offset_lag, line.is_future_key) for r in results for t in r.topics for line in t.partitions} == {
        (0, False)
    }


async def test_only_what_is_asked_about_and_exists_is_shown(house: House) -> None:
    await house.topic(partitions=3)
    await house.topic("other")

    assert set(sizes(await described(house.mine, ("orders", [0, 2, 9, -1]), ("nothing", [0])))) == {
        ("orders", 0),
        ("orders", 2),
    }
    assert sizes(await described(house.mine, ("orders", []))) == {}


async def test_a_tenant_learns_nothing_of_others_and_of_the_disks(house: House) -> None:
    await house.topic()
    await house.broker.create_topic(house.theirs, "secret")

    results = await described(house.mine, ("secret", [0]), (f"{THEIRS}.secret", [0]), ("__usage", [0]))
    everything = await described(house.mine)

    assert sizes(results) == {}
    assert set(sizes(everything)) == {("orders", 0)}
    assert {(result.total_bytes, result.usable_bytes) for result in everything} == {(-1, -1)}
    request = codec.encode_request(ApiKey.DESCRIBE_LOG_DIRS, 4, DescribeLogDirsRequest(topics=None))
    assert str(house.broker.directory).encode() not in request
    assert all(str(house.broker.directory) not in result.log_dir for result in everything)


async def test_the_cluster_itself_sees_paths_volumes_and_all_topics(house: House) -> None:
    await house.topic()
    await house.broker.create_topic(house.theirs, "secret")
    client = await house.broker.internal_client("penstock")

    results = await described(client)

    assert [result.log_dir for result in results] == [str(path) for path in house.broker.config.data_dirs]
    assert {(f"{MINE}.orders", 0), (f"{THEIRS}.secret", 0), ("__usage", 0)} <= set(sizes(results))
    for result in results:
        assert result.total_bytes >= result.usable_bytes > 0


async def broken_disk(house: House) -> tuple[int, int]:
    """Breaks one of two disks; returns the indexes of the partitions on the broken disk and on the other one."""
    await house.topic(partitions=2)
    for index in range(2):
        await produce(house.mine, "orders", batch(b"a"), partition=index)
    table = house.broker.broker.table
    roots = [partition.log.root for partition in table if partition.topic.endswith(".orders")]
    assert len(set(roots)) == 2
    usage = next(partition.log.root for partition in table if partition.topic == "__usage")
    broken = next(p for p in table if p.topic.endswith(".orders") and p.log.root != usage)
    # An open descriptor survives its file, but not a failed disk.
    for partition in table:
        for segment in partition.log.segments:
            segment.file.close()
    shutil.rmtree(broken.log.root)
    return broken.index, 1 - broken.index


async def test_a_disk_that_is_gone_takes_only_its_partitions(house: House) -> None:
    lost, kept = await broken_disk(house)

    assert (await produce(house.mine, "orders", batch(b"b"), partition=lost)).error_code == 56
    assert (await produce(house.mine, "orders", batch(b"b"), partition=kept)).base_offset == 1
    assert (await fetch(house.mine, "orders", partition=lost)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (await fetch(house.mine, "orders", partition=kept)).high_watermark == 2
    results = await described(house.mine)
    assert sorted(result.error_code for result in results) == [0, ErrorCode.KAFKA_STORAGE_ERROR]
    assert set(sizes(results)) == {("orders", kept)}
    # New partitions go to the remaining disk.
    await house.topic("later", partitions=3)
    assert len([key for key in sizes(await described(house.mine)) if key[0] == "later"]) == 3
    await produce(house.mine, "later", batch(b"c"))


async def test_a_broken_disk_is_shown_in_status_readiness_and_metrics(house: House) -> None:
    lost, _ = await broken_disk(house)
    await produce(house.mine, "orders", batch(b"b"), partition=lost)
    answer = house.broker.broker.admin._answer

    status = json.loads(answer(asked("/v1/status")).body)
    metrics = answer(asked("/metrics")).body.decode()

    assert sorted(line["offline_reason"] is None for line in status["log_directories"]) == [False, True]
    # Each directory has one partition of the broker's own topics.
    assert {line["partitions"] for line in status["log_directories"]} == {2}
    assert "penstock_broker_offline_log_directories 1" in metrics
    assert "penstock_broker_offline_replicas 2" in metrics
    assert answer(asked("/readyz")).status == 503


async def test_the_broker_stops_when_the_last_disk_is_gone(house: House) -> None:
    broker = house.broker.broker
    for root in broker.config.data_dirs:
        broker.table.on_directory_failure(StorageFailed(root, OSError(5, "input/output error")))

    broker.log_maintenance.maintain()

    assert broker._stop.fault is not None
    assert "input/output error" in broker._stop.fault
    broker._stop.fault = None


async def test_a_partition_of_a_missing_disk_does_not_begin_again_on_another(tmp_path: Path) -> None:
    async with InProcessBroker(tmp_path, log_dirs=2) as broker:
        house = House(broker, await broker.client(await broker.create_instance(MINE)), None, 0)  # type: ignore[arg-type]
        lost, kept = await broken_disk(house)
        ensemble = broker.ensemble
        gone = next(root for root in broker.config.data_dirs if not root.exists())
    # The replacement cannot be a log directory.
    shutil.rmtree(gone, ignore_errors=True)
    gone.write_text("not a directory")

    async with InProcessBroker(tmp_path, log_dirs=2, ensemble=ensemble) as broker:
        port = broker.broker.listeners.get(MINE)
        assert port is not None
        client = await broker.client(port.port)

        assert (await produce(client, "orders", batch(b"b"), partition=lost)).error_code == 56
        assert (await fetch(client, "orders", partition=lost)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await fetch(client, "orders", partition=kept)).high_watermark == 1
        assert set(sizes(await described(client))) == {("orders", kept)}
