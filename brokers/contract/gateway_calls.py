"""Calls that a gateway serves on its internal listener for the control plane, which acts there for an instance, and the
versions that the control plane sends. Other calls of an instance need Penstock's own brokers.
"""

from __future__ import annotations

from typing import Final

PRODUCE, FETCH, LIST_OFFSETS, METADATA = 0, 1, 2, 3
OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, CREATE_TOPICS, DELETE_TOPICS = 8, 9, 10, 19, 20
DESCRIBE_CONFIGS = 32

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
}
# Calls that a gateway answers from documents in ZooKeeper: SASL, rights, client quotas, users.
ANSWERED: Final = frozenset({17, 18, 29, 30, 31, 36, 48, 49, 50, 51, 20_002, 20_003})
SERVED: Final = frozenset(FORWARDED) | ANSWERED
