"""DescribeProducers, DescribeTransactions, ListTransactions: views of producer and transaction state."""

from __future__ import annotations

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.fields import Names, array, element, int16, int32, int64, request, response, struct, text


@struct
class DescribeProducersTopic:
    name: str = text(names=Names.TOPIC)
    partition_indexes: list[int] = array("int32")


# 0  flexible from the start
@request(ApiKey.DESCRIBE_PRODUCERS)
class DescribeProducersRequest:
    topics: list[DescribeProducersTopic] = array(DescribeProducersTopic)


@struct
class ActiveProducer:
    producer_id: int = int64()
    producer_epoch: int = int32()
    last_sequence: int = int32(default=-1)
    last_timestamp: int = int64(default=-1)
    coordinator_epoch: int = int32()
    current_txn_start_offset: int = int64(default=-1)


@struct
class DescribeProducersPartitionResult:
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = text(null_since=0, default=None, names=Names.FREE_TEXT)
    active_producers: list[ActiveProducer] = array(ActiveProducer)


@struct
class DescribeProducersTopicResult:
    name: str = text(names=Names.TOPIC)
    partitions: list[DescribeProducersPartitionResult] = array(DescribeProducersPartitionResult)


@response(ApiKey.DESCRIBE_PRODUCERS)
class DescribeProducersResponse:
    throttle_time_ms: int = int32()
    topics: list[DescribeProducersTopicResult] = array(DescribeProducersTopicResult)


# 0  flexible from the start
@request(ApiKey.DESCRIBE_TRANSACTIONS)
class DescribeTransactionsRequest:
    transactional_ids: list[str] = array(element("text", Names.TRANSACTIONAL_ID))


@struct
class TransactionTopic:
    topic: str = text(names=Names.TOPIC)
    partitions: list[int] = array("int32")


@struct
class TransactionDescription:
    error_code: int = int16()
    transactional_id: str = text(names=Names.TRANSACTIONAL_ID)
    transaction_state: str = text(names=Names.NONE)
    transaction_timeout_ms: int = int32()
    transaction_start_time_ms: int = int64()
    producer_id: int = int64()
    producer_epoch: int = int16()
    topics: list[TransactionTopic] = array(TransactionTopic)


@response(ApiKey.DESCRIBE_TRANSACTIONS)
class DescribeTransactionsResponse:
    throttle_time_ms: int = int32()
    transaction_states: list[TransactionDescription] = array(TransactionDescription)


# 0  flexible from the start
# 1  only transactions that have been open longer than this number of ms
@request(ApiKey.LIST_TRANSACTIONS)
class ListTransactionsRequest:
    state_filters: list[str] = array(element("text", Names.NONE))
    producer_id_filters: list[int] = array("int64")
    duration_filter: int = int64(since=1, default=-1)


@struct
class ListedTransaction:
    transactional_id: str = text(names=Names.TRANSACTIONAL_ID)
    producer_id: int = int64()
    transaction_state: str = text(names=Names.NONE)


@response(ApiKey.LIST_TRANSACTIONS)
class ListTransactionsResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    unknown_state_filters: list[str] = array(element("text", Names.NONE))
    transaction_states: list[ListedTransaction] = array(ListedTransaction)
