"""Metadata: the brokers of the cluster, and topics with the leaders and replicas of their partitions."""

from __future__ import annotations

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.fields import (
    Names,
    array,
    boolean,
    element,
    int16,
    int32,
    request,
    response,
    struct,
    text,
    uuid,
)

# Value of authorized operations that were not requested.
OPERATIONS_NOT_ASKED = -(1 << 31)


@struct
class MetadataRequestTopic:
    topic_id: bytes = uuid(since=10, names=Names.TOPIC_ID)
    name: str | None = text(null_since=10, names=Names.TOPIC)


# 0  an empty list requests every topic
# 1  a null list requests every topic, an empty one none
# 4  flag to create missing topics
# 8  authorized operations of cluster and topics
# 9  flexible
# 10 topics may be requested by id
# 11 the cluster's operations moved to DescribeCluster
# 12 a topic's id alone is enough
@request(ApiKey.METADATA)
class MetadataRequest:
    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, null_since=1)
    allow_auto_topic_creation: bool = boolean(since=4, default=True)
    include_cluster_authorized_operations: bool = boolean(since=8, until=10)
    include_topic_authorized_operations: bool = boolean(since=8)


@struct
class MetadataResponseBroker:
    node_id: int = int32(names=Names.NODE)
    host: str = text(names=Names.HOST)
    port: int = int32(names=Names.PORT)
    rack: str | None = text(since=1, null_since=1, default=None, names=Names.RACK)


@struct
class MetadataResponsePartition:
    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32(names=Names.NODE)
    leader_epoch: int = int32(since=7, default=-1)
    replica_nodes: list[int] = array(element("int32", Names.NODE))
    isr_nodes: list[int] = array(element("int32", Names.NODE))
    offline_replicas: list[int] = array(element("int32", Names.NODE), since=5)


@struct
class MetadataResponseTopic:
    error_code: int = int16()
    name: str | None = text(null_since=12, names=Names.TOPIC)
    topic_id: bytes = uuid(since=10, names=Names.TOPIC_ID)
    is_internal: bool = boolean(since=1)
    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition)
    topic_authorized_operations: int = int32(since=8, default=OPERATIONS_NOT_ASKED)


# 1  racks, the controller, internal topics marked
# 2  cluster id
# 3  throttle time
# 5  offline replicas
# 7  leader epochs
# 8  authorized operations
# 9  flexible
# 10 topic ids
# 11 without the cluster's operations
# 12 the name is null for an unknown id
@response(ApiKey.METADATA)
class MetadataResponse:
    throttle_time_ms: int = int32(since=3)
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker)
    cluster_id: str | None = text(since=2, null_since=2, default=None, names=Names.CLUSTER_ID)
    controller_id: int = int32(since=1, default=-1, names=Names.NODE)
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic)
    cluster_authorized_operations: int = int32(since=8, until=10, default=OPERATIONS_NOT_ASKED)
