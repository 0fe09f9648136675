"""Access control lists of an instance as stored in ZooKeeper: one document per resource pattern (KIP-290)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from brokers.contract import paths

# Entries of an instance, all its patterns together; Kafka has no limit.
ENTRIES_MAX: Final = 1_000
# Total weight of an instance's ACL documents (`instance_limits`).
ACL_BYTES_MAX: Final = 256 * 1024
# Length of a resource's or principal's name as encoded in ZooKeeper.
NAME_BYTES_MAX: Final = 255
# Name in a literal pattern that applies to every resource; the principal `User:*` stands for all users.
WILDCARD: Final = "*"
USER_PREFIX: Final = "User:"
EVERYBODY: Final = f"{USER_PREFIX}*"
ANY_HOST: Final = "*"
# The only name of a cluster resource, which is the instance: to its owner it is a cluster.
CLUSTER_NAME: Final = "kafka-cluster"


class ResourceType(IntEnum):
    """Type of a resource, with its number in the protocol."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    USER = 7


class PatternType(IntEnum):
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


class Permission(IntEnum):
    DENY = 2
    ALLOW = 3


@dataclass(frozen=True, slots=True, order=True)
class AclEntry:
    """One rule of a pattern; `principal` is like `User:alice`, `host` is an address or `*`."""

    principal: str
    host: str
    operation: AclOperation
    permission: Permission


@dataclass(frozen=True, slots=True, order=True)
class ResourcePattern:
    """Pattern of the resources that an ACL applies to, under the owner's names."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType

    @property
    def node_name(self) -> str:
        """Name of its node below `/ckafka/instances/<id>/acls`."""
        return f"{self.resource_type.value}:{self.pattern_type.value}:{paths.sanitised_part(self.name)}"

    @classmethod
    def of_node(cls, node_name: str) -> ResourcePattern:
        """Parses a `node_name`.

        Raises:
            ValueError: no broker of this version writes a node of this name.
        """
        resource_type, pattern_type, name = node_name.split(":", 2)
        pattern = cls(ResourceType(int(resource_type)), paths.desanitise(name), PatternType(int(pattern_type)))
        if pattern.node_name != node_name:
            raise ValueError(f"not the node of an ACL: {node_name!r}")
        return pattern


@dataclass(frozen=True, slots=True, kw_only=True)
class AclDocument:
    """Document at `/ckafka/instances/<id>/acls/<pattern>`: all entries of one pattern, deleted with the last one."""

    pattern: ResourcePattern
    entries: frozenset[AclEntry]

    @classmethod
    def closed(cls, node_name: str) -> AclDocument:
        """Returns the replacement of a document that cannot be read, which denies everything on its pattern.

        Ignoring the document could allow accesses that it denied, or open a resource that had no other rule.

        Raises:
            ValueError: the resource type is unknown to this version, which therefore never checks it.
        """
        entry = AclEntry(EVERYBODY, ANY_HOST, AclOperation.ALL, Permission.DENY)
        return cls(pattern=ResourcePattern.of_node(node_name), entries=frozenset({entry}))

    def to_json(self) -> bytes:
        body = {
            "version": 1,
            "resource_type": self.pattern.resource_type,
            "name": self.pattern.name,
            "pattern_type": self.pattern.pattern_type,
            # Sorted as lists, because comparing a thousand dataclasses would take ten times as long.
            "entries": sorted(
                [entry.principal, entry.host, int(entry.operation), int(entry.permission)] for entry in self.entries
            ),
        }
        return json.dumps(body, separators=(",", ":"), sort_keys=True).encode()

    @classmethod
    def from_json(cls, raw: bytes) -> AclDocument:
        body = json.loads(raw)
        return cls(
            pattern=ResourcePattern(
                ResourceType(body["resource_type"]), body["name"], PatternType(body["pattern_type"])
            ),
            entries=frozenset(
                AclEntry(principal, host, AclOperation(operation), Permission(permission))
                for principal, host, operation, permission in body["entries"]
            ),
        )
