"""The two change logs: how a writer announces what it wrote, in the same transaction (ZK-15, ZK-32)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from brokers.contract import documents, paths
from brokers.engine.cluster.tree import Create

# Attempts of one read-then-compare-and-set before the caller is told that it lost.
COMPARE_AND_SET_ATTEMPTS_MAX = 8


def topics_changed(internal_names: Iterable[str]) -> Create:
    return Create(
        paths.CHANGE_PREFIX,
        documents.change_to_json([f"topics/{name}" for name in internal_names]),
        sequence=True,
    )


def broker_changed(broker_id: int) -> Create:
    """A registration was rewritten in place; who registers or goes is seen by the watch on all of them."""
    return Create(paths.CHANGE_PREFIX, documents.change_to_json([f"brokers/{broker_id}"]), sequence=True)


def config_changed(entity_path: str) -> Create:
    return Create(paths.CONFIG_CHANGE_PREFIX, documents.config_change_to_json(entity_path), sequence=True)


def written_as(paths_written: Sequence[str]) -> int:
    """The number of the change node of a transaction whose last operation announced it."""
    sequence = sequence_of(paths_written[-1])
    assert sequence is not None, "a change node is a sequential node"
    return sequence


def sequence_of(node_name: str) -> int | None:
    """The number of a change node, None for a node that is none."""
    digits = node_name.rpartition("_")[2]
    return int(digits) if digits.isdigit() else None
