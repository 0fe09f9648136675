"""ZooKeeper's heap fits the limits of instances: filled with the smallest documents, which need the most memory for
their size.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest
from kazoo.client import KazooClient

from brokers.contract import documents, instance_limits, paths
from brokers.contract.acls import (
    ACL_BYTES_MAX,
    ENTRIES_MAX,
    AclDocument,
    AclEntry,
    AclOperation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from brokers.contract.documents import PartitionStateDocument
from brokers.contract.users import USERS_MAX, UserDocument
from brokers.engine.cluster import legacy_offsets, user_plans
from brokers.engine.cluster.in_flight_creations import CreatedTopic
from brokers.engine.cluster.quota_image import QuotaEntity, stored_bytes_of
from config.embedded import zookeeper_heap
from config.embedded.java import find_java
from instances.topics import allow_lists
from instances.topics.limits import ALLOW_LIST_BYTES_MAX
from tests.testkit.own_zookeeper import own_zookeeper

INSTANCES: Final = 20
PARTITIONS_EACH: Final = 75
# Of the server without documents: far less than what the product gives it, so that the documents decide.
SERVER_MB: Final = 40
CREATED_AT_ONCE: Final = 500
IN_FLIGHT_MAX: Final = 8

Nodes = Iterator[tuple[str, bytes]]


def quota_nodes(instance_id: str) -> Nodes:
    stored_bytes = 0
    for number in range(instance_limits.QUOTA_ENTITIES_MAX):
        entity = QuotaEntity(False, None, True, str(number))
        limits = {"producer_byte_rate": 1.0}
        stored_bytes += stored_bytes_of(instance_id, entity, limits)
        if stored_bytes > instance_limits.QUOTA_BYTES_MAX:
            return
        path = paths.quota_entity(instance_id, None, str(number), has_user=False, has_client=True)
        yield f"/config/{path}", documents.config_to_json({"producer_byte_rate": "1"})


def user_nodes(instance_id: str) -> Nodes:
    """Yields the smallest user documents of an instance, up to the limits of number and weight."""
    stored_bytes = 0
    yield paths.instance_users(instance_id), b""
    for number in range(USERS_MAX):
        document = UserDocument(name=str(number), created_at_ms=1)
        stored_bytes += user_plans.stored_bytes_of(str(number), document)
        if stored_bytes > instance_limits.USERS_BYTES_MAX:
            return
        yield paths.instance_user(instance_id, str(number)), document.to_json()


def topic_nodes(instance_id: str) -> Nodes:
    """Yields topics of one partition, up to the plan's limits of number and weight."""
    stored_bytes = 0
    state = PartitionStateDocument(
        leader=1, leader_epoch=7, controller_epoch=3, isr=(1, 2, 3), isr_broker_epochs=(10_000, 10_001, 10_002)
    ).to_json()
    for number in range(PARTITIONS_EACH):
        name = f"{instance_id}.{number}"
        topic = CreatedTopic(
            internal_name=name,
            user_name=str(number),
            instance_id=instance_id,
            topic_id=bytes(16),
            assignment={0: (1, 2, 3)},
            config={},
        )
        stored_bytes += topic.stored_bytes
        if stored_bytes > instance_limits.document_bytes_max(PARTITIONS_EACH):
            return
        yield paths.topic(name), topic.document.to_json()
        yield paths.topic_config(name), documents.config_to_json({})
        yield paths.topic_identity(name, topic.document.topic_id), b""
        yield paths.partitions(name), b""
        yield paths.partition(name, 0), b""
        yield paths.partition_state(name, 0), state


