"""OffsetCommit, OffsetFetch and OffsetDelete: committed offsets of consumer groups."""

from __future__ import annotations

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.fields import Names, array, boolean, int16, int32, int64, request, response, struct, text


@struct
class OffsetCommitRequestPartition:
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(since=6, default=-1)
    commit_timestamp: int = int64(since=1, until=1, default=-1)
    committed_metadata: str | None = text(null_since=0, names=Names.NONE)


@struct
class OffsetCommitRequestTopic:
    name: str = text(names=Names.TOPIC)
    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition)


# 1  generation and member; a timestamp per partition
# 2  a retention time for all instead of the timestamps
# 5  without the retention time
# 6  leader epoch of the committed offset
# 7  static members
# 8  flexible
# 9  the generation may be a member epoch of the newer group protocol
@request(ApiKey.OFFSET_COMMIT)
class OffsetCommitRequest:
    group_id: str = text(names=Names.GROUP)
    generation_id_or_member_epoch: int = int32(since=1, default=-1)
    member_id: str = text(since=1, names=Names.NONE)
    group_instance_id: str | None = text(since=7, null_since=7, default=None, names=Names.NONE)
    retention_time_ms: int = int64(since=2, until=4, default=-1)
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic)


@struct
class OffsetCommitResponsePartition:
    partition_index: int = int32()
    error_code: int = int16()


@struct
class OffsetCommitResponseTopic:
    name: str = text(names=Names.TOPIC)
    partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition)


# 3  throttle time
# 8  flexible
@response(ApiKey.OFFSET_COMMIT)
class OffsetCommitResponse:
    throttle_time_ms: int = int32(since=3)
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic)


@struct
class OffsetFetchRequestTopic:
    name: str = text(until=7, names=Names.TOPIC)
    partition_indexes: list[int] = array("int32", until=7)


@struct
class OffsetFetchRequestTopics:
    name: str = text(since=8, names=Names.TOPIC)
    partition_indexes: list[int] = array("int32", since=8)


@struct
class OffsetFetchRequestGroup:
    group_id: str = text(since=8, names=Names.GROUP)
    member_id: str | None = text(since=9, null_since=9, default=None, names=Names.NONE)
    member_epoch: int = int32(since=9, default=-1)
    topics: list[OffsetFetchRequestTopics] | None = array(OffsetFetchRequestTopics, since=8, null_since=8)


# 1  offsets from the log instead of ZooKeeper
# 2  null topics request all
# 6  flexible
# 7  flag to report offsets of open transactions as unstable
# 8  several groups at once
# 9  member and epoch of the newer group protocol
@request(ApiKey.OFFSET_FETCH)
class OffsetFetchRequest:
    group_id: str = text(until=7, names=Names.GROUP)
    topics: list[OffsetFetchRequestTopic] | None = array(OffsetFetchRequestTopic, until=7, null_since=2, null_until=7)
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, since=8)
    require_stable: bool = boolean(since=7)


@struct
class OffsetFetchResponsePartition:
    partition_index: int = int32(until=7)
    committed_offset: int = int64(until=7)
    committed_leader_epoch: int = int32(since=5, until=7, default=-1)
    metadata: str | None = text(until=7, null_since=0, null_until=7, names=Names.NONE)
    error_code: int = int16(until=7)


@struct
class OffsetFetchResponseTopic:
    name: str = text(until=7, names=Names.TOPIC)
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition, until=7)


@struct
class OffsetFetchResponsePartitions:
    partition_index: int = int32(since=8)
    committed_offset: int = int64(since=8)
    committed_leader_epoch: int = int32(since=8, default=-1)
    metadata: str | None = text(since=8, null_since=8, names=Names.NONE)
    error_code: int = int16(since=8)


@struct
class OffsetFetchResponseTopics:
    name: str = text(since=8, names=Names.TOPIC)
    partitions: list[OffsetFetchResponsePartitions] = array(OffsetFetchResponsePartitions, since=8)


@struct
class OffsetFetchResponseGroup:
    group_id: str = text(since=8, names=Names.GROUP)
    topics: list[OffsetFetchResponseTopics] = array(OffsetFetchResponseTopics, since=8)
    error_code: int = int16(since=8)


# 2  an error for the whole response
# 3  throttle time
# 5  leader epoch of the committed offset
# 6  flexible
# 8  several groups at once
@response(ApiKey.OFFSET_FETCH)
class OffsetFetchResponse:
    throttle_time_ms: int = int32(since=3)
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, until=7)
    error_code: int = int16(since=2, until=7)
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, since=8)


@struct
class OffsetDeleteRequestPartition:
    partition_index: int = int32()


@struct
class OffsetDeleteRequestTopic:
    name: str = text(names=Names.TOPIC)
    partitions: list[OffsetDeleteRequestPartition] = array(OffsetDeleteRequestPartition)


# 0  never flexible
@request(ApiKey.OFFSET_DELETE)
class OffsetDeleteRequest:
    group_id: str = text(names=Names.GROUP)
    topics: list[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic)


@struct
class OffsetDeleteResponsePartition:
    partition_index: int = int32()
    error_code: int = int16()


@struct
class OffsetDeleteResponseTopic:
    name: str = text(names=Names.TOPIC)
    partitions: list[OffsetDeleteResponsePartition] = array(OffsetDeleteResponsePartition)


@response(ApiKey.OFFSET_DELETE)
class OffsetDeleteResponse:
    error_code: int = int16()
    throttle_time_ms: int = int32()
    topics: list[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic)
