"""Fairness of a broker's own work: creating the coordinators' topics, loading them, opening ports.

The broker reports its longest turns (`tests.testkit.measured_broker`) in CPU time, so that other load of the machine
does not count.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from brokers.contract import paths
from brokers.contract.documents import InstanceDocument, InstanceSettings, change_to_json
from brokers.engine.assembly.log_maintenance import MAINTENANCE_INTERVAL_S
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.groups import FindCoordinatorRequest
from brokers.engine.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.adversarial.conftest import with_topic
from tests.adversarial.hostile import TOPIC
from tests.testkit import depth
from tests.testkit.engine import HOST, MB, BrokerProcess, EngineCluster, eventually
from tests.testkit.ports import unused_port
from tests.testkit.wire import WireClient

# The default of a cluster; other tests have five.
STATE_PARTITIONS: Final = 50
GROUP, TRANSACTION = 0, 1
# Processor time. The aim is 10 ms; processors that two tests share take twice as long.
TURN_CPU_MS_MAX: Final = 20.0


INSTANCES: Final = depth.number_from("PENSTOCK_OWN_WORK_INSTANCES", short=200, long=1_000)
PARTITIONS: Final = depth.number_from("PENSTOCK_OWN_WORK_PARTITIONS", short=200, long=1_000)
OFFSETS: Final = depth.number_from("PENSTOCK_OWN_WORK_OFFSETS", short=10_000, long=90_000)
OFFSETS_PER_COMMIT: Final = 1_000
LOADING_CODES: Final = {int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)}
# The broker closes very many logs.
STOP_TIMEOUT_S: Final = 60


@pytest.fixture
def measured(zookeeper_address: str, tmp_path: Path) -> Iterator[EngineCluster]:
    cluster = EngineCluster(
        zookeeper_address,
        tmp_path,
        overrides={
            "offsets.topic.num.partitions": str(STATE_PARTITIONS),
            "transaction.state.log.num.partitions": str(STATE_PARTITIONS),
        },
        module=("tests.testkit.measured_broker",),
    )
    with cluster:
        yield cluster
        cluster.brokers[0].stop(STOP_TIMEOUT_S)


def longest_turns(cluster: EngineCluster, since_s: float) -> list[dict[str, Any]]:
    """Returns the turns that ended after `since_s` (wall clock)."""
    file = cluster.brokers[0].settings_file.with_name("turns.json")
    turns = [turn for turn in json.loads(file.read_text()) if turn["at_s"] >= since_s]
    for turn in turns[:8]:
        print(turn)
    return turns


async def until_coordinated(port: int, key_type: int, key: str) -> None:
    client = await WireClient.connect(port)
    async with asyncio.timeout(30):
        while True:
            request = FindCoordinatorRequest(key="", key_type=key_type, coordinator_keys=[key])
            answer = await client.call(ApiKey.FIND_COORDINATOR, 4, request)
            if not answer.coordinators[0].error_code:
                break
            await asyncio.sleep(0.02)
    await client.close()


async def test_the_first_group_and_transaction_of_a_cluster_do_not_hold_the_loop(measured: EngineCluster) -> None:
    instance = with_topic(measured, "ins-aaaaaaaa")
    port = next(iter(instance.document.ports.values()))
    began_s = time.time()
    await until_coordinated(port, GROUP, "g")
    await until_coordinated(port, TRANSACTION, "t")
    await asyncio.sleep(1)
    turns = longest_turns(measured, began_s)
    assert turns[0]["cpu_ms"] <= TURN_CPU_MS_MAX


def test_very_many_ports_are_opened_in_turns(measured: EngineCluster) -> None:
    began_s = time.time()
    ids = [f"ins-{number:08}" for number in range(INSTANCES)]
    documents = {}
    for id in ids:
        port = unused_port()
        documents[id] = InstanceDocument(
            generation=1,
            produce_bps=MB,
            consume_bps=MB,
            capacity_bytes=MB,
            endpoints={1: f"{HOST}:{port}"},
            ports={1: port},
            settings=InstanceSettings(),
        )
    measured.zookeeper.ensure_path(paths.INSTANCES)
    measured.zookeeper.ensure_path(paths.CHANGES)
    for id, document in documents.items():
        measured.zookeeper.create(paths.instance(id), document.to_json())
    change = change_to_json([f"instances/{id}" for id in ids])
    measured.zookeeper.create(paths.CHANGE_PREFIX, change, sequence=True)
    (broker,) = measured.brokers
    eventually(lambda: broker.admin("/v1/status")["instances"] == INSTANCES, "all ports are open", timeout_s=60)
    assert broker.admin("/v1/status")["unopened_listeners"] == 0
    assert longest_turns(measured, began_s)[0]["cpu_ms"] <= TURN_CPU_MS_MAX


async def test_partitions_that_lie_there_cost_no_long_turns(measured: EngineCluster) -> None:
    instance = measured.create_instance("ins-aaaaaaaa")
    admin = AdminClient({"bootstrap.servers": instance.bootstrap})
    for future in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)]).values():
        future.result(120)
    (broker,) = measured.brokers
    eventually(lambda: broker.admin("/v1/status")["leaders"] > PARTITIONS, "all are led", timeout_s=120)
    began_s = time.time()
    await asyncio.sleep(2 * MAINTENANCE_INTERVAL_S)
    turns = longest_turns(measured, began_s)
    assert not turns or turns[0]["cpu_ms"] <= TURN_CPU_MS_MAX


async def test_coordinators_are_loaded_in_turns(measured: EngineCluster) -> None:
    instance = measured.create_instance("ins-aaaaaaaa")
    admin = AdminClient({"bootstrap.servers": instance.bootstrap})
    for future in admin.create_topics([NewTopic(TOPIC, OFFSETS_PER_COMMIT, 1)]).values():
        future.result(120)
    port = next(iter(instance.document.ports.values()))
    await until_coordinated(port, GROUP, "g")
    client = await WireClient.connect(port)
    lines = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=1, committed_metadata="")
        for index in range(OFFSETS_PER_COMMIT)
    ]
    for number in range(OFFSETS // OFFSETS_PER_COMMIT):
        topic = OffsetCommitRequestTopic(name=TOPIC, partitions=lines)
        request = OffsetCommitRequest(group_id=f"g{number}", member_id="", topics=[topic])
        async with asyncio.timeout(30):
            while codes := await commit_errors(client, request):
                assert codes <= LOADING_CODES
    await client.close()
    (broker,) = measured.brokers
    assert broker.stop(STOP_TIMEOUT_S) == 0
    broker.start()
    broker.wait_until_ready()
    eventually(lambda: loaded_count(broker) >= OFFSETS, "all offsets are loaded", timeout_s=60)
    await asyncio.sleep(0.2)
    loads = [turn for turn in longest_turns(measured, 0) if turn["what"].startswith("Runtime._load")]
    print("loading:", loads[:5])
    assert not loads or loads[0]["cpu_ms"] <= TURN_CPU_MS_MAX


async def commit_errors(client: WireClient, request: OffsetCommitRequest) -> set[int]:
    """Commits offsets, and returns the error codes."""
    answer = await client.call(ApiKey.OFFSET_COMMIT, 8, request)
    return {line.error_code for line in answer.topics[0].partitions} - {0}


def loaded_count(broker: BrokerProcess) -> int:
    lines = (line for line in broker.log_lines() if line.get("event") == "coordinator_loaded")
    return sum(line["records"] for line in lines)
