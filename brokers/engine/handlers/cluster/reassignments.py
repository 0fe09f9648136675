"""AlterPartitionReassignments and ListPartitionReassignments: move replicas, for the cluster's own identity (REP-32,
REP-33).

The response is sent when this broker's metadata has the move; the list shows when it has ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from brokers.engine.cluster.errors import ClusterError
from brokers.engine.cluster.image import ClusterImage, TopicImage
from brokers.engine.cluster.reassignment_writes import ReassignmentStarted
from brokers.engine.handlers.context import Call
from brokers.engine.handlers.topics.topics import TIMED_OUT, WAIT_S_MAX
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.reassignment import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

NOT_A_TENANTS = "Where replicas are is the operator's."

_Key = tuple[str, int]
_Error = tuple[int, str | None]
_NO_SUCH_PARTITION: _Error = (int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), "The partition does not exist.")
_NOTHING_MOVES: _Error = (int(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS), "No partition reassignment is in progress.")


async def alter_partition_reassignments(
    call: Call, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Starts and cancels moves; the last entry of a partition counts."""
    if call.view.instance_id is not None:
        return AlterPartitionReassignmentsResponse(
            error_code=int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), error_message=NOT_A_TENANTS
        )
    results: dict[_Key, _Error] = {}
    wanted: dict[str, dict[int, Sequence[int] | None]] = {}
    for topic in request.topics:
        image = call.view.namespace.topics.get(topic.name.encode())
        for partition in topic.partitions:
            if image is not None and 0 <= partition.partition_index < len(image.partitions):
                wanted.setdefault(topic.name, {})[partition.partition_index] = partition.replicas
                results[topic.name, partition.partition_index] = (0, None)
            elif partition.replicas is None:
                results[topic.name, partition.partition_index] = _NOTHING_MOVES
            else:
                results[topic.name, partition.partition_index] = _NO_SUCH_PARTITION
    results |= await _reassign(call, wanted, request.timeout_ms)
    topics: dict[str, list[ReassignablePartitionResponse]] = {}
    for (name, index), (code, message) in results.items():
        topics.setdefault(name, []).append(
            ReassignablePartitionResponse(partition_index=index, error_code=code, error_message=message)
        )
    return AlterPartitionReassignmentsResponse(
        responses=[ReassignableTopicResponse(name=name, partitions=lines) for name, lines in topics.items()]
    )


async def _reassign(
    call: Call, wanted: Mapping[str, Mapping[int, Sequence[int] | None]], timeout_ms: int
) -> dict[_Key, _Error]:
    if not wanted:
        return {}
    services = call.services
    try:
        outcomes = await services.metadata.store.reassign(services.metadata.current.image, wanted)
    except ClusterError as failure:
        return {(name, index): (failure.wire_code, str(failure)) for name in wanted for index in wanted[name]}
    versions = {
        name: outcome.topic_version
        for (name, _), outcome in outcomes.items()
        if isinstance(outcome, ReassignmentStarted)
    }
    timeout_s = min(max(timeout_ms, 0) / 1000, WAIT_S_MAX)
    await services.metadata.current.wait_until(
        lambda image: all(_shows(image, name, version) for name, version in versions.items()), timeout_s
    )
    results: dict[_Key, _Error] = {}
    for key, outcome in outcomes.items():
        if isinstance(outcome, ClusterError):
            results[key] = (outcome.wire_code, str(outcome))
        elif _shows(services.metadata.current.image, key[0], outcome.topic_version):
            results[key] = (0, None)
        else:
            results[key] = (int(ErrorCode.REQUEST_TIMED_OUT), TIMED_OUT)
    return results


def _shows(image: ClusterImage, name: str, version: int) -> bool:
    """True if the metadata has the change; a topic that was deleted meanwhile counts as done."""
    topic = image.topics.get(name)
    return topic is None or topic.version >= version


def list_partition_reassignments(
    call: Call, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Lists the moves among the requested partitions; null requests all."""
    if call.view.instance_id is not None:
        return ListPartitionReassignmentsResponse(
            error_code=int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), error_message=NOT_A_TENANTS
        )
    topics = call.view.namespace.topics
    moving: list[OngoingTopicReassignment] = []
    if request.topics is None:
        for _, topic in sorted(topics.items()):
            _list(moving, topic, range(len(topic.partitions)))
    else:
        for wanted in request.topics:
            result = topics.get(wanted.name.encode())
            if result is not None:
                _list(moving, result, dict.fromkeys(wanted.partition_indexes))
    return ListPartitionReassignmentsResponse(topics=moving)


def _list(moving: list[OngoingTopicReassignment], topic: TopicImage, indexes: Iterable[int]) -> None:
    lines = [
        OngoingPartitionReassignment(
            partition_index=partition.index,
            replicas=list(partition.replicas),
            adding_replicas=list(partition.adding),
            removing_replicas=list(partition.removing),
        )
        for partition in (topic.partitions[index] for index in indexes if 0 <= index < len(topic.partitions))
        if partition.is_reassigning
    ]
    if lines:
        moving.append(OngoingTopicReassignment(name=topic.name, partitions=lines))
