"""Handlers of the requests that a gateway forwards, and their rows of the API table."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from brokers.engine.handlers.api_table import API_TABLE
from brokers.engine.handlers.served_api import ServedApi
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.upstream import (
    group_administration,
    group_calls,
    topic_administration,
    topic_calls,
    transaction_calls,
)
from brokers.engine.upstream.call import Call
from brokers.engine.upstream.versions import REVIEWED

_K = ApiKey

# Handlers that take only the request. Produce, Fetch, CreateTopics and CreatePartitions also need limiters, so the
# session calls them itself.
HANDLERS: Final[Mapping[int, Callable[[Call, Any], Awaitable[Any]]]] = {
    _K.LIST_OFFSETS: topic_calls.find_offsets,
    _K.METADATA: topic_calls.describe_topics,
    _K.OFFSET_FOR_LEADER_EPOCH: topic_calls.find_epoch_ends,
    _K.DELETE_TOPICS: topic_administration.delete_topics,
    _K.DELETE_RECORDS: topic_administration.delete_records,
    _K.DESCRIBE_CONFIGS: topic_administration.describe_configs,
    _K.INCREMENTAL_ALTER_CONFIGS: topic_administration.alter_configs,
    _K.FIND_COORDINATOR: group_calls.find_coordinator,
    _K.JOIN_GROUP: group_calls.join_group,
    _K.SYNC_GROUP: group_calls.sync_group,
    _K.HEARTBEAT: group_calls.heartbeat,
    _K.LEAVE_GROUP: group_calls.leave_group,
    _K.OFFSET_COMMIT: group_calls.commit_offsets,
    _K.OFFSET_FETCH: group_calls.fetch_offsets,
    _K.LIST_GROUPS: group_administration.list_groups,
    _K.DESCRIBE_GROUPS: group_administration.describe_groups,
    _K.DELETE_GROUPS: group_administration.delete_groups,
    _K.OFFSET_DELETE: group_administration.delete_offsets,
    _K.INIT_PRODUCER_ID: transaction_calls.init_producer_id,
    _K.ADD_PARTITIONS_TO_TXN: transaction_calls.add_partitions,
    _K.ADD_OFFSETS_TO_TXN: transaction_calls.add_offsets,
    _K.END_TXN: transaction_calls.end_transaction,
    _K.TXN_OFFSET_COMMIT: transaction_calls.commit_offsets,
    _K.DESCRIBE_PRODUCERS: transaction_calls.describe_producers,
    _K.DESCRIBE_TRANSACTIONS: transaction_calls.describe_transactions,
    _K.LIST_TRANSACTIONS: transaction_calls.list_transactions,
}
# Handlers that add partitions, within the limit of the instance and one request of it at a time.
PARTITION_ADDITIONS: Final[Mapping[int, Callable[[Call, Any, asyncio.Lock, int], Awaitable[Any]]]] = {
    _K.CREATE_TOPICS: topic_administration.create_topics,
    _K.CREATE_PARTITIONS: topic_administration.create_partitions,
}

# `throttled_first` is off: it is for requests for which a coordinator on this process writes records, and a gateway has
# no coordinators.
FORWARDED_APIS: Final[Mapping[int, ServedApi]] = {
    int(api_key): replace(API_TABLE[api_key], throttled_first=False) for api_key in REVIEWED
}
API_VERSIONS_ROW: Final = API_TABLE[_K.API_VERSIONS]
