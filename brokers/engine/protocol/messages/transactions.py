"""Producer ids and transactions: calls of producers, and markers that coordinators send to the partitions' leaders."""

from __future__ import annotations

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.fields import (
    OWN_TAGS_FROM,
    Names,
    array,
    boolean,
    int16,
    int32,
    int64,
    request,
    response,
    struct,
    text,
)


# 2  flexible
# 3  an existing id and epoch, to be bumped
# 4  clients know the error PRODUCER_FENCED
# 5  clients know the error TRANSACTION_ABORTABLE
@request(ApiKey.INIT_PRODUCER_ID)
class InitProducerIdRequest:
    transactional_id: str | None = text(null_since=0, names=Names.TRANSACTIONAL_ID)
    transaction_timeout_ms: int = int32()
    producer_id: int = int64(since=3, default=-1)
    producer_epoch: int = int16(since=3, default=-1)


# 2  flexible
@response(ApiKey.INIT_PRODUCER_ID)
class InitProducerIdResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()


@struct
class AddPartitionsToTxnTopic:
    name: str = text(names=Names.TOPIC)
    partitions: list[int] = array("int32")


@struct
class AddPartitionsToTxnTransaction:
    transactional_id: str = text(since=4, names=Names.TRANSACTIONAL_ID)
    producer_id: int = int64(since=4)
    producer_epoch: int = int16(since=4)
    verify_only: bool = boolean(since=4)
    topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, since=4)
    wants_coordinator_epoch: bool = boolean(since=4, tag=OWN_TAGS_FROM)


# 2  clients know the error PRODUCER_FENCED
# 3  flexible
# 4  several transactions at once, which may be verified only; for brokers
# 5  the error TRANSACTION_ABORTABLE is known
@request(ApiKey.ADD_PARTITIONS_TO_TXN)
class AddPartitionsToTxnRequest:
    transactions: list[AddPartitionsToTxnTransaction] = array(AddPartitionsToTxnTransaction, since=4)
    v3_and_below_transactional_id: str = text(until=3, names=Names.TRANSACTIONAL_ID)
    v3_and_below_producer_id: int = int64(until=3)
    v3_and_below_producer_epoch: int = int16(until=3)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, until=3)


@struct
class AddPartitionsToTxnPartitionResult:
    partition_index: int = int32()
    partition_error_code: int = int16()


@struct
class AddPartitionsToTxnTopicResult:
    name: str = text(names=Names.TOPIC)
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = array(AddPartitionsToTxnPartitionResult)


# `coordinator_epoch` is Penstock's own field, from which a partition's leader learns the coordinator's epoch
# (decision 76).
@struct
class AddPartitionsToTxnResult:
    transactional_id: str = text(since=4, names=Names.TRANSACTIONAL_ID)
    topic_results: list[AddPartitionsToTxnTopicResult] = array(AddPartitionsToTxnTopicResult, since=4)
    coordinator_epoch: int = int32(since=4, tag=OWN_TAGS_FROM, default=-1)


# 3  flexible
# 4  results per transaction, and an error for the whole response
@response(ApiKey.ADD_PARTITIONS_TO_TXN)
class AddPartitionsToTxnResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16(since=4)
    results_by_transaction: list[AddPartitionsToTxnResult] = array(AddPartitionsToTxnResult, since=4)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = array(AddPartitionsToTxnTopicResult, until=3)


# 2  clients know the error PRODUCER_FENCED
# 3  flexible
# 4  clients know the error TRANSACTION_ABORTABLE
@request(ApiKey.ADD_OFFSETS_TO_TXN)
class AddOffsetsToTxnRequest:
    transactional_id: str = text(names=Names.TRANSACTIONAL_ID)
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = text(names=Names.GROUP)


# 3  flexible
@response(ApiKey.ADD_OFFSETS_TO_TXN)
class AddOffsetsToTxnResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()


# 2  clients know the error PRODUCER_FENCED
# 3  flexible
# 4  clients know the error TRANSACTION_ABORTABLE
@request(ApiKey.END_TXN)
class EndTxnRequest:
    transactional_id: str = text(names=Names.TRANSACTIONAL_ID)
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()


# 3  flexible
@response(ApiKey.END_TXN)
class EndTxnResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()


@struct
class WritableTxnMarkerTopic:
    name: str = text()
    partition_indexes: list[int] = array("int32")


@struct
class WritableTxnMarker:
    producer_id: int = int64()
    producer_epoch: int = int16()
    transaction_result: bool = boolean()
    topics: list[WritableTxnMarkerTopic] = array(WritableTxnMarkerTopic)
    coordinator_epoch: int = int32()


# 1  flexible
@request(ApiKey.WRITE_TXN_MARKERS)
class WriteTxnMarkersRequest:
    markers: list[WritableTxnMarker] = array(WritableTxnMarker)


@struct
class WritableTxnMarkerPartitionResult:
    partition_index: int = int32()
    error_code: int = int16()


@struct
class WritableTxnMarkerTopicResult:
    name: str = text()
    partitions: list[WritableTxnMarkerPartitionResult] = array(WritableTxnMarkerPartitionResult)


@struct
class WritableTxnMarkerResult:
    producer_id: int = int64()
    topics: list[WritableTxnMarkerTopicResult] = array(WritableTxnMarkerTopicResult)


# 1  flexible
@response(ApiKey.WRITE_TXN_MARKERS)
class WriteTxnMarkersResponse:
    markers: list[WritableTxnMarkerResult] = array(WritableTxnMarkerResult)


@struct
class TxnOffsetCommitRequestPartition:
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(since=2, default=-1)
    committed_metadata: str | None = text(null_since=0, names=Names.NONE)


@struct
class TxnOffsetCommitRequestTopic:
    name: str = text(names=Names.TOPIC)
    partitions: list[TxnOffsetCommitRequestPartition] = array(TxnOffsetCommitRequestPartition)


# 2  leader epoch of the committed offset
# 3  flexible; the consumer's member and generation
# 4  clients know the error TRANSACTION_ABORTABLE
@request(ApiKey.TXN_OFFSET_COMMIT)
class TxnOffsetCommitRequest:
    transactional_id: str = text(names=Names.TRANSACTIONAL_ID)
    group_id: str = text(names=Names.GROUP)
    producer_id: int = int64()
    producer_epoch: int = int16()
    generation_id: int = int32(since=3, default=-1)
    member_id: str = text(since=3, names=Names.NONE)
    group_instance_id: str | None = text(since=3, null_since=3, default=None, names=Names.NONE)
    topics: list[TxnOffsetCommitRequestTopic] = array(TxnOffsetCommitRequestTopic)


@struct
class TxnOffsetCommitResponsePartition:
    partition_index: int = int32()
    error_code: int = int16()


@struct
class TxnOffsetCommitResponseTopic:
    name: str = text(names=Names.TOPIC)
    partitions: list[TxnOffsetCommitResponsePartition] = array(TxnOffsetCommitResponsePartition)


# 3  flexible
@response(ApiKey.TXN_OFFSET_COMMIT)
class TxnOffsetCommitResponse:
    throttle_time_ms: int = int32()
    topics: list[TxnOffsetCommitResponseTopic] = array(TxnOffsetCommitResponseTopic)
