"""The words of access rules as REST and pages say them, and which go together. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

ANY: Final = "any"
MATCH: Final = "match"
WILDCARD: Final = "*"
CLUSTER_NAME: Final = "kafka-cluster"

TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, USER = "topic", "group", "cluster", "transactional_id", "user"
LITERAL, PREFIXED = "literal", "prefixed"
ALLOW, DENY = "allow", "deny"
ALL: Final = "all"

RESOURCE_TYPES: Final = (TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, USER)
PATTERN_TYPES: Final = (LITERAL, PREFIXED)
PERMISSIONS: Final = (ALLOW, DENY)
OPERATIONS: Final = (
    ALL, "read", "write", "create", "delete", "alter", "describe", "cluster_action", "describe_configs",
    "alter_configs", "idempotent_write",
)  # fmt: skip

# What Kafka asks of a resource of each type (AclEntry.supportedOperations); a rule about anything else decides nothing.
# Of users it asks for delegation tokens, which are not served here.
OPERATIONS_OF: Final[Mapping[str, tuple[str, ...]]] = {
    TOPIC: (ALL, "read", "write", "create", "delete", "alter", "describe", "describe_configs", "alter_configs"),
    GROUP: (ALL, "read", "delete", "describe"),
    CLUSTER: (
        ALL, "create", "alter", "describe", "cluster_action", "describe_configs", "alter_configs", "idempotent_write",
    ),
    TRANSACTIONAL_ID: (ALL, "write", "describe"),
}  # fmt: skip
