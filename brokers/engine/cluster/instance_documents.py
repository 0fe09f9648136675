"""What an instance keeps in documents of its own below its node: users, access control lists, certificates, the OAuth
configuration. One immutable value for all instances, which shares with the next one whatever did not change.
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

# By the name of the instance and of the node.
Changes = Mapping[tuple[str, str], T | None]


@dataclass(frozen=True, slots=True)
class InstanceDocuments(Generic[T]):
    """Instance id → node name → document."""

    by_instance: Mapping[str, Mapping[str, T]] = field(default_factory=dict)

    def of_instance(self, instance_id: str) -> Mapping[str, T]:
        """The same mapping as long as nothing of the instance changes."""
        return self.by_instance.get(instance_id, {})

    def with_changes(self, changes: Changes[T]) -> InstanceDocuments[T]:
        """None: the document is gone. An instance without documents is not kept."""
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
        """Of these instances and nodes, as far as they are here."""
        kept: dict[str, dict[str, T]] = {}
        for instance_id, name in wanted:
            document = self.of_instance(instance_id).get(name)
            if document is not None:
                kept.setdefault(instance_id, {})[name] = document
        return InstanceDocuments(kept)

    def without(self, instance_ids: Iterable[str]) -> InstanceDocuments[T]:
        """Instance ids are never used again."""
        gone = frozenset(instance_ids)
        return InstanceDocuments({id: documents for id, documents in self.by_instance.items() if id not in gone})


def named_in(entities: Iterable[str], kind: str) -> list[tuple[str, str]]:
    """The instances and nodes of documents of this kind that entries of the change log name."""
    parts = (entity.split("/") for entity in sorted(entities))
    return [(each[1], each[3]) for each in parts if len(each) == 4 and each[0] == "instances" and each[2] == kind]


def change_of(instance_id: str, kind: str, node_name: str) -> str:
    """As the change log announces it."""
    return f"instances/{instance_id}/{kind}/{node_name}"
