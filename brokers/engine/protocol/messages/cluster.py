"""DescribeCluster, and calls of brokers to the controller: AlterPartition, UpdateFeatures."""

from __future__ import annotations

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.fields import (
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    request,
    response,
    struct,
    text,
    uuid,
)

# Value of authorized operations that were not requested.
OPERATIONS_NOT_ASKED = -(1 << 31)
BROKER_ENDPOINTS = 1
UPGRADE = 1


# 0  flexible from the start
# 1  which endpoints: 1 brokers, 2 controllers
@request(ApiKey.DESCRIBE_CLUSTER)
class DescribeClusterRequest:
    include_cluster_authorized_operations: bool = boolean()
    endpoint_type: int = int8(since=1, default=BROKER_ENDPOINTS)


@struct
class DescribeClusterBroker:
    broker_id: int = int32()
    host: str = text()
    port: int = int32()
    rack: str | None = text(null_since=0, default=None)


# 1  which endpoints are listed
@response(ApiKey.DESCRIBE_CLUSTER)
class DescribeClusterResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = text(null_since=0, default=None)
    endpoint_type: int = int8(since=1, default=BROKER_ENDPOINTS)
    cluster_id: str = text()
    controller_id: int = int32(default=-1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker)
    cluster_authorized_operations: int = int32(default=OPERATIONS_NOT_ASKED)


@struct
class IsrBroker:
    broker_id: int = int32(since=3)
    broker_epoch: int = int64(since=3, default=-1)


@struct
class AlterPartitionPartition:
    partition_index: int = int32()
    leader_epoch: int = int32()
    new_isr: list[int] = array("int32", until=2)
    new_isr_with_epochs: list[IsrBroker] = array(IsrBroker, since=3)
    leader_recovery_state: int = int8(since=1)
    partition_epoch: int = int32()


@struct
class AlterPartitionTopic:
    topic_name: str = text(until=1)
    topic_id: bytes = uuid(since=2)
    partitions: list[AlterPartitionPartition] = array(AlterPartitionPartition)


# 1  recovery state of the leader
# 2  topics by id
# 3  the epoch of each broker in the ISR
@request(ApiKey.ALTER_PARTITION)
class AlterPartitionRequest:
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    topics: list[AlterPartitionTopic] = array(AlterPartitionTopic)


@struct
class AlterPartitionPartitionResult:
    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()
    isr: list[int] = array("int32")
    leader_recovery_state: int = int8(since=1)
    partition_epoch: int = int32()


@struct
class AlterPartitionTopicResult:
    topic_name: str = text(until=1)
    topic_id: bytes = uuid(since=2)
    partitions: list[AlterPartitionPartitionResult] = array(AlterPartitionPartitionResult)


# 1  recovery state of the leader
# 2  topics by id
@response(ApiKey.ALTER_PARTITION)
class AlterPartitionResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    topics: list[AlterPartitionTopicResult] = array(AlterPartitionTopicResult)


@struct
class FeatureUpdate:
    feature: str = text()
    max_version_level: int = int16()
    allow_downgrade: bool = boolean(until=0)
    upgrade_type: int = int8(since=1, default=UPGRADE)


# 1  kinds of upgrade instead of "allow downgrade"; only check, change nothing
@request(ApiKey.UPDATE_FEATURES)
class UpdateFeaturesRequest:
    timeout_ms: int = int32(default=60000)
    feature_updates: list[FeatureUpdate] = array(FeatureUpdate)
    validate_only: bool = boolean(since=1)


@struct
class UpdatableFeatureResult:
    feature: str = text()
    error_code: int = int16()
    error_message: str | None = text(null_since=0)


@response(ApiKey.UPDATE_FEATURES)
class UpdateFeaturesResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = text(null_since=0)
    results: list[UpdatableFeatureResult] = array(UpdatableFeatureResult)
