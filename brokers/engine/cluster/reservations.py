"""Reservations of partitions against an instance's limit, by compare-and-set.

A creation sets one node of the instance, at the version up to which the broker's image has all creations. If two
brokers use the same capacity, one of them fails and plans again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from brokers.contract import paths
from brokers.engine.cluster.tree import Create, Operation, Set, Tree

# Version for an instance without any creation.
NO_CREATION: Final = -1
_KIND: Final = "creations"


class Reservation(NamedTuple):
    """Reservation for one creation; `seen_version` is the version of the node up to which the image has all
    creations.
    """

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
        return f"{_KIND}/{self.instance_id}/{self.new_version}"


def versions_in(entities: Iterable[str]) -> dict[str, int]:
    """Returns the last creation by instance that these entries of the change log announce."""
    versions: dict[str, int] = {}
    for entity in entities:
        match entity.split("/"):
            case [kind, instance_id, version] if kind == _KIND and version.isdecimal():
                versions[instance_id] = max(int(version), versions.get(instance_id, NO_CREATION))
    return versions


async def read_versions(tree: Tree) -> dict[str, int]:
    """Returns the versions of all instances. Call it before topics are read, which are then at least as new."""
    instance_ids = sorted(await tree.children(paths.CREATIONS) or [])
    nodes = await tree.get_many([paths.instance_creations(id) for id in instance_ids])
    return {id: node.version for id, node in zip(instance_ids, nodes, strict=True) if node is not None}
