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
        if self.resource_type not in (pattern.resource_type, ANY):
            return False
        name, pattern_type = self.name, self.pattern_type
        if pattern_type not in (pattern.pattern_type, ANY, MATCH):
            return False
        if name is None or name == pattern.name:
            return True
        return pattern_type == MATCH and concerns(pattern, pattern.resource_type, name)

    def admits(self, entry: AclEntry) -> bool:
        return (
            (self.principal is None or self.principal == entry.principal)
            and (self.host is None or self.host == entry.host)
            and self.operation in (entry.operation, ANY)
            and self.permission in (entry.permission, ANY)
        )

    def matching(self, documents: Iterable[AclDocument]) -> Iterator[tuple[ResourcePattern, list[AclEntry]]]:
        """In the order of the documents, without those of which nothing is left."""
        names, admits = self.names, self.admits
        for document in documents:
            if names(document.pattern):
                entries = [entry for entry in document.entries if admits(entry)]
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
