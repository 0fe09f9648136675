"""Client of a cluster for operators, with internal names: replicas, reassignments, leader elections and sizes.

Requests are sent as the cluster's own user: Metadata, AlterPartitionReassignments, ListPartitionReassignments,
ElectLeaders and DescribeLogDirs (REP-31, REP-32).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kafka.errors import for_code
from kafka.protocol.admin.cluster import DescribeLogDirsRequest
from kafka.protocol.admin.topics import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)

from brokers.contract.partitions import PartitionKey
from brokers.dataplane.admin_client import require_ok, send_as_cluster
from brokers.dataplane.topics import TIMEOUT_MS, metadata_request
from brokers.models import Cluster

ALTER_REASSIGNMENTS_VERSION = 0
LIST_REASSIGNMENTS_VERSION = 0
ELECT_LEADERS_VERSION = 2
DESCRIBE_LOG_DIRS_VERSION = 4
PREFERRED, UNCLEAN = 0, 1
UNKNOWN_TOPIC = 3
NO_REASSIGNMENT = 85
ELECTION_NOT_NEEDED = 84


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionView:
    """Partition with broker ids; a `leader` of -1 means that there is none at the moment."""

    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """View of one broker: live brokers, requested partitions, and requested topics that do not exist."""

    brokers: frozenset[int]
    controller: int
    partitions: Mapping[PartitionKey, PartitionView]
    missing_topics: frozenset[str] = frozenset()
    topic_ids: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class OngoingReassignment:
    """Reassignment in progress; `replicas` includes adding and removing ones."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def original_replicas(self) -> tuple[int, ...]:
        """Replicas before the reassignment."""
        return tuple(replica for replica in self.replicas if replica not in self.adding)

    @property
    def target_replicas(self) -> tuple[int, ...]:
        """Replicas after the reassignment."""
        return tuple(replica for replica in self.replicas if replica not in self.removing)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSize:
    """Size of a replica on one broker, and its lag behind the leader in messages."""

    size_bytes: int
    lag: int


class ClusterAdminClient:
    """Client of a cluster. All methods raise `tenants.errors.Unavailable` if no broker answers.

    A refusal of one partition is part of the result.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def view(self, topics: Iterable[str] | None = None) -> ClusterView:
        """Returns the view of the named topics, or of all."""
        names = None if topics is None else sorted(set(topics))
        response = send_as_cluster(self._cluster, metadata_request(names))
        return ClusterView(
            brokers=frozenset(broker.node_id for broker in response.brokers),
            controller=response.controller_id,
            partitions={
                (topic.name, partition.partition_index): PartitionView(
                    leader=partition.leader_id, replicas=tuple(partition.replica_nodes), isr=tuple(partition.isr_nodes)
                )
                for topic in response.topics
                if not topic.error_code
                for partition in topic.partitions
            },
            missing_topics=frozenset(topic.name for topic in response.topics if topic.error_code == UNKNOWN_TOPIC),
            topic_ids={topic.name: str(topic.topic_id) for topic in response.topics if not topic.error_code},
        )

    def reassign(self, targets: Mapping[PartitionKey, Sequence[int] | None]) -> dict[PartitionKey, str]:
        """Starts reassignments; None cancels a running one. Returns refused partitions with the broker's reason.

        Requesting the current state, or cancelling a reassignment that does not run, is not refused.
        """
        if not targets:
            return {}
        topic_class = AlterPartitionReassignmentsRequest.ReassignableTopic
        topics = [
            topic_class(
                name=name,
                partitions=[
                    topic_class.ReassignablePartition(
                        partition_index=index,
                        replicas=None if (replicas := targets[name, index]) is None else list(replicas),
                    )
                    for index in indexes
                ],
            )
            for name, indexes in _indexes_by_topic(targets).items()
        ]
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=TIMEOUT_MS, topics=topics, version=ALTER_REASSIGNMENTS_VERSION
        )
        response = send_as_cluster(self._cluster, request)
        require_ok(response.error_code, response.error_message)
        return {
            (topic.name, partition.partition_index): _reason(partition)
            for topic in response.responses
            for partition in topic.partitions
            if partition.error_code not in (0, NO_REASSIGNMENT)
        }

    def reassignments(self) -> dict[PartitionKey, OngoingReassignment]:
        """Returns all reassignments in progress."""
        request = ListPartitionReassignmentsRequest(
            timeout_ms=TIMEOUT_MS, topics=None, version=LIST_REASSIGNMENTS_VERSION
        )
        response = send_as_cluster(self._cluster, request)
        require_ok(response.error_code, response.error_message)
        return {
            (topic.name, partition.partition_index): OngoingReassignment(
                replicas=tuple(partition.replicas),
                adding=tuple(partition.adding_replicas),
                removing=tuple(partition.removing_replicas),
            )
            for topic in response.topics
            for partition in topic.partitions
        }

    def elect_preferred(self, keys: Iterable[PartitionKey]) -> dict[PartitionKey, str]:
        """Makes the first replica of each partition its leader (REP-31). Returns refused partitions."""
        return self._elect(PREFERRED, keys)

    def elect_unclean(self, keys: Iterable[PartitionKey]) -> dict[PartitionKey, str]:
        """Makes a live replica the leader of each partition without leader, losing records that it does not have
        (REP-28).

        Live in-sync replicas have precedence. Returns refused partitions.
        """
        return self._elect(UNCLEAN, keys)

    def _elect(self, election_type: int, keys: Iterable[PartitionKey]) -> dict[PartitionKey, str]:
        topic_class = ElectLeadersRequest.TopicPartitions
        topics = [topic_class(topic=name, partitions=indexes) for name, indexes in _indexes_by_topic(keys).items()]
        if not topics:
            return {}
        request = ElectLeadersRequest(
            election_type=election_type, topic_partitions=topics, timeout_ms=TIMEOUT_MS, version=ELECT_LEADERS_VERSION
        )
        response = send_as_cluster(self._cluster, request)
        require_ok(response.error_code)
        return {
            (topic.topic, partition.partition_id): _reason(partition)
            for topic in response.replica_election_results
            for partition in topic.partition_result
            if partition.error_code not in (0, ELECTION_NOT_NEEDED)
        }

    def replica_sizes(self, broker: int, keys: Iterable[PartitionKey] | None = None) -> dict[PartitionKey, ReplicaSize]:
        """Returns the sizes of the replicas on one broker: those of `keys`, or all if it is None."""
        topic_class = DescribeLogDirsRequest.DescribableLogDirTopic
        topics = (
            None
            if keys is None
            else [topic_class(topic=name, partitions=indexes) for name, indexes in _indexes_by_topic(keys).items()]
        )
        request = DescribeLogDirsRequest(topics=topics, version=DESCRIBE_LOG_DIRS_VERSION)
        response = send_as_cluster(self._cluster, request, broker=broker)
        require_ok(response.error_code)
        return {
            (topic.name, partition.partition_index): ReplicaSize(
                size_bytes=partition.partition_size, lag=partition.offset_lag
            )
            for directory in response.results
            if not directory.error_code
            for topic in directory.topics
            for partition in topic.partitions
        }


def _indexes_by_topic(keys: Iterable[PartitionKey]) -> dict[str, list[int]]:
    result: dict[str, list[int]] = defaultdict(list)
    for topic, index in sorted(keys):
        result[topic].append(index)
    return dict(result)


def _reason(result: Any) -> str:
    error_class = for_code(result.error_code)
    return str(result.error_message or error_class.description or error_class.__name__)[:300]
