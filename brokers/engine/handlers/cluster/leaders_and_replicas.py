"""ElectLeaders, AlterPartitionReassignments and ListPartitionReassignments: leaders and replicas of partitions, for the
cluster's own identity (REP-28, REP-31 to REP-33).

The broker that receives the request writes the change (decision 64), and responds when its metadata has it. A
reassignment then goes on; when it has ended, it is not in the list of reassignments.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from brokers.engine.cluster.election_plans import ElectionType
from brokers.engine.cluster.election_writes import ElectionResult
from brokers.engine.cluster.errors import ClusterError
from brokers.engine.cluster.image import ClusterImage, TopicImage
from brokers.engine.cluster.reassignment_writes import ReassignmentStarted
from brokers.engine.handlers.context import RequestContext
from brokers.engine.handlers.topics.topics import TIMED_OUT, WAIT_S_MAX
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.reassignment import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersPartitionResult,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
    ReplicaElectionResult,
)

OPERATOR_ONLY = "Where replicas are is the operator's."

_Key = tuple[str, int]
_Error = tuple[int, str | None]
_NO_ERROR: _Error = (0, None)
_NO_SUCH_PARTITION: _Error = (int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), "The partition does not exist.")
_NO_REASSIGNMENT: _Error = (int(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS), "No partition reassignment is in progress.")


async def elect_leaders(context: RequestContext, request: ElectLeadersRequest) -> ElectLeadersResponse:
    """Elects preferred or any leaders. A request for all (null) does not list partitions that need no election."""
    requests_all = request.topic_partitions is None
    results = _requested_partitions(context, request)
    if context.view.instance_id is not None:
        return _build_response(results, int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    if request.election_type not in tuple(ElectionType):
        return _build_response(results, int(ErrorCode.INVALID_REQUEST))
    electable_keys = [key for key, error in results.items() if error == _NO_ERROR]
    if electable_keys:
        metadata = context.services.metadata
        change = metadata.store.elect_leaders(
            metadata.current.image, electable_keys, ElectionType(request.election_type)
        )
        results |= await _apply_change(context, electable_keys, change, _has_elected, request.timeout_ms)
    if requests_all:
        results = {key: error for key, error in results.items() if error[0] != ErrorCode.ELECTION_NOT_NEEDED}
    return _build_response(results)


def _requested_partitions(context: RequestContext, request: ElectLeadersRequest) -> dict[_Key, _Error]:
    """Returns the requested partitions, with an error for each that does not exist."""
    topics = context.view.namespace.topics
    if request.topic_partitions is None:
        return {
            (topic.name, partition.index): _NO_ERROR
            for _, topic in sorted(topics.items())
            for partition in topic.partitions
        }
    result: dict[_Key, _Error] = {}
    for requested_topic in request.topic_partitions:
        topic = topics.get(requested_topic.topic.encode())
        for index in requested_topic.partitions:
            exists = topic is not None and 0 <= index < len(topic.partitions)
            result[requested_topic.topic, index] = _NO_ERROR if exists else _NO_SUCH_PARTITION
    return result


def _has_elected(image: ClusterImage, key: _Key, outcome: ElectionResult) -> bool:
    """True if the metadata has the election. A topic deleted meanwhile, and perhaps created again, counts as done."""
    topic = image.topics.get(key[0])
    if topic is None or key[1] >= len(topic.partitions):
        return True
    return topic.partitions[key[1]].leader_epoch >= outcome.leader_epoch


def _build_response(results: dict[_Key, _Error], error_code: int = 0) -> ElectLeadersResponse:
    topics: dict[str, list[ElectLeadersPartitionResult]] = {}
    for (name, index), (code, message) in results.items():
        topics.setdefault(name, []).append(
            ElectLeadersPartitionResult(partition_id=index, error_code=error_code or code, error_message=message)
        )
    return ElectLeadersResponse(
        error_code=error_code,
        replica_election_results=[
            ReplicaElectionResult(topic=name, partition_result=partition_results)
            for name, partition_results in topics.items()
        ],
    )


async def _apply_change(
    context: RequestContext,
    keys: Iterable[_Key],
    change: Awaitable[Mapping[_Key, Any]],
    has: Callable[[ClusterImage, _Key, Any], bool],
    timeout_ms: int,
) -> dict[_Key, _Error]:
    """Awaits the outcome of a change for each partition, then the metadata that `has` it. Returns the results."""
    current = context.services.metadata.current
    try:
        outcomes = await change
    except ClusterError as failure:
        return dict.fromkeys(keys, (failure.wire_code, str(failure)))
    written = {key: outcome for key, outcome in outcomes.items() if not isinstance(outcome, ClusterError)}
    timeout_s = min(max(timeout_ms, 0) / 1000, WAIT_S_MAX)
    await current.wait_until(lambda image: all(has(image, *pair) for pair in written.items()), timeout_s)
    results: dict[_Key, _Error] = {}
    for key, outcome in outcomes.items():
        if isinstance(outcome, ClusterError):
            results[key] = (outcome.wire_code, str(outcome))
        else:
            is_applied = has(current.image, key, outcome)
            results[key] = _NO_ERROR if is_applied else (int(ErrorCode.REQUEST_TIMED_OUT), TIMED_OUT)
    return results


async def alter_partition_reassignments(
    context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Starts and cancels moves of replicas; the last entry of a partition counts."""
    if context.view.instance_id is not None:
        return AlterPartitionReassignmentsResponse(
            error_code=int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), error_message=OPERATOR_ONLY
        )
    results: dict[_Key, _Error] = {}
    targets_by_topic: dict[str, dict[int, Sequence[int] | None]] = {}
    for topic in request.topics:
        image = context.view.namespace.topics.get(topic.name.encode())
        for partition in topic.partitions:
            key = topic.name, partition.partition_index
            if image is not None and 0 <= partition.partition_index < len(image.partitions):
                targets_by_topic.setdefault(topic.name, {})[partition.partition_index] = partition.replicas
                results[key] = _NO_ERROR
            else:
                results[key] = _NO_REASSIGNMENT if partition.replicas is None else _NO_SUCH_PARTITION
    if targets_by_topic:
        metadata, keys = (
            context.services.metadata,
            [(name, index) for name in targets_by_topic for index in targets_by_topic[name]],
        )
        change = metadata.store.reassign(metadata.current.image, targets_by_topic)
        results |= await _apply_change(context, keys, change, _has_started, request.timeout_ms)
    topics: dict[str, list[ReassignablePartitionResponse]] = {}
    for (name, index), (code, message) in results.items():
        topics.setdefault(name, []).append(
            ReassignablePartitionResponse(partition_index=index, error_code=code, error_message=message)
        )
    return AlterPartitionReassignmentsResponse(
        responses=[
            ReassignableTopicResponse(name=name, partitions=partition_results)
            for name, partition_results in topics.items()
        ]
    )


