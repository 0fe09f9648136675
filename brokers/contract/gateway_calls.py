"""Calls that a gateway serves on its internal listener for the control plane, which acts there for an instance, and the
versions that the control plane sends. Other calls of an instance need Penstock's own brokers.
"""

from __future__ import annotations

from typing import Final

PRODUCE, FETCH, LIST_OFFSETS, METADATA = 0, 1, 2, 3
OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, CREATE_TOPICS, DELETE_TOPICS = 8, 9, 10, 19, 20
DESCRIBE_GROUPS, LIST_GROUPS, DELETE_RECORDS, DESCRIBE_CONFIGS = 15, 16, 21, 32
CREATE_PARTITIONS, DELETE_GROUPS, INCREMENTAL_ALTER_CONFIGS, OFFSET_DELETE = 37, 42, 44, 47
INIT_PRODUCER_ID, DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS = 22, 61, 65, 66

# Calls that are forwarded to the upstream, with the version that the control plane sends: an upstream that does not
# serve it is too old. Apache Kafka serves all of them from 3.0 on.
FORWARDED: Final = {
    PRODUCE: 9,
    FETCH: 11,
    LIST_OFFSETS: 7,
    METADATA: 11,
    OFFSET_COMMIT: 8,
    OFFSET_FETCH: 8,
    FIND_COORDINATOR: 4,
    CREATE_TOPICS: 7,
    DELETE_TOPICS: 5,
    DESCRIBE_CONFIGS: 4,
    DESCRIBE_GROUPS: 5,
    LIST_GROUPS: 4,
    DELETE_RECORDS: 2,
    CREATE_PARTITIONS: 3,
    DELETE_GROUPS: 2,
    INCREMENTAL_ALTER_CONFIGS: 1,
    OFFSET_DELETE: 0,
    INIT_PRODUCER_ID: 4,
    DESCRIBE_PRODUCERS: 0,
    DESCRIBE_TRANSACTIONS: 0,
    LIST_TRANSACTIONS: 0,
}
# Calls that a gateway answers from documents in ZooKeeper: SASL, rights, client quotas, users, addresses of brokers.
ANSWERED: Final = frozenset({17, 18, 29, 30, 31, 36, 48, 49, 50, 51, 60, 20_002, 20_003})
SERVED: Final = frozenset(FORWARDED) | ANSWERED
