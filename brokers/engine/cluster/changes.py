"""Entries of the two change logs, in which a writer announces its changes in the same transaction (ZK-15, ZK-32).

A creation of partitions also reserves them against the instance's limit: it sets one node of the instance, at the
version up to which the broker's image has all creations. If two brokers use the same capacity, one of them fails and
plans again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from brokers.contract import documents, paths
from brokers.engine.cluster.controller_epoch import StateWrite
from brokers.engine.cluster.tree import Create, Operation, Set, Tree

# Version for an instance without any creation.
NO_CREATION: Final = -1
_CREATIONS: Final = "creations"
# Attempts of a read and compare-and-set before the caller gets a Conflict.
COMPARE_AND_SET_ATTEMPTS_MAX = 8
# Maximum number of states named per topic; beyond it readers read all states of the topic.
STATES_NAMED_MAX: Final = 100


class Reservation(NamedTuple):
    """Reservation for one creation. `seen_version` is the version of the instance's node that the image includes."""

    instance_id: str
    seen_version: int

    @property
    def operation(self) -> Operation:
        """Operation that fails if partitions of the instance were created after version `seen_version`."""
        path = paths.instance_creations(self.instance_id)
        return Create(path) if self.seen_version == NO_CREATION else Set(path, b"", self.seen_version)

    @property
    def new_version(self) -> int:
        """Version of the node after the reservation."""
        return self.seen_version + 1

    @property
    def change(self) -> str:
        """Entry of the change log for the reservation, beside that of the topic."""
        return f"{_CREATIONS}/{self.instance_id}/{self.new_version}"


def versions_in(entities: Iterable[str]) -> dict[str, int]:
    """Returns the last creation by instance that these entries of the change log announce."""
    versions: dict[str, int] = {}
    for entity in entities:
        match entity.split("/"):
            case [kind, instance_id, version] if kind == _CREATIONS and version.isdecimal():
                versions[instance_id] = max(int(version), versions.get(instance_id, NO_CREATION))
    return versions


async def read_versions(tree: Tree) -> dict[str, int]:
    """Returns the versions of all instances. Call it before topics are read, which are then at least as new."""
    instance_ids = sorted(await tree.children(paths.CREATIONS) or [])
    nodes = await tree.get_many([paths.instance_creations(id) for id in instance_ids])
    return {id: node.version for id, node in zip(instance_ids, nodes, strict=True) if node is not None}


def topics_announcement(internal_names: Iterable[str], reservation: Reservation | None = None) -> Create:
    """Returns the operation that announces changes of topics, and the reservation that is written with them."""
    entities = [f"topics/{name}" for name in internal_names]
    if reservation is not None:
        entities.append(reservation.change)
    return Create(paths.CHANGE_PREFIX, documents.change_to_json(entities), sequence=True)


def states_announcement(writes: Iterable[StateWrite], topics: Iterable[str] = ()) -> Create:
    """Returns the operation that announces changes of documents of `topics` and of partition states in `writes`.

    Readers then read only these states of a large topic.
    """
    states: dict[str, list[int]] = {f"topics/{name}": [] for name in topics}
    for write in writes:
        states.setdefault(f"topics/{write.topic}", []).append(write.index)
    named_states = {path: indexes for path, indexes in states.items() if len(indexes) <= STATES_NAMED_MAX}
    return Create(paths.CHANGE_PREFIX, documents.change_to_json(list(states), named_states), sequence=True)


def broker_announcement(broker_id: int) -> Create:
    """Returns the operation that announces a registration that was rewritten in place.

    The watch on the registrations shows only new and deleted ones.
    """
    return Create(paths.CHANGE_PREFIX, documents.change_to_json([f"brokers/{broker_id}"]), sequence=True)


def document_announcement(change: str) -> Create:
    """Returns the operation that announces a change named by `instance_documents.change_entry`."""
    return Create(paths.CHANGE_PREFIX, documents.change_to_json([change]), sequence=True)


def config_announcement(entity_path: str) -> Create:
    """Returns the operation that announces a change of settings or quotas; `entity_path` is relative to `/config`."""
    return Create(paths.CONFIG_CHANGE_PREFIX, documents.config_change_to_json(entity_path), sequence=True)


def change_number(paths_written: Sequence[str]) -> int:
    """Returns the number of the change node of a transaction whose last operation announced it."""
    sequence = sequence_of(paths_written[-1])
    assert sequence is not None, "a change node is a sequential node"
    return sequence


def node_name(prefix: str, sequence: int) -> str:
    """Returns the name that ZooKeeper gives to the sequential node of this number."""
    return f"{prefix}{sequence:010d}"


def sequence_of(name: str) -> int | None:
    """Returns the number of a change node, None for another node."""
    digits = name.rpartition("_")[2]
    return int(digits) if digits.isdigit() else None