def _has_started(image: ClusterImage, key: _Key, outcome: ReassignmentStarted) -> bool:
    """True if the metadata has the change; a topic that was deleted meanwhile counts as done."""
    topic = image.topics.get(key[0])
    return topic is None or topic.version >= outcome.topic_version


def list_partition_reassignments(
    context: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Lists the moves among the requested partitions; null requests all."""
    if context.view.instance_id is not None:
        return ListPartitionReassignmentsResponse(
            error_code=int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), error_message=OPERATOR_ONLY
        )
    topics = context.view.namespace.topics
    ongoing: list[OngoingTopicReassignment] = []
    if request.topics is None:
        for _, topic in sorted(topics.items()):
            _list(ongoing, topic, range(len(topic.partitions)))
    else:
        for requested_topic in request.topics:
            result = topics.get(requested_topic.name.encode())
            if result is not None:
                _list(ongoing, result, dict.fromkeys(requested_topic.partition_indexes))
    return ListPartitionReassignmentsResponse(topics=ongoing)


def _list(ongoing: list[OngoingTopicReassignment], topic: TopicImage, indexes: Iterable[int]) -> None:
    partition_results = [
        OngoingPartitionReassignment(
            partition_index=partition.index,
            replicas=list(partition.replicas),
            adding_replicas=list(partition.adding),
            removing_replicas=list(partition.removing),
        )
        for partition in (topic.partitions[index] for index in indexes if 0 <= index < len(topic.partitions))
        if partition.is_reassigning
    ]
    if partition_results:
        ongoing.append(OngoingTopicReassignment(name=topic.name, partitions=partition_results))
