"""Which ACLs a DescribeAcls or DeleteAcls is about (KIP-290): kinds may be ANY, and a pattern type of MATCH asks for
all patterns that name a resource.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from brokers.contract.acl_decisions import concerns
from brokers.contract.acls import AclDocument, AclEntry, ResourcePattern

# Of each kind; of patterns also MATCH.
ANY: Final = 1
MATCH: Final = 2


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Kinds are the protocol's numbers, also those that there are none of. A text of None is any text."""

    resource_type: int
    name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission: int

    def names(self, pattern: ResourcePattern) -> bool:
        """Whether the pattern is asked about."""
        if self.resource_type not in (ANY, pattern.resource_type):
            return False
        if self.pattern_type not in (ANY, MATCH, pattern.pattern_type):
            return False
        if self.name is None or self.name == pattern.name:
            return True
        return self.pattern_type == MATCH and concerns(pattern, pattern.resource_type, self.name)

    def admits(self, entry: AclEntry) -> bool:
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (ANY, entry.operation)
            and self.permission in (ANY, entry.permission)
        )

    def matching(self, documents: Iterable[AclDocument]) -> Iterator[tuple[ResourcePattern, list[AclEntry]]]:
        """In the order of the documents, without those of which nothing is left."""
        for document in documents:
            if self.names(document.pattern):
                entries = [entry for entry in document.entries if self.admits(entry)]
                if entries:
                    yield document.pattern, sorted(entries, key=_entry_key)


def in_order(documents: Iterable[AclDocument]) -> list[AclDocument]:
    return sorted(documents, key=_document_key)


# Tuples: values that compare themselves field by field take ten times as long.
def _document_key(document: AclDocument) -> tuple[int, str, int]:
    pattern = document.pattern
    return pattern.resource_type, pattern.name, pattern.pattern_type


def _entry_key(entry: AclEntry) -> tuple[str, str, int, int]:
    return entry.principal, entry.host, entry.operation, entry.permission
