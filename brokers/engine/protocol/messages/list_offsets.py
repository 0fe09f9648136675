"""ListOffsets and OffsetForLeaderEpoch: offsets of a partition's log by time and by leader epoch."""

from __future__ import annotations

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.fields import Names, array, int8, int16, int32, int64, request, response, struct, text


@struct
class ListOffsetsPartition:
    partition_index: int = int32()
    current_leader_epoch: int = int32(since=4, default=-1)
    timestamp: int = int64()
    max_num_offsets: int = int32(until=0, default=1)


@struct
class ListOffsetsTopic:
    name: str = text(names=Names.TOPIC)
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition)


# 0  a list of segment starts
# 1  one offset, the first at or after the timestamp
# 2  isolation level
# 4  leader epoch known to the client
# 6  flexible
# 7  timestamp -3: the offset with the largest timestamp
# 8  timestamp -4: the earliest local offset
# 9  timestamp -5: the last offset in remote storage
@request(ApiKey.LIST_OFFSETS)
class ListOffsetsRequest:
    replica_id: int = int32(default=-1, names=Names.NODE)
    isolation_level: int = int8(since=2)
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic)


@struct
class ListOffsetsPartitionResponse:
    partition_index: int = int32()
    error_code: int = int16()
    old_style_offsets: list[int] = array("int64", until=0)
    timestamp: int = int64(since=1, default=-1)
    offset: int = int64(since=1, default=-1)
    leader_epoch: int = int32(since=4, default=-1)


@struct
class ListOffsetsTopicResponse:
    name: str = text(names=Names.TOPIC)
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse)


# 1  one offset with its timestamp instead of a list
# 2  throttle time
# 4  leader epoch of the offset
# 6  flexible
@response(ApiKey.LIST_OFFSETS)
class ListOffsetsResponse:
    throttle_time_ms: int = int32(since=2)
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse)


@struct
class OffsetForLeaderPartition:
    partition: int = int32()
    current_leader_epoch: int = int32(since=2, default=-1)
    leader_epoch: int = int32()


@struct
class OffsetForLeaderTopic:
    topic: str = text(names=Names.TOPIC)
    partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition)


# 2  leader epoch known to the caller
# 3  id of the calling replica, -1 for a consumer (older versions mean -2)
# 4  flexible
@request(ApiKey.OFFSET_FOR_LEADER_EPOCH)
class OffsetForLeaderEpochRequest:
    replica_id: int = int32(since=3, default=-2, names=Names.NODE)
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic)


@struct
class LeaderEpochEndOffset:
    error_code: int = int16()
    partition: int = int32()
    leader_epoch: int = int32(since=1, default=-1)
    end_offset: int = int64(default=-1)


@struct
class OffsetForLeaderTopicResult:
    topic: str = text(names=Names.TOPIC)
    partitions: list[LeaderEpochEndOffset] = array(LeaderEpochEndOffset)


# 1  the epoch that the end offset belongs to
# 2  throttle time
# 4  flexible
@response(ApiKey.OFFSET_FOR_LEADER_EPOCH)
class OffsetForLeaderEpochResponse:
    throttle_time_ms: int = int32(since=2)
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult)
