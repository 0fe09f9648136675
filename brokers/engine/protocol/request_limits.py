"""What one request of a tenant may weigh, by API (I.6). A request over its limit is refused as a frame over
`socket.request.max.bytes` is: the connection is closed without an answer.

The limits hold what ordinary clients send: a consumer of 10,000 topics with one partition each commits 20,000 items in
half a megabyte. The brokers' own requests have the limits of the codec alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.framing import FRAME_BYTES_MAX

_KIB: Final = 1024
_MIB: Final = 1024 * 1024


class RequestLimit(NamedTuple):
    """`items_max`: items of all arrays of the request together."""

    bytes_max: int
    items_max: int


# Record sets; their decoders count topics and partitions themselves. 10,000 topics with one partition each are 20,000.
_PRODUCE: Final = RequestLimit(FRAME_BYTES_MAX, 25_000)
_FETCH: Final = RequestLimit(8 * _MIB, 25_000)
# Lists of topics and partitions: a consumer of 10,000 topics with one partition each asks for 20,000 items.
_LISTS: Final = RequestLimit(4 * _MIB, 25_000)
# What an administrator asks for or changes: every item is work for ZooKeeper, or a long answer.
_ADMINISTRATION: Final = RequestLimit(_MIB, 12_000)
# What members of a group tell each other: subscriptions of thousands of topics, state of Kafka Streams. A member names
# some protocols, the leader a member in each item. Coordinators keep 1 MB at most of a member, and of assignments of
# a group; what is somewhat longer is answered with an error (coordinators/groups/limits.py).
_JOIN: Final = RequestLimit(2 * _MIB, 1_000)
_SYNC: Final = RequestLimit(2 * _MIB, 12_000)
_LEAVE: Final = RequestLimit(_MIB, 3_000)
# About one group, transaction or connection.
_ONE: Final = RequestLimit(64 * _KIB, 1_000)

_OF_API: Final[Mapping[int, RequestLimit]] = {
    int(ApiKey.PRODUCE): _PRODUCE,
    int(ApiKey.FETCH): _FETCH,
    int(ApiKey.JOIN_GROUP): _JOIN,
    int(ApiKey.SYNC_GROUP): _SYNC,
    int(ApiKey.FIND_COORDINATOR): _ADMINISTRATION,
    int(ApiKey.LEAVE_GROUP): _LEAVE,
    int(ApiKey.DESCRIBE_GROUPS): _ADMINISTRATION,
    int(ApiKey.DELETE_GROUPS): _ADMINISTRATION,
    int(ApiKey.CREATE_TOPICS): _ADMINISTRATION,
    int(ApiKey.DELETE_TOPICS): _ADMINISTRATION,
    int(ApiKey.CREATE_PARTITIONS): _ADMINISTRATION,
    int(ApiKey.DESCRIBE_ACLS): _ONE,
    int(ApiKey.CREATE_ACLS): _ADMINISTRATION,
    int(ApiKey.DELETE_ACLS): _ADMINISTRATION,
    int(ApiKey.DESCRIBE_CONFIGS): _ADMINISTRATION,
    int(ApiKey.ALTER_CONFIGS): _ADMINISTRATION,
    int(ApiKey.INCREMENTAL_ALTER_CONFIGS): _ADMINISTRATION,
    int(ApiKey.ELECT_LEADERS): _ADMINISTRATION,
    int(ApiKey.ALTER_PARTITION_REASSIGNMENTS): _ADMINISTRATION,
    int(ApiKey.LIST_PARTITION_REASSIGNMENTS): _ADMINISTRATION,
    int(ApiKey.DESCRIBE_CLIENT_QUOTAS): _ONE,
    int(ApiKey.ALTER_CLIENT_QUOTAS): _ADMINISTRATION,
    int(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS): _ADMINISTRATION,
    int(ApiKey.ALTER_USER_SCRAM_CREDENTIALS): _ADMINISTRATION,
    int(ApiKey.DESCRIBE_TRANSACTIONS): _ADMINISTRATION,
    int(ApiKey.LIST_TRANSACTIONS): _ONE,
    int(ApiKey.LIST_GROUPS): _ONE,
    int(ApiKey.API_VERSIONS): _ONE,
    int(ApiKey.SASL_HANDSHAKE): _ONE,
    int(ApiKey.SASL_AUTHENTICATE): _ONE,
    int(ApiKey.HEARTBEAT): _ONE,
    int(ApiKey.INIT_PRODUCER_ID): _ONE,
    int(ApiKey.ADD_OFFSETS_TO_TXN): _ONE,
    int(ApiKey.END_TXN): _ONE,
    int(ApiKey.DESCRIBE_CLUSTER): _ONE,
}


def limit_of(api_key: int) -> RequestLimit:
    """Of a request of this API; of an API that is not known, as of a list."""
    return _OF_API.get(api_key, _LISTS)
