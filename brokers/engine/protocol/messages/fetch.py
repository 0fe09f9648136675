"""Fetch. The broker uses `protocol.fast_codec_fetch`, which tests compare with the codec of these declarations."""

from __future__ import annotations

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.fields import (
    UUID_ZERO,
    Names,
    array,
    int8,
    int16,
    int32,
    int64,
    nested,
    records,
    request,
    response,
    struct,
    text,
    uuid,
)

INT32_MAX = 0x7FFF_FFFF


@struct
class ReplicaState:
    replica_id: int = int32(since=15, default=-1, names=Names.NODE)
    replica_epoch: int = int64(since=15, default=-1)


@struct
class FetchPartition:
    partition: int = int32()
    current_leader_epoch: int = int32(since=9, default=-1)
    fetch_offset: int = int64()
    last_fetched_epoch: int = int32(since=12, default=-1)
    log_start_offset: int = int64(since=5, default=-1)
    partition_max_bytes: int = int32()
    replica_directory_id: bytes = uuid(since=17, tag=0, names=Names.NONE)


@struct
class FetchTopic:
    topic: str = text(until=12, names=Names.TOPIC)
    topic_id: bytes = uuid(since=13, default=UUID_ZERO, names=Names.TOPIC_ID)
    partitions: list[FetchPartition] = array(FetchPartition)


@struct
class ForgottenTopic:
    topic: str = text(since=7, until=12, names=Names.TOPIC)
    topic_id: bytes = uuid(since=13, default=UUID_ZERO, names=Names.TOPIC_ID)
    partitions: list[int] = array("int32", since=7)


# 3  a limit for the whole response
# 4  isolation level; record batches (format 2)
# 5  a follower's log start offset
# 7  fetch sessions
# 9  leader epoch known to the client
# 10 zstd allowed in the records
# 11 rack of the client
# 12 flexible; epoch of the last record fetched
# 13 topics by id instead of by name
# 15 the replica's id moves into a tagged field, with its epoch
# 16 the response may name the leader
# 17 directory of the replica
@request(ApiKey.FETCH)
class FetchRequest:
    cluster_id: str | None = text(since=12, null_since=12, tag=0, default=None, names=Names.CLUSTER_ID)
    replica_id: int = int32(until=14, default=-1, names=Names.NODE)
    replica_state: ReplicaState = nested(ReplicaState, since=15, tag=1)
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(since=3, default=INT32_MAX)
    isolation_level: int = int8(since=4)
    session_id: int = int32(since=7)
    session_epoch: int = int32(since=7, default=-1)
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, since=7)
    rack_id: str = text(since=11, names=Names.RACK)


@struct
class EpochEndOffset:
    epoch: int = int32(since=12, default=-1)
    end_offset: int = int64(since=12, default=-1)


@struct
class FetchLeader:
    leader_id: int = int32(since=12, default=-1, names=Names.NODE)
    leader_epoch: int = int32(since=12, default=-1)


@struct
class SnapshotId:
    end_offset: int = int64(since=12, default=-1)
    epoch: int = int32(since=12, default=-1)


@struct
class AbortedTransaction:
    producer_id: int = int64(since=4)
    first_offset: int = int64(since=4)


@struct
class FetchPartitionData:
    partition_index: int = int32()
    error_code: int = int16()
    high_watermark: int = int64()
    last_stable_offset: int = int64(since=4, default=-1)
    log_start_offset: int = int64(since=5, default=-1)
    diverging_epoch: EpochEndOffset = nested(EpochEndOffset, since=12, tag=0)
    current_leader: FetchLeader = nested(FetchLeader, since=12, tag=1)
    snapshot_id: SnapshotId = nested(SnapshotId, since=12, tag=2)
    aborted_transactions: list[AbortedTransaction] | None = array(AbortedTransaction, since=4, null_since=4)
    preferred_read_replica: int = int32(since=11, default=-1, names=Names.NODE)
    records: bytes | None = records(null_since=0, names=Names.NONE)


@struct
class FetchableTopicResponse:
    topic: str = text(until=12, names=Names.TOPIC)
    topic_id: bytes = uuid(since=13, default=UUID_ZERO, names=Names.TOPIC_ID)
    partitions: list[FetchPartitionData] = array(FetchPartitionData)


@struct
class FetchNodeEndpoint:
    node_id: int = int32(since=16, names=Names.NODE)
    host: str = text(since=16, names=Names.HOST)
    port: int = int32(since=16, names=Names.PORT)
    rack: str | None = text(since=16, null_since=16, default=None, names=Names.RACK)


# 1  throttle time
# 4  last stable offset, aborted transactions
# 5  log start offset
# 7  an error for the whole response, session id
# 11 preferred read replica
# 12 flexible; diverging epoch, leader and snapshot as tagged fields
# 13 topics by id instead of by name
# 16 endpoints of the named leaders
@response(ApiKey.FETCH)
class FetchResponse:
    throttle_time_ms: int = int32(since=1)
    error_code: int = int16(since=7)
    session_id: int = int32(since=7)
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse)
    node_endpoints: list[FetchNodeEndpoint] = array(FetchNodeEndpoint, since=16, tag=0)
