"""Room for partitions is taken by compare-and-set: who makes some sets one node of the instance, held to the version up
to which its image has all creations. Of two brokers that give the same room away one is late, and looks again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from brokers.contract import paths
from brokers.engine.cluster.tree import Create, Operation, Set, Tree

# Nobody has made partitions of the instance yet.
NO_CREATION: Final = -1
_KIND: Final = "creations"


class Reservation(NamedTuple):
    """`seen`: the creations of the instance that whoever reserves knows of."""

    instance_id: str
    seen: int

    @property
    def operation(self) -> Operation:
        path = paths.instance_creations(self.instance_id)
        return Create(path) if self.seen == NO_CREATION else Set(path, b"", self.seen)

    @property
    def taken(self) -> int:
        """The version that the node has then."""
        return self.seen + 1

    @property
    def change(self) -> str:
        """As the change log announces it, beside the topic."""
        return f"{_KIND}/{self.instance_id}/{self.taken}"


def versions_in(entities: Iterable[str]) -> dict[str, int]:
    """Of each instance the last creation that these entries of the change log announce."""
    versions: dict[str, int] = {}
    for entity in entities:
        match entity.split("/"):
            case [kind, instance_id, version] if kind == _KIND and version.isdecimal():
                versions[instance_id] = max(int(version), versions.get(instance_id, NO_CREATION))
    return versions


async def read_versions(tree: Tree) -> dict[str, int]:
    """Of all instances; read before their topics, which then are at least as new."""
    instance_ids = sorted(await tree.children(paths.CREATIONS) or [])
    nodes = await tree.get_many([paths.instance_creations(id) for id in instance_ids])
    return {id: node.version for id, node in zip(instance_ids, nodes, strict=True) if node is not None}
