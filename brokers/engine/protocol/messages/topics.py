"""CreateTopics, DeleteTopics, CreatePartitions and DeleteRecords."""

from __future__ import annotations

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.fields import (
    Names,
    array,
    boolean,
    element,
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


@struct
class CreatableReplicaAssignment:
    partition_index: int = int32()
    broker_ids: list[int] = array(element("int32", Names.NODE))


@struct
class CreatableTopicConfig:
    name: str = text(names=Names.NONE)
    value: str | None = text(null_since=0, names=Names.NONE)


@struct
class CreatableTopic:
    name: str = text(names=Names.TOPIC)
    num_partitions: int = int32()
    replication_factor: int = int16()
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig)


# 1  flag to validate only
# 4  -1 means the broker's default for partitions and replication factor
# 5  flexible
# 6  may be refused by quota (THROTTLING_QUOTA_EXCEEDED)
# 7  the response has the topic's id
@request(ApiKey.CREATE_TOPICS)
class CreateTopicsRequest:
    topics: list[CreatableTopic] = array(CreatableTopic)
    timeout_ms: int = int32(default=60000)
    validate_only: bool = boolean(since=1)


@struct
class CreatableTopicConfigs:
    name: str = text(since=5, names=Names.NONE)
    value: str | None = text(since=5, null_since=5, names=Names.NONE)
    read_only: bool = boolean(since=5)
    config_source: int = int8(since=5, default=-1)
    is_sensitive: bool = boolean(since=5)


@struct
class CreatableTopicResult:
    name: str = text(names=Names.TOPIC)
    topic_id: bytes = uuid(since=7, names=Names.TOPIC_ID)
    error_code: int = int16()
    error_message: str | None = text(since=1, null_since=1, names=Names.FREE_TEXT)
    topic_config_error_code: int = int16(since=5, tag=0)
    num_partitions: int = int32(since=5, default=-1)
    replication_factor: int = int16(since=5, default=-1)
    configs: list[CreatableTopicConfigs] | None = array(CreatableTopicConfigs, since=5, null_since=5)


# 1  error message
# 2  throttle time
# 5  flexible; partitions, replication factor and configs of the new topic
# 7  the topic's id
@response(ApiKey.CREATE_TOPICS)
class CreateTopicsResponse:
    throttle_time_ms: int = int32(since=2)
    topics: list[CreatableTopicResult] = array(CreatableTopicResult)


@struct
class DeleteTopicState:
    name: str | None = text(since=6, null_since=6, default=None, names=Names.TOPIC)
    topic_id: bytes = uuid(since=6, names=Names.TOPIC_ID)


# 4  flexible
# 5  the response has a message; may be refused by quota
# 6  topics by name or by id
@request(ApiKey.DELETE_TOPICS)
class DeleteTopicsRequest:
    topics: list[DeleteTopicState] = array(DeleteTopicState, since=6)
    topic_names: list[str] = array(element("text", Names.TOPIC), until=5)
    timeout_ms: int = int32()


@struct
class DeletableTopicResult:
    name: str | None = text(null_since=6, names=Names.TOPIC)
    topic_id: bytes = uuid(since=6, names=Names.TOPIC_ID)
    error_code: int = int16()
    error_message: str | None = text(since=5, null_since=5, default=None, names=Names.FREE_TEXT)


# 1  throttle time
# 4  flexible
# 5  error message
# 6  the topic's id; the name is null for an unknown id
@response(ApiKey.DELETE_TOPICS)
class DeleteTopicsResponse:
    throttle_time_ms: int = int32(since=1)
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)


@struct
class DeleteRecordsPartition:
    partition_index: int = int32()
    offset: int = int64()


@struct
class DeleteRecordsTopic:
    name: str = text(names=Names.TOPIC)
    partitions: list[DeleteRecordsPartition] = array(DeleteRecordsPartition)


# 2  flexible
@request(ApiKey.DELETE_RECORDS)
class DeleteRecordsRequest:
    topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic)
    timeout_ms: int = int32()


@struct
class DeleteRecordsPartitionResult:
    partition_index: int = int32()
    low_watermark: int = int64()
    error_code: int = int16()


@struct
class DeleteRecordsTopicResult:
    name: str = text(names=Names.TOPIC)
    partitions: list[DeleteRecordsPartitionResult] = array(DeleteRecordsPartitionResult)


# 2  flexible
@response(ApiKey.DELETE_RECORDS)
class DeleteRecordsResponse:
    throttle_time_ms: int = int32()
    topics: list[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult)


@struct
class CreatePartitionsAssignment:
    broker_ids: list[int] = array(element("int32", Names.NODE))


@struct
class CreatePartitionsTopic:
    name: str = text(names=Names.TOPIC)
    count: int = int32()
    assignments: list[CreatePartitionsAssignment] | None = array(CreatePartitionsAssignment, null_since=0)


# 2  flexible
# 3  may be refused by quota
@request(ApiKey.CREATE_PARTITIONS)
class CreatePartitionsRequest:
    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()


@struct
class CreatePartitionsTopicResult:
    name: str = text(names=Names.TOPIC)
    error_code: int = int16()
    error_message: str | None = text(null_since=0, default=None, names=Names.FREE_TEXT)


# 2  flexible
@response(ApiKey.CREATE_PARTITIONS)
class CreatePartitionsResponse:
    throttle_time_ms: int = int32()
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)
