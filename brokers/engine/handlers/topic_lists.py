"""Which of a topic's allow-lists each API asks (CKA-11): one row an API, and `Call.refusal` is how it is asked.

A call that reads a topic asks who may consume, one that writes to it who may produce, one that deletes, shortens, grows
or configures it who may administer. What only says that a topic is there asks for any of the three. The lists
themselves are not changed by any call: they are the owner's in the console and the REST API, and outlive the topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from brokers.engine.access.authorizer import Operation
from brokers.engine.protocol.apis import ApiKey


class ListAsked(NamedTuple):
    """`operation` None: no list is asked, for the reason given."""

    operation: Operation | None
    why: str


def _no_topic(why: str) -> ListAsked:
    return ListAsked(None, why)


_K = ApiKey
_NO_TOPIC: Final = _no_topic("names no topic")
_GROUP: Final = _no_topic(
    "about members of a group: their subscriptions are opaque, and each topic is asked about when it is read"
)
_CLUSTER: Final = _no_topic("the cluster's own, refused to every tenant")
_POSITIONS: Final = ListAsked(Operation.CONSUME, "where a reader of the topic is")

TOPIC_LISTS: Final[Mapping[int, ListAsked]] = {
    int(_K.PRODUCE): ListAsked(Operation.PRODUCE, "writes records"),
    int(_K.FETCH): ListAsked(Operation.CONSUME, "reads records"),
    int(_K.LIST_OFFSETS): ListAsked(Operation.CONSUME, "says how many records there are, and when they came"),
    int(_K.METADATA): ListAsked(Operation.DESCRIBE, "says that a topic is there, and who leads it"),
    int(_K.OFFSET_COMMIT): _POSITIONS,
    int(_K.OFFSET_FETCH): _POSITIONS,
    int(_K.FIND_COORDINATOR): _NO_TOPIC,
    int(_K.JOIN_GROUP): _GROUP,
    int(_K.HEARTBEAT): _GROUP,
    int(_K.LEAVE_GROUP): _GROUP,
    int(_K.SYNC_GROUP): _GROUP,
    int(_K.DESCRIBE_GROUPS): _GROUP,
    int(_K.LIST_GROUPS): _NO_TOPIC,
    int(_K.SASL_HANDSHAKE): _NO_TOPIC,
    int(_K.API_VERSIONS): _NO_TOPIC,
    int(_K.CREATE_TOPICS): _no_topic("there is no such topic yet; lists of a deleted one hold from the first moment"),
    int(_K.DELETE_TOPICS): ListAsked(Operation.ADMINISTER, "deletes the topic"),
    int(_K.DELETE_RECORDS): ListAsked(Operation.ADMINISTER, "shortens the topic"),
    int(_K.INIT_PRODUCER_ID): _NO_TOPIC,
    int(_K.OFFSET_FOR_LEADER_EPOCH): ListAsked(Operation.CONSUME, "says where records end"),
    int(_K.ADD_PARTITIONS_TO_TXN): ListAsked(Operation.PRODUCE, "announces records"),
    int(_K.ADD_OFFSETS_TO_TXN): _NO_TOPIC,
    int(_K.END_TXN): _no_topic("names no topic: what it ends was admitted when written, and readers wait for it"),
    int(_K.WRITE_TXN_MARKERS): _CLUSTER,
    int(_K.TXN_OFFSET_COMMIT): _POSITIONS,
    int(_K.DESCRIBE_ACLS): _NO_TOPIC,
    int(_K.CREATE_ACLS): _no_topic("gives rights to topics, which no list does"),
    int(_K.DELETE_ACLS): _no_topic("takes rights to topics, which no list does"),
    int(_K.DESCRIBE_CONFIGS): ListAsked(Operation.DESCRIBE, "says how a topic is configured, as clients need to know"),
    int(_K.ALTER_CONFIGS): ListAsked(Operation.ADMINISTER, "configures the topic"),
    int(_K.DESCRIBE_LOG_DIRS): ListAsked(Operation.ADMINISTER, "says how many bytes there are"),
    int(_K.SASL_AUTHENTICATE): _NO_TOPIC,
    int(_K.CREATE_PARTITIONS): ListAsked(Operation.ADMINISTER, "grows the topic"),
    int(_K.DELETE_GROUPS): _no_topic("deletes a group; positions of single topics are OffsetDelete's"),
    int(_K.ELECT_LEADERS): _CLUSTER,
    int(_K.INCREMENTAL_ALTER_CONFIGS): ListAsked(Operation.ADMINISTER, "configures the topic"),
    int(_K.ALTER_PARTITION_REASSIGNMENTS): _CLUSTER,
    int(_K.LIST_PARTITION_REASSIGNMENTS): _CLUSTER,
    int(_K.OFFSET_DELETE): _POSITIONS,
    int(_K.DESCRIBE_CLIENT_QUOTAS): _NO_TOPIC,
    int(_K.ALTER_CLIENT_QUOTAS): _NO_TOPIC,
    int(_K.DESCRIBE_USER_SCRAM_CREDENTIALS): _NO_TOPIC,
    int(_K.ALTER_USER_SCRAM_CREDENTIALS): _NO_TOPIC,
    int(_K.DESCRIBE_CLUSTER): _NO_TOPIC,
    int(_K.DESCRIBE_PRODUCERS): ListAsked(Operation.CONSUME, "says who writes, and how much"),
    int(_K.DESCRIBE_TRANSACTIONS): ListAsked(Operation.DESCRIBE, "says that a topic is there"),
    int(_K.LIST_TRANSACTIONS): _NO_TOPIC,
    int(_K.ALLOT_STORAGE): _CLUSTER,
    int(_K.DESCRIBE_USERS): _NO_TOPIC,
    int(_K.ALTER_USERS): _NO_TOPIC,
    int(_K.REPORT_FLOW): _CLUSTER,
    int(_K.CHARGE_POOLS): _CLUSTER,
}
