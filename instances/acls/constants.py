"""Names of resource types, patterns, permissions and operations in REST and on pages, and their valid combinations.
Pure.
"""

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

# The operations that Kafka checks on a resource of each type (AclEntry.supportedOperations); rules about others have no
# effect. For users it checks delegation tokens, which are not supported here.
OPERATIONS_OF: Final[Mapping[str, tuple[str, ...]]] = {
    TOPIC: (ALL, "read", "write", "create", "delete", "alter", "describe", "describe_configs", "alter_configs"),
    GROUP: (ALL, "read", "delete", "describe"),
    CLUSTER: (
        ALL, "create", "alter", "describe", "cluster_action", "describe_configs", "alter_configs", "idempotent_write",
    ),
    TRANSACTIONAL_ID: (ALL, "write", "describe"),
}  # fmt: skip
