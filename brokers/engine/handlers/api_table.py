"""The API table: one row for each Kafka call that is served, in `api_rows`.

A row says which handler answers the call, which rights (WIRE-20) and which allow-list of a topic (CKA-11) it asks, what
a request may weigh, and which steps are taken around the handler (`answering`). A new call is a row, a handler, its
messages below `protocol/messages/`, and its versions in `protocol.apis`; a test holds this table and what is advertised
together.

A call that reads a topic asks the list of those who may consume, one that writes to it who may produce, one that
deletes, shortens, grows or configures it who may administer. A call that shows no more than that a topic exists asks
for any of the three. Lists are not changed by any call: they are the owner's in the console and the REST API, and
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
# Older versions of the same calls, whose record sets are converted on the way.
LEGACY_HANDLERS: Final[Mapping[int, Callable[..., None]]] = {
    int(ApiKey.PRODUCE): produce_legacy.produce_old,
    int(ApiKey.FETCH): legacy.fetch_old,
}

DISPATCH_TABLE: Final = DispatchTable(FAST_CODEC_HANDLERS, LEGACY_HANDLERS, API_TABLE, answer)


def limit_of(api_key: int) -> RequestLimit:
    """Returns the limit of a request; for an API that is not served, that of a list."""
    api = API_TABLE.get(api_key)
    return limits.LISTS if api is None else api.limit
