"""A leader that was paused while another one was elected: it acknowledges nothing that it finds in its sockets (CTL-4,
REP-25).
"""

from __future__ import annotations

import signal
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from brokers.contract import paths
from brokers.contract.documents import PartitionStateDocument
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from tests.testkit.engine import EngineCluster, TestInstance, eventually
from tests.testkit.records import batch, produce_request
from tests.testkit.wire import WireClient

TOPIC = "orders"
SESSION_TIMEOUT_MS = 2_000
TIMEOUT_S = 30
VERSION = 9


def state_of(cluster: EngineCluster, instance: TestInstance) -> PartitionStateDocument:
    raw, _ = cluster.zookeeper.get(paths.partition_state(f"{instance.id}.{TOPIC}", 0))
    return PartitionStateDocument.from_json(raw)


async def test_a_leader_that_stood_still_acknowledges_nothing_in_its_old_epoch(
    zookeeper_address: str, tmp_path: Path
) -> None:
    with EngineCluster(zookeeper_address, tmp_path, size=2, session_timeout_ms=SESSION_TIMEOUT_MS) as cluster:
        instance = cluster.create_instance("ins-aaaaaaaa")
        admin = AdminClient({"bootstrap.servers": instance.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, 1, 2)])[TOPIC].result(TIMEOUT_S)
        eventually(lambda: len(state_of(cluster, instance).isr) == 2, "both replicas are in sync")
        before = state_of(cluster, instance)
        leader = next(broker for broker in cluster.brokers if broker.settings.broker_id == before.leader)
        port = instance.document.ports[before.leader]
        clients = [await WireClient.connect(port) for _ in range(2)]
        for acks, client in zip((1, -1), clients, strict=True):
            answer = await client.call(ApiKey.PRODUCE, VERSION, produce_request(TOPIC, batch(b"before"), acks=acks))
            assert answer.responses[0].partition_responses[0].error_code == 0

        assert leader.process is not None
        leader.process.send_signal(signal.SIGSTOP)
        try:
            for acks, client in zip((1, -1), clients, strict=True):
                await client.send(ApiKey.PRODUCE, VERSION, produce_request(TOPIC, batch(b"during"), acks=acks))
            eventually(lambda: state_of(cluster, instance).leader not in (-1, before.leader), "another one leads")
        finally:
            leader.process.send_signal(signal.SIGCONT)

        for client in clients:
            answer = await client.receive(ApiKey.PRODUCE, VERSION)
            line = answer.responses[0].partition_responses[0]
            assert line.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            await client.close()
        assert any(line.get("event") == "process_was_paused" for line in leader.log_lines())
        eventually(lambda: len(state_of(cluster, instance).isr) == 2, "it follows the one that leads")
