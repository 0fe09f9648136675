"""Reader of the brokers' audit records of administration by clients, from the cluster's own topic."""

from __future__ import annotations

from confluent_kafka import Consumer, TopicPartition

from brokers.contract.audit import AUDIT_TOPIC, AuditEvent
from brokers.contract.process import CLUSTER_USER
from tests.testkit.engine import EngineCluster


def audit_events(cluster: EngineCluster, instance_id: str) -> list[AuditEvent]:
    """Returns the events of one instance in the order of their time."""
    broker = cluster.brokers[0]
    consumer = Consumer(
        {
            "bootstrap.servers": f"{broker.settings.internal_host}:{broker.settings.internal_port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": CLUSTER_USER,
            "sasl.password": broker.secret,
            "group.id": "tests",
            "enable.auto.commit": False,
        }
    )
    events = []
    try:
        for index in consumer.list_topics(AUDIT_TOPIC, timeout=10).topics[AUDIT_TOPIC].partitions:
            partition = TopicPartition(AUDIT_TOPIC, index, 0)
            consumer.assign([partition])
            end = consumer.get_watermark_offsets(partition, timeout=10)[1]
            next_offset = 0
            while next_offset < end:
                message = consumer.poll(5.0)
                assert message is not None and message.error() is None
                next_offset = (message.offset() or 0) + 1
                events.append(AuditEvent.from_json(message.value() or b""))
    finally:
        consumer.close()
    return sorted((event for event in events if event.instance_id == instance_id), key=lambda event: event.at_ms)
