"""Produce. The broker uses `protocol.fast_codec_produce`, which tests compare with the codec of these declarations."""

from __future__ import annotations

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.fields import (
    Names,
    array,
    int16,
    int32,
    int64,
    nested,
    records,
    request,
    response,
    struct,
    text,
)


@struct
class PartitionProduceData:
    index: int = int32()
    records: bytes | None = records(null_since=0, names=Names.NONE)


@struct
class TopicProduceData:
    name: str = text(names=Names.TOPIC)
    partition_data: list[PartitionProduceData] = array(PartitionProduceData)


# 0-2  message formats 0 and 1
# 3  transactional id; record batches (format 2)
# 7  zstd allowed in the records
# 9  flexible
# 10 the response may name the leader
# 11 clients know the error TRANSACTION_ABORTABLE
@request(ApiKey.PRODUCE)
class ProduceRequest:
    transactional_id: str | None = text(since=3, null_since=3, default=None, names=Names.TRANSACTIONAL_ID)
    acks: int = int16()
    timeout_ms: int = int32()
    topic_data: list[TopicProduceData] = array(TopicProduceData)


@struct
class BatchIndexAndErrorMessage:
    batch_index: int = int32(since=8)
    batch_index_error_message: str | None = text(since=8, null_since=8, default=None, names=Names.FREE_TEXT)


@struct
class ProduceLeader:
    leader_id: int = int32(since=10, default=-1, names=Names.NODE)
    leader_epoch: int = int32(since=10, default=-1)


@struct
class PartitionProduceResponse:
    index: int = int32()
    error_code: int = int16()
    base_offset: int = int64()
    log_append_time_ms: int = int64(since=2, default=-1)
    log_start_offset: int = int64(since=5, default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = array(BatchIndexAndErrorMessage, since=8)
    error_message: str | None = text(since=8, null_since=8, default=None, names=Names.FREE_TEXT)
    current_leader: ProduceLeader = nested(ProduceLeader, since=10, tag=0)


@struct
class TopicProduceResponse:
    name: str = text(names=Names.TOPIC)
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse)


@struct
class ProduceNodeEndpoint:
    node_id: int = int32(since=10, names=Names.NODE)
    host: str = text(since=10, names=Names.HOST)
    port: int = int32(since=10, names=Names.PORT)
    rack: str | None = text(since=10, null_since=10, default=None, names=Names.RACK)


# 1  throttle time, at the end
# 2  log append time
# 5  log start offset
# 8  errors of single records, and a message
# 9  flexible
# 10 id and endpoint of the leader if it is another broker
@response(ApiKey.PRODUCE)
class ProduceResponse:
    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = int32(since=1)
    node_endpoints: list[ProduceNodeEndpoint] = array(ProduceNodeEndpoint, since=10, tag=0)
