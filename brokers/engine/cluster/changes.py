"""Entries of the two change logs: a writer announces its changes in the same transaction (ZK-15, ZK-32)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from brokers.contract import documents, paths
from brokers.engine.cluster.controller_epoch import StateWrite
from brokers.engine.cluster.reservations import Reservation
from brokers.engine.cluster.tree import Create

# Attempts of a read and compare-and-set before the caller gets a Conflict.
COMPARE_AND_SET_ATTEMPTS_MAX = 8
# Maximum number of states named per topic; beyond it readers read all states of the topic.
STATES_NAMED_MAX: Final = 100


def topics_changed(internal_names: Iterable[str], reservation: Reservation | None = None) -> Create:
    """Announces changes of topics, and the reservation of partitions that is written with them."""
    entities = [f"topics/{name}" for name in internal_names]
    if reservation is not None:
        entities.append(reservation.change)
    return Create(paths.CHANGE_PREFIX, documents.change_to_json(entities), sequence=True)


def states_changed(writes: Iterable[StateWrite], topics: Iterable[str] = ()) -> Create:
    """Announces changes of the documents of `topics`, and of the partition states in `writes` only, so that readers of
    a large topic need not read all its states.
    """
    states: dict[str, list[int]] = {f"topics/{name}": [] for name in topics}
    for write in writes:
        states.setdefault(f"topics/{write.topic}", []).append(write.index)
    named_states = {path: indexes for path, indexes in states.items() if len(indexes) <= STATES_NAMED_MAX}
    return Create(paths.CHANGE_PREFIX, documents.change_to_json(list(states), named_states), sequence=True)


def broker_changed(broker_id: int) -> Create:
    """Announces a registration that was rewritten in place; the watch on all registrations shows new and deleted
    ones.
    """
    return Create(paths.CHANGE_PREFIX, documents.change_to_json([f"brokers/{broker_id}"]), sequence=True)


def document_changed(change: str) -> Create:
    """Announces a change named by `instance_documents.change_entry`."""
    return Create(paths.CHANGE_PREFIX, documents.change_to_json([change]), sequence=True)


def config_changed(entity_path: str) -> Create:
    """Announces a change of settings or quotas in the config change log; `entity_path` is relative to `/config`."""
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
