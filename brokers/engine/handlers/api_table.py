"""The API table: one row for each supported Kafka call, in `api_rows`.

A row declares the handler of the call, the rights (WIRE-20) and the topic allow-list (CKA-11) that it requires, the
limit of its requests, and the steps around the handler (`answering`). A new call needs a row, a handler, its messages
below `protocol/messages/`, and its versions in `protocol.apis`; a test compares this table with the advertised calls.

A call that reads a topic requires the allow-list for consuming, one that writes to it the list for producing, one that
deletes, shortens, grows or configures it the list for administration. A call that only shows that a topic exists
requires any of the three. No call changes the lists: the owner edits them in the console and the REST API, and they
outlive the topic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from brokers.engine.handlers.answering import answer
from brokers.engine.handlers.api_rows import access, cluster, groups, records, topics, transactions
from brokers.engine.handlers.fetch import fetch, legacy
from brokers.engine.handlers.produce import legacy as produce_legacy
from brokers.engine.handlers.produce import produce
from brokers.engine.handlers.served_api import ServedApi
from brokers.engine.handlers.session import DispatchTable, FastCodec
from brokers.engine.protocol import request_limits as limits
from brokers.engine.protocol.apis import ADVERTISED_TENANT, FETCH_BATCHES_FROM, PRODUCE_BATCHES_FROM, ApiKey
from brokers.engine.protocol.request_limits import RequestLimit

API_TABLE: Final[Mapping[int, ServedApi]] = {
    int(api.key): api for family in (records, groups, topics, transactions, access, cluster) for api in family.ROWS
}

FAST_CODEC_HANDLERS: Final[Mapping[int, FastCodec]] = {
    int(ApiKey.PRODUCE): FastCodec(produce.produce, PRODUCE_BATCHES_FROM, ADVERTISED_TENANT[ApiKey.PRODUCE][1]),
    int(ApiKey.FETCH): FastCodec(fetch.fetch, FETCH_BATCHES_FROM, ADVERTISED_TENANT[ApiKey.FETCH][1]),
}
# Older versions of Produce and Fetch, whose record sets are converted.
LEGACY_HANDLERS: Final[Mapping[int, Callable[..., None]]] = {
    int(ApiKey.PRODUCE): produce_legacy.produce_old,
    int(ApiKey.FETCH): legacy.fetch_old,
}

DISPATCH_TABLE: Final = DispatchTable(FAST_CODEC_HANDLERS, LEGACY_HANDLERS, API_TABLE, answer)


def limit_of(api_key: int) -> RequestLimit:
    """Returns the request limit of a call; an unsupported call has that of a list."""
    api = API_TABLE.get(api_key)
    return limits.LISTS if api is None else api.limit
