"""Requests about offsets: OffsetFetch, OffsetCommit and OffsetDelete of groups, ListOffsets of partition leaders."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kafka.protocol.consumer.group import (
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
)
from kafka.protocol.consumer.offsets import ListOffsetsRequest

from brokers.dataplane.admin_client import cluster_of, domain_error_of, require_ok
from brokers.dataplane.coordinators import GROUP, RETRIABLE_ERRORS, send_to_coordinator
from brokers.dataplane.scatter import Target, first_response, pair_with_targets, scatter, targets
from brokers.dataplane.topics import metadata_request
from instances.groups.interfaces import CommittedOffset, Partition
from tenants.errors import DomainError

OFFSET_FETCH_VERSION = 8
OFFSET_COMMIT_VERSION = 8
OFFSET_DELETE_VERSION = 0
LIST_OFFSETS_VERSION = 7
NO_GENERATION = -1
NO_OFFSET = -1
NOT_EMPTY_CODES = frozenset({25, 27, 82, 22})
GROUP_NOT_FOUND = 69
INVALID_GROUP = 24
NON_EMPTY_GROUP = 68
NON_EMPTY_GROUP_TEXT = "The group has running members. Stop them first; Kafka refuses it otherwise."
ERROR_TEXTS = {86: "Members of the group read this topic."}


def offset_fetch_request(ids: Sequence[str]) -> Any:
    """Returns an OffsetFetch request for all offsets of some groups."""
    group_class = OffsetFetchRequest.OffsetFetchRequestGroup
    groups = [group_class(group_id=group, topics=None) for group in ids]
    return OffsetFetchRequest(groups=groups, require_stable=False, version=OFFSET_FETCH_VERSION)


def committed_offsets(group: Any) -> tuple[CommittedOffset, ...]:
    """Returns the offsets of one group in a response, by topic and partition."""
    result = [
        CommittedOffset(
            topic=topic.name,
            partition=partition.partition_index,
            offset=partition.committed_offset,
            leader_epoch=partition.committed_leader_epoch,
            metadata=partition.metadata or "",
        )
        for topic in group.topics
        for partition in topic.partitions
        if not partition.error_code and partition.committed_offset > NO_OFFSET
    ]
    return tuple(sorted(result, key=lambda offset: offset.topic_partition))


def commit(instance_id: str, group: str, offsets: Sequence[CommittedOffset]) -> dict[Partition, DomainError]:
    """Implements `instances.groups.interfaces.GroupAdminClient.commit` (GRP-21).

    It uses generation -1, which a group with members refuses.
    """
    topic_class = OffsetCommitRequest.OffsetCommitRequestTopic
    by_topic: dict[str, list[Any]] = defaultdict(list)
    for offset in offsets:
        by_topic[offset.topic].append(
            topic_class.OffsetCommitRequestPartition(
                partition_index=offset.partition,
                committed_offset=offset.offset,
                committed_leader_epoch=offset.leader_epoch,
                committed_metadata=offset.metadata,
            )
        )

    def new_request() -> Any:
        return OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=NO_GENERATION,
            member_id="",
            group_instance_id=None,
            topics=[topic_class(name=name, partitions=partitions) for name, partitions in by_topic.items()],
            version=OFFSET_COMMIT_VERSION,
        )

    response = send_to_coordinator(instance_id, GROUP, group, new_request, _coordinator_error)
    results = _error_code_by_partition(response)
    if any(code in NOT_EMPTY_CODES for code in results.values()):
        require_ok(NON_EMPTY_GROUP, NON_EMPTY_GROUP_TEXT)
    return _error_by_partition(results)


def delete(instance_id: str, group: str, partitions: Sequence[Partition]) -> dict[Partition, DomainError]:
    """Implements `instances.groups.interfaces.GroupAdminClient.delete_offsets` (GRP-27)."""
    topic_class = OffsetDeleteRequest.OffsetDeleteRequestTopic
    topics = [
        topic_class(
            name=name, partitions=[topic_class.OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
        )
        for name, indexes in by_topic(partitions).items()
    ]

    def new_request() -> Any:
        return OffsetDeleteRequest(group_id=group, topics=topics, version=OFFSET_DELETE_VERSION)

    response = send_to_coordinator(instance_id, GROUP, group, new_request, lambda reply: int(reply.error_code))
    require_ok(response.error_code, NON_EMPTY_GROUP_TEXT if response.error_code == NON_EMPTY_GROUP else None)
    return _error_by_partition(_error_code_by_partition(response))


def bounds(instance_id: str, partitions: Iterable[Partition], at_ms_or_position: int) -> dict[Partition, int]:
    """Implements `instances.groups.interfaces.GroupAdminClient.bounds`, with concurrent requests to leaders."""
    return query_offsets(targets(cluster_of(instance_id), instance_id), partitions, at_ms_or_position)


def query_offsets(
    brokers: Mapping[int, Target], partitions: Iterable[Partition], at_ms_or_position: int
) -> dict[Partition, int]:
    """Returns the offset of each partition at a timestamp, EARLIEST or LATEST, queried as the targets' identities.

    Partitions whose leader does not answer are missing. Raises `Unavailable` if no broker answers.
    """
    requested_partitions = set(partitions)
    if not requested_partitions:
        return {}
    names = sorted({topic for topic, _ in requested_partitions})
    metadata_response = first_response(brokers.values(), lambda: metadata_request(names))
    by_leader: dict[int, list[Partition]] = defaultdict(list)
    for topic in metadata_response.topics:
        for partition in topic.partitions if not topic.error_code else ():
            if (topic.name, partition.partition_index) in requested_partitions:
                by_leader[partition.leader_id].append((topic.name, partition.partition_index))
    requests = {
        leader: _list_offsets(leader_partitions, at_ms_or_position) for leader, leader_partitions in by_leader.items()
    }
    responses = scatter(pair_with_targets(brokers, requests)).responses
    return {
        (topic.name, partition.partition_index): partition.offset
        for _, response in responses
        for topic in response.topics
        for partition in topic.partitions
        if not partition.error_code
    }


def by_topic(partitions: Iterable[Partition]) -> dict[str, list[int]]:
    """Returns the sorted partition indexes by topic, in the order of the topics."""
    result: dict[str, list[int]] = defaultdict(list)
    for topic, index in sorted(set(partitions)):
        result[topic].append(index)
    return dict(result)


def _list_offsets(partitions: Iterable[Partition], at_ms_or_position: int) -> Any:
    topic_class = ListOffsetsRequest.ListOffsetsTopic
    topics = [
        topic_class(
            name=name,
            partitions=[
                topic_class.ListOffsetsPartition(
                    partition_index=index, current_leader_epoch=-1, timestamp=at_ms_or_position
                )
                for index in indexes
            ],
        )
        for name, indexes in by_topic(partitions).items()
    ]
    return ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=topics, version=LIST_OFFSETS_VERSION)


def _error_code_by_partition(response: Any) -> dict[Partition, int]:
    return {
        (topic.name, partition.partition_index): partition.error_code
        for topic in response.topics
        for partition in topic.partitions
    }


def _coordinator_error(response: Any) -> int:
    """Returns the error of a broker that is not the coordinator, which it reports for every partition."""
    return next((code for code in _error_code_by_partition(response).values() if code in RETRIABLE_ERRORS), 0)


def _error_by_partition(results: Mapping[Partition, int]) -> dict[Partition, DomainError]:
    return {partition: domain_error_of(code, ERROR_TEXTS.get(code)) for partition, code in results.items() if code}
