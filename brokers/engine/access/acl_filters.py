"""Filters of DescribeAcls and DeleteAcls (KIP-290).

ANY as resource type, pattern type, operation or permission matches all. With the pattern type MATCH a filter selects
all patterns that apply to the named resource.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from brokers.contract.acl_decisions import applies_to_resource
from brokers.contract.acls import AclDocument, AclEntry, ResourcePattern

# Numbers of the protocol: ANY exists for all four types, MATCH only for pattern types.
ANY: Final = 1
MATCH: Final = 2


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Filter of ACLs. Integers are those of the protocol, perhaps unknown ones; a string of None matches any string."""

    resource_type: int
    name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission: int

    def selects_pattern(self, pattern: ResourcePattern) -> bool:
        """True if the filter selects the resource pattern."""
        if self.resource_type not in (pattern.resource_type, ANY):
            return False
        name, pattern_type = self.name, self.pattern_type
        if pattern_type not in (pattern.pattern_type, ANY, MATCH):
            return False
        if name is None or name == pattern.name:
            return True
        return pattern_type == MATCH and applies_to_resource(pattern, pattern.resource_type, name)

    def selects_entry(self, entry: AclEntry) -> bool:
        """True if the filter selects the entry."""
        return (
            (self.principal is None or self.principal == entry.principal)
            and (self.host is None or self.host == entry.host)
            and self.operation in (entry.operation, ANY)
            and self.permission in (entry.permission, ANY)
        )

    def select(self, documents: Iterable[AclDocument]) -> Iterator[tuple[ResourcePattern, list[AclEntry]]]:
        """Yields the selected patterns with their selected entries, in the order of the documents."""
        selects_pattern, selects_entry = self.selects_pattern, self.selects_entry
        for document in documents:
            if selects_pattern(document.pattern):
                entries = [entry for entry in document.entries if selects_entry(entry)]
                if entries:
                    yield document.pattern, sorted(entries, key=_entry_key)


def sort_documents(documents: Iterable[AclDocument]) -> list[AclDocument]:
    """Returns the documents in the order of their resource type, name and pattern type."""
    return sorted(documents, key=_document_key)


# Sort keys are tuples, because comparing the dataclasses takes ten times as long.
def _document_key(document: AclDocument) -> tuple[int, str, int]:
    pattern = document.pattern
    return pattern.resource_type, pattern.name, pattern.pattern_type


def _entry_key(entry: AclEntry) -> tuple[str, str, int, int]:
    return entry.principal, entry.host, entry.operation, entry.permission
