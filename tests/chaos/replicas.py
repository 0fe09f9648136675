"""Reads replicas from the directories of stopped brokers, and partition states from ZooKeeper."""

from __future__ import annotations

import json
from pathlib import Path

from brokers.contract import paths
from brokers.contract.documents import PartitionStateDocument, TopicDocument
from brokers.engine.coordinators.partitioning import partition_of
from brokers.engine.records import batch as layout
from tests.testkit.engine import BrokerProcess, EngineCluster


def topics_of(cluster: EngineCluster) -> dict[str, TopicDocument]:
    names = cluster.zookeeper.get_children(paths.TOPICS)
    return {name: TopicDocument.from_json(cluster.zookeeper.get(paths.topic(name))[0]) for name in names}


def states_of(cluster: EngineCluster) -> dict[tuple[str, int], PartitionStateDocument]:
    """Returns the state of every partition that has one, by topic and partition."""
    result = {}
    for name, topic in topics_of(cluster).items():
        for index in topic.assignment:
            path = paths.partition_state(name, index)
            if cluster.zookeeper.exists(path):
                result[name, index] = PartitionStateDocument.from_json(cluster.zookeeper.get(path)[0])
    return result


def all_in_sync(cluster: EngineCluster) -> bool:
    """True if every partition has a leader and all its replicas are in sync."""
    topics, states = topics_of(cluster), states_of(cluster)
    for name, topic in topics.items():
        for index, replicas in topic.assignment.items():
            state = states.get((name, index))
            if state is None or state.leader < 0 or set(state.isr) != set(replicas):
                return False
    return True


def leaders_of(cluster: EngineCluster) -> dict[str, int]:
    """Returns the leader epoch of every partition by `topic-partition`."""
    return {f"{name}-{index}": state.leader_epoch for (name, index), state in states_of(cluster).items()}


def coordinator_of(cluster: EngineCluster, state_topic: str, internal_id: str) -> BrokerProcess | None:
    """Returns the coordinator of a group or a transactional id."""
    topic = topics_of(cluster).get(state_topic)
    if topic is None:
        return None
    state = states_of(cluster).get((state_topic, partition_of(internal_id, len(topic.assignment))))
    brokers = {broker.settings.broker_id: broker for broker in cluster.brokers}
    return None if state is None else brokers.get(state.leader)


def stored_batches(directory: Path, end_offset: int) -> list[tuple[int, bytes]]:
    """Returns (base offset, batch) of each batch in a stopped broker's partition, up to `end_offset`."""
    result = []
    for file in sorted(directory.glob("*.log")):
        data = file.read_bytes()
        position = 0
        while position + layout.HEADER_BYTES <= len(data):
            header = layout.read_header(data, position)
            if header.base_offset >= end_offset or position + header.size_bytes > len(data):
                break
            result.append((header.base_offset, data[position : position + header.size_bytes]))
            position += header.size_bytes
    return result


def high_watermarks(data_dir: Path) -> dict[str, int]:
    """Returns the checkpointed high watermarks of a stopped broker by `topic-partition`."""
    lines = (data_dir / "replication-offset-checkpoint").read_text().splitlines()[2:]
    return {f"{topic}-{partition}": int(offset) for topic, partition, offset in (line.split() for line in lines)}


def say_states(cluster: EngineCluster) -> str:
    return json.dumps(
        {f"{name}-{index}": [state.leader, list(state.isr)] for (name, index), state in states_of(cluster).items()}
    )
