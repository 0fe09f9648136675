"""Takes out of an answer what two right brokers may answer differently: ids, addresses, clocks, wording.

The result is plain JSON without the fields that have their default. Times near the present become "now", so that
timestamps which a script put into its records (they lie in 2020) are compared exactly.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from struct import Struct
from typing import Any

from brokers.engine.wire.checksum import crc32c

_DAY_MS = 86_400_000
# base offset, length, leader epoch, magic, crc, attributes, last offset delta, base and max timestamp, producer id,
# producer epoch, base sequence, count
_BATCH = Struct(">qiibIhiqqqhii")
_LENGTH_AT = 8
_LOG_OVERHEAD = 12


Rules = Mapping[str, Callable[[Any], Any]]


def normalised(value: Any, rules: Rules | None = None) -> Any:
    """The answer as JSON values; `rules` say by the name of a field what becomes of its value."""
    return _value("", value, RULES if rules is None else rules)


def _value(name: str, value: Any, rules: Rules) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: _field(
                field.name, _in_order(type(value).__name__, field.name, getattr(value, field.name)), rules
            )
            for field in dataclasses.fields(value)
            if field.name not in LEFT_OUT and getattr(value, field.name) != _default(field)
        }
    if isinstance(value, list):
        return [_field(name, item, rules) for item in value]
    if isinstance(value, bytes):
        return value.hex()
    return value


def _in_order(owner: str, name: str, value: Any) -> Any:
    by = UNORDERED.get((owner, name))
    if by is None:
        return value
    return sorted(value, key=lambda item: (getattr(item, by) is None, getattr(item, by)))


def _default(field: dataclasses.Field[Any]) -> Any:
    return field.default_factory() if field.default is dataclasses.MISSING else field.default  # type: ignore[misc]


def _field(name: str, value: Any, rules: Rules) -> Any:
    rule = rules.get(name)
    return rule(value) if rule is not None else _value(name, value, rules)


def _id(value: Any) -> Any:
    if isinstance(value, list):
        return [_id(item) for item in value]
    return value if value < 0 else "broker"


def _time(value: int) -> Any:
    return "now" if value >= 0 and abs(value - time.time() * 1000) < _DAY_MS else value


def _one_broker(value: list[Any]) -> Any:
    """However many brokers there are, each is listed alike."""
    listed = [_value("brokers", item, RULES) for item in value]
    return listed[:1]


def _by_name(value: list[Any] | None) -> Any:
    if value is None:
        return None
    kept = [item for item in value if item.name in CONFIG_KEYS]
    return [_value("configs", item, RULES) for item in sorted(kept, key=lambda item: item.name)]


def records_with(producer: Callable[[int], Any]) -> Callable[[bytes | None], Any]:
    """Batches with their header fields, `producer` saying what becomes of producer ids; a cut one as the number of its
    bytes.
    """
    return lambda value: _records(value, producer)


def _records(value: bytes | None, named: Callable[[int], Any]) -> Any:
    if value is None:
        return None
    result: list[Any] = []
    position = 0
    while position < len(value):
        length = int.from_bytes(value[position + _LENGTH_AT : position + _LOG_OVERHEAD], "big")
        end = position + _LOG_OVERHEAD + length
        if end > len(value) or position + _LOG_OVERHEAD > len(value):
            result.append({"cut_bytes": len(value) - position})
            break
        result.append(_batch(value[position:end], named))
        position = end
    return result


def _batch(data: bytes, named: Callable[[int], Any]) -> Any:
    if data[16] < 2:
        return data.hex()
    fields = _BATCH.unpack_from(data)
    offset, length, leader_epoch, magic, crc, attributes, last_delta, base_time, max_time, producer, *rest = fields
    return {
        "base_offset": offset,
        "length": length,
        "leader_epoch": leader_epoch,
        "magic": magic,
        "crc_holds": crc32c(data[21:]) == crc,
        "attributes": attributes,
        "last_offset_delta": last_delta,
        "base_timestamp": _time(base_time),
        "max_timestamp": _time(max_time),
        "producer_id": named(producer),
        "producer_epoch": rest[0],
        "base_sequence": rest[1],
        "count": rest[2],
        "records": data[_BATCH.size :].hex(),
    }


def _producer(value: int) -> Any:
    return value if value < 0 else "producer"


# Throttling is a matter of load, racks of where a broker stands, messages a matter of wording.
LEFT_OUT = {"throttle_time_ms", "rack", "error_message", "batch_index_error_message"}
# Lists whose order says nothing: (class, field) → what they are sorted by.
UNORDERED = {
    ("MetadataResponse", "topics"): "name",
    ("MetadataResponseTopic", "partitions"): "partition_index",
    ("ProduceResponse", "responses"): "name",
    ("TopicProduceResponse", "partition_responses"): "index",
    ("OffsetCommitResponse", "topics"): "name",
    ("OffsetCommitResponseTopic", "partitions"): "partition_index",
    ("OffsetFetchResponse", "topics"): "name",
    ("OffsetFetchResponseTopic", "partitions"): "partition_index",
    ("OffsetFetchResponse", "groups"): "group_id",
    ("OffsetFetchResponseGroup", "topics"): "name",
    ("OffsetFetchResponseTopics", "partitions"): "partition_index",
    ("OffsetDeleteResponse", "topics"): "name",
    ("OffsetDeleteResponseTopic", "partitions"): "partition_index",
    ("DescribeGroupsResponse", "groups"): "group_id",
    ("DeleteGroupsResponse", "results"): "group_id",
    ("TxnOffsetCommitResponse", "topics"): "name",
    ("TxnOffsetCommitResponseTopic", "partitions"): "partition_index",
    ("AddPartitionsToTxnResponse", "results_by_transaction"): "transactional_id",
    ("AddPartitionsToTxnResponse", "results_by_topic_v3_and_below"): "name",
    ("AddPartitionsToTxnResult", "topic_results"): "name",
    ("AddPartitionsToTxnTopicResult", "results_by_partition"): "partition_index",
    ("DescribeProducersResponse", "topics"): "name",
    ("DescribeProducersTopicResult", "partitions"): "partition_index",
    ("DescribeTransactionsResponse", "transaction_states"): "transactional_id",
    ("TransactionDescription", "topics"): "topic",
    ("WriteTxnMarkersResponse", "markers"): "producer_id",
    ("WritableTxnMarkerResult", "topics"): "name",
    ("WritableTxnMarkerTopicResult", "partitions"): "partition_index",
}
# Of the many keys a topic has, those that are compared.
CONFIG_KEYS = [
    "cleanup.policy",
    "compression.type",
    "max.message.bytes",
    "min.insync.replicas",
    "retention.bytes",
    "retention.ms",
    "segment.bytes",
]
RULES: dict[str, Callable[[Any], Any]] = {
    "leader_id": _id,
    "node_id": _id,
    "broker_id": _id,
    "controller_id": _id,
    "replica_nodes": _id,
    "isr_nodes": _id,
    "offline_replicas": _id,
    "brokers": _one_broker,
    "host": lambda value: "host" if value else value,
    "port": lambda value: "port" if value >= 0 else value,
    "cluster_id": lambda value: None if value is None else "cluster",
    "topic_id": lambda value: "id" if any(value) else "no id",
    "documentation": lambda value: None if value is None else "text",
    "log_append_time_ms": _time,
    "timestamp": _time,
    "last_timestamp": _time,
    "transaction_start_time_ms": _time,
    "producer_id": _producer,
    "session_id": lambda value: "session" if value else 0,
    "configs": _by_name,
    "records": records_with(_producer),
}