def allow_list_nodes(instance_id: str) -> Nodes:
    for number in range(ALLOW_LIST_BYTES_MAX // allow_lists.stored_bytes()):
        name = f"{instance_id}.a{number}"
        yield paths.instance_topic(instance_id, name), documents.InstanceTopicDocument(name=name).to_json()


def acl_nodes(instance_id: str) -> Nodes:
    yield paths.instance_acls(instance_id), b""
    entry = AclEntry("User:a", "*", AclOperation.READ, Permission.ALLOW)
    stored_bytes = 0
    for number in range(ENTRIES_MAX):
        pattern = ResourcePattern(ResourceType.TOPIC, str(number), PatternType.LITERAL)
        path = paths.instance_acl(instance_id, pattern.node_name)
        data = AclDocument(pattern=pattern, entries=frozenset({entry})).to_json()
        stored_bytes += len(path) + len(data) + instance_limits.NODE_BYTES
        if stored_bytes > ACL_BYTES_MAX:
            return
        yield path, data


def offset_nodes(instance_id: str) -> Nodes:
    group = f"{instance_id}.g"
    root, topic = f"{legacy_offsets.group_path(group)}/offsets", f"{instance_id}.t"
    yield legacy_offsets.group_path(group), b""
    yield root, b""
    yield f"{root}/{topic}", b""
    stored_bytes = 0
    for index in range(instance_limits.OLD_OFFSETS_BYTES_MAX):
        path = legacy_offsets.offset_path(group, topic, index)
        stored_bytes += legacy_offsets.node_bytes(path)
        if stored_bytes > instance_limits.OLD_OFFSETS_BYTES_MAX:
            return
        yield path, b"1234567890"


def create(client: KazooClient, nodes: Sequence[tuple[str, bytes]]) -> None:
    pending = []
    for start in range(0, len(nodes), CREATED_AT_ONCE):
        transaction = client.transaction()
        for path, data in nodes[start : start + CREATED_AT_ONCE]:
            transaction.create(path, data)
        pending.append(transaction.commit_async())
        if len(pending) >= IN_FLIGHT_MAX:
            pending.pop(0).get(60)
    for result in pending:
        assert not any(isinstance(item, Exception) for item in result.get(60))


@pytest.mark.long("config/embedded/zookeeper_heap.py")
def test_instances_at_their_limits_fit_into_the_heap_that_is_computed_for_them(tmp_path: Path) -> None:
    allowed = zookeeper_heap.bytes_allowed(INSTANCES, INSTANCES * PARTITIONS_EACH)
    heap_mb = SERVER_MB + round(allowed * zookeeper_heap.HEAP_BYTES_PER_BYTE / zookeeper_heap.MIB)
    count = 0
    java = find_java(tmp_path / "java")
    with own_zookeeper(tmp_path, java, heap_mb=heap_mb, options=("-Xlog:gc",)) as server:
        client = KazooClient(server.address)
        client.start(timeout=30)
        for path in paths.PERSISTENT_AT_START:
            client.ensure_path(path)
        for number in range(INSTANCES):
            instance_id = f"ins-{number:08}"
            client.ensure_path(paths.instance_topics(instance_id))
            kinds = (quota_nodes, user_nodes, topic_nodes, offset_nodes, allow_list_nodes, acl_nodes)
            nodes = [node for kind in kinds for node in kind(instance_id)]
            create(client, nodes)
            count += len(nodes)
        assert len(client.get_children("/config/clients")) > INSTANCES
        assert server.child.is_running and server.is_ready()
        client.stop()
        client.close()
    after_gc = [int(used) for used in re.findall(r"->(\d+)M\(", server.child.log_file.read_text())]
    print(f"{count} nodes of {allowed / 1e6:.1f} MB allowed, heap {heap_mb} MB, after collections {after_gc[-5:]} MB")
    assert "OutOfMemoryError" not in server.child.log_file.read_text()


def test_the_products_heap_is_that_of_all_instances_of_a_machine() -> None:
    assert zookeeper_heap.heap_mb() > zookeeper_heap.heap_mb(1, 50) > zookeeper_heap.BASE_MB
    assert zookeeper_heap.heap_mb() <= 1_536, "a machine of the smallest size runs it"
