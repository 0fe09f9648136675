"""ElectLeaders: elects the preferred leaders or any leaders, for the cluster's own identity (REP-28, REP-31).

The broker that gets the request writes the change (decision 64), and responds when its metadata has the new leaders.
"""

from __future__ import annotations

from brokers.engine.cluster.election_plans import ElectionType
from brokers.engine.cluster.election_writes import Elected
from brokers.engine.cluster.errors import ClusterError
from brokers.engine.cluster.image import ClusterImage
from brokers.engine.handlers.context import Call
from brokers.engine.handlers.topics.topics import TIMED_OUT, WAIT_S_MAX
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.reassignment import (
    ElectLeadersPartitionResult,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ReplicaElectionResult,
)

_NO_SUCH_PARTITION = "The partition does not exist."

_Key = tuple[str, int]
_Error = tuple[int, str | None]
_FINE: _Error = (0, None)


async def elect_leaders(call: Call, request: ElectLeadersRequest) -> ElectLeadersResponse:
    """Elects leaders. A request for all partitions (null) does not list those that need no election."""
    asks_all = request.topic_partitions is None
    result = _asked(call, request)
    if call.view.instance_id is not None:
        return _answer(result, int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    if request.election_type not in tuple(ElectionType):
        return _answer(result, int(ErrorCode.INVALID_REQUEST))
    wanted = [key for key, error in result.items() if error == _FINE]
    results = result | await _elect(call, wanted, ElectionType(request.election_type), request.timeout_ms)
    if asks_all:
        results = {key: error for key, error in results.items() if error[0] != ErrorCode.ELECTION_NOT_NEEDED}
    return _answer(results)


def _asked(call: Call, request: ElectLeadersRequest) -> dict[_Key, _Error]:
    """Returns the requested partitions, with an error for each that does not exist."""
    topics = call.view.namespace.topics
    if request.topic_partitions is None:
        return {
            (topic.name, partition.index): _FINE
            for _, topic in sorted(topics.items())
            for partition in topic.partitions
        }
    result: dict[_Key, _Error] = {}
    for wanted in request.topic_partitions:
        topic = topics.get(wanted.topic.encode())
        for index in wanted.partitions:
            there = topic is not None and 0 <= index < len(topic.partitions)
            unknown = (int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), _NO_SUCH_PARTITION)
            result[wanted.topic, index] = _FINE if there else unknown
    return result


async def _elect(call: Call, wanted: list[_Key], kind: ElectionType, timeout_ms: int) -> dict[_Key, _Error]:
    if not wanted:
        return {}
    services = call.services
    try:
        outcomes = await services.metadata.store.elect_leaders(services.metadata.current.image, wanted, kind)
    except ClusterError as failure:
        return dict.fromkeys(wanted, (failure.wire_code, str(failure)))
    elected = {key: outcome for key, outcome in outcomes.items() if isinstance(outcome, Elected)}
    results: dict[_Key, _Error] = {
        key: (outcome.wire_code, str(outcome)) for key, outcome in outcomes.items() if isinstance(outcome, ClusterError)
    }
    timeout_s = min(max(timeout_ms, 0) / 1000, WAIT_S_MAX)
    await services.metadata.current.wait_until(
        lambda image: all(_shows(image, *pair) for pair in elected.items()), timeout_s
    )
    for key, outcome in elected.items():
        shown = _shows(services.metadata.current.image, key, outcome)
        results[key] = _FINE if shown else (int(ErrorCode.REQUEST_TIMED_OUT), TIMED_OUT)
    return results


def _shows(image: ClusterImage, key: _Key, outcome: Elected) -> bool:
    """True if the metadata has the election. A topic deleted meanwhile, and perhaps created again, counts as done."""
    topic = image.topics.get(key[0])
    if topic is None or key[1] >= len(topic.partitions):
        return True
    return topic.partitions[key[1]].leader_epoch >= outcome.leader_epoch


def _answer(results: dict[_Key, _Error], error_code: int = 0) -> ElectLeadersResponse:
    topics: dict[str, list[ElectLeadersPartitionResult]] = {}
    for (name, index), (code, message) in results.items():
        topics.setdefault(name, []).append(
            ElectLeadersPartitionResult(partition_id=index, error_code=error_code or code, error_message=message)
        )
    return ElectLeadersResponse(
        error_code=error_code,
        replica_election_results=[
            ReplicaElectionResult(topic=name, partition_result=lines) for name, lines in topics.items()
        ],
    )
