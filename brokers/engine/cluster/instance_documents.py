"""Documents below the node of an instance: users, ACLs, certificates, OAuth configuration.

One immutable value has the documents of all instances and shares unchanged ones with the next value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

T = TypeVar("T")

USERS: Final = "users"
ACLS: Final = "acls"
CERTIFICATES: Final = "certificates"
OAUTH: Final = "oauth"

# Documents by (instance id, node name).
Changes = Mapping[tuple[str, str], T | None]


@dataclass(frozen=True, slots=True)
class InstanceDocuments(Generic[T]):
    """Documents by instance id and node name."""

    by_instance: Mapping[str, Mapping[str, T]] = field(default_factory=dict)

    def of_instance(self, instance_id: str) -> Mapping[str, T]:
        """Returns the documents of an instance, the same mapping as long as none of them changes."""
        return self.by_instance.get(instance_id, {})

    def with_changes(self, changes: Changes[T]) -> InstanceDocuments[T]:
        """Returns the value with changes, where None means deleted; an instance without documents is removed."""
        changed: dict[str, dict[str, T]] = {}
        for (instance_id, name), document in changes.items():
            of_instance = changed.setdefault(instance_id, dict(self.of_instance(instance_id)))
            if document is None:
                of_instance.pop(name, None)
            else:
                of_instance[name] = document
        after = {**self.by_instance, **changed}
        return InstanceDocuments({id: documents for id, documents in after.items() if documents})

    def only(self, wanted: Iterable[tuple[str, str]]) -> InstanceDocuments[T]:
        """Returns only the documents of these (instance id, node name) pairs."""
        selected: dict[str, dict[str, T]] = {}
        for instance_id, name in wanted:
            document = self.of_instance(instance_id).get(name)
            if document is not None:
                selected.setdefault(instance_id, {})[name] = document
        return InstanceDocuments(selected)

    def without(self, instance_ids: Iterable[str]) -> InstanceDocuments[T]:
        """Returns the value without deleted instances, whose ids are never reused."""
        deleted = frozenset(instance_ids)
        return InstanceDocuments({id: documents for id, documents in self.by_instance.items() if id not in deleted})


def documents_named_by(entities: Iterable[str], kind: str) -> list[tuple[str, str]]:
    """Returns (instance id, node name) of the documents of one kind that entries of the change log name."""
    parts = (entity.split("/") for entity in sorted(entities))
    return [(path[1], path[3]) for path in parts if len(path) == 4 and path[0] == "instances" and path[2] == kind]


def change_entry(instance_id: str, kind: str, node_name: str) -> str:
    """Returns the entry of the change log for a document."""
    return f"instances/{instance_id}/{kind}/{node_name}"
