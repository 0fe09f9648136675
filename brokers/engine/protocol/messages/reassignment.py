"""ElectLeaders, AlterPartitionReassignments and ListPartitionReassignments."""

from __future__ import annotations

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.fields import array, int8, int16, int32, request, response, struct, text


@struct
class ElectLeadersTopicPartitions:
    topic: str = text()
    partitions: list[int] = array("int32")


# 0  the preferred replica is elected
# 1  kind of election: 0 preferred, 1 unclean
# 2  flexible
@request(ApiKey.ELECT_LEADERS)
class ElectLeadersRequest:
    election_type: int = int8(since=1)
    topic_partitions: list[ElectLeadersTopicPartitions] | None = array(ElectLeadersTopicPartitions, null_since=0)
    timeout_ms: int = int32(default=60000)


@struct
class ElectLeadersPartitionResult:
    partition_id: int = int32()
    error_code: int = int16()
    error_message: str | None = text(null_since=0)


@struct
class ReplicaElectionResult:
    topic: str = text()
    partition_result: list[ElectLeadersPartitionResult] = array(ElectLeadersPartitionResult)


# 1  an error for the whole response
# 2  flexible
@response(ApiKey.ELECT_LEADERS)
class ElectLeadersResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16(since=1)
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult)


@struct
class ReassignablePartition:
    partition_index: int = int32()
    replicas: list[int] | None = array("int32", null_since=0, default=None)


@struct
class ReassignableTopic:
    name: str = text()
    partitions: list[ReassignablePartition] = array(ReassignablePartition)


# 0  null replicas cancel a running reassignment
@request(ApiKey.ALTER_PARTITION_REASSIGNMENTS)
class AlterPartitionReassignmentsRequest:
    timeout_ms: int = int32(default=60000)
    topics: list[ReassignableTopic] = array(ReassignableTopic)


@struct
class ReassignablePartitionResponse:
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = text(null_since=0)


@struct
class ReassignableTopicResponse:
    name: str = text()
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse)


@response(ApiKey.ALTER_PARTITION_REASSIGNMENTS)
class AlterPartitionReassignmentsResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = text(null_since=0)
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse)


@struct
class ListPartitionReassignmentsTopics:
    name: str = text()
    partition_indexes: list[int] = array("int32")


# 0  null topics request every running reassignment
@request(ApiKey.LIST_PARTITION_REASSIGNMENTS)
class ListPartitionReassignmentsRequest:
    timeout_ms: int = int32(default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = array(
        ListPartitionReassignmentsTopics, null_since=0, default=None
    )


@struct
class OngoingPartitionReassignment:
    partition_index: int = int32()
    replicas: list[int] = array("int32")
    adding_replicas: list[int] = array("int32")
    removing_replicas: list[int] = array("int32")


@struct
class OngoingTopicReassignment:
    name: str = text()
    partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment)


@response(ApiKey.LIST_PARTITION_REASSIGNMENTS)
class ListPartitionReassignmentsResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = text(null_since=0)
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment)
