"""Table of the forwarded calls: how each is authorised and answered, and the rights and limits that it shares with the
broker's table.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from brokers.engine.handlers.api_table import API_TABLE
from brokers.engine.handlers.served_api import ServedApi
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.upstream import group_calls, topic_calls, transaction_calls
from brokers.engine.upstream.call import Call
from brokers.engine.upstream.versions import REVIEWED

_K = ApiKey

# Calls that need nothing but the request. Produce, Fetch and CreateTopics are called by the session, with what limits
# them.
HANDLERS: Final[Mapping[int, Callable[[Call, Any], Awaitable[Any]]]] = {
    _K.LIST_OFFSETS: topic_calls.offsets_listed,
    _K.METADATA: topic_calls.described,
    _K.DELETE_TOPICS: topic_calls.deleted,
    _K.DESCRIBE_CONFIGS: topic_calls.configs_described,
    _K.FIND_COORDINATOR: group_calls.coordinator_found,
    _K.JOIN_GROUP: group_calls.joined,
    _K.SYNC_GROUP: group_calls.synchronised,
    _K.HEARTBEAT: group_calls.heard,
    _K.LEAVE_GROUP: group_calls.left,
    _K.OFFSET_COMMIT: group_calls.committed,
    _K.OFFSET_FETCH: group_calls.fetched,
    _K.INIT_PRODUCER_ID: transaction_calls.producer_initialised,
    _K.ADD_PARTITIONS_TO_TXN: transaction_calls.partitions_added,
    _K.ADD_OFFSETS_TO_TXN: transaction_calls.offsets_added,
    _K.END_TXN: transaction_calls.ended,
    _K.TXN_OFFSET_COMMIT: transaction_calls.offsets_committed,
}

# A gateway writes no records of coordinators, for which a broker would charge.
ROWS: Final[Mapping[int, ServedApi]] = {
    int(api_key): replace(API_TABLE[api_key], throttled_first=False) for api_key in REVIEWED
}
VERSIONS_ROW: Final = API_TABLE[_K.API_VERSIONS]
