"""A controller's term of office and the partition states it writes in it. Pure, so that decisions are made of them."""

from __future__ import annotations

from dataclasses import dataclass

from brokers.contract import paths
from brokers.contract.documents import PartitionStateDocument
from brokers.engine.cluster.tree import Check, Create, Operation, Set

# Chroot, `/brokers/topics/<t>/partitions/<p>/state` without the topic's name, and the headers of an operation.
_PATH_BYTES_MAX = 128
_STATE_BYTES_MAX = 256


@dataclass(frozen=True, slots=True)
class ControllerTerm:
    """One tenure. `guard_version` is the version of `/controller_epoch` that every write checks."""

    broker_id: int
    epoch: int
    guard_version: int

    @property
    def guard(self) -> Check:
        return Check(paths.CONTROLLER_EPOCH, self.guard_version)


@dataclass(frozen=True, slots=True)
class StateWrite:
    """One partition state. `version` None creates the node; `opens_topic` marks the first state of a topic."""

    topic: str
    index: int
    document: PartitionStateDocument
    version: int | None
    opens_topic: bool = False

    @property
    def key(self) -> tuple[str, int]:
        return self.topic, self.index

    @property
    def bytes_max(self) -> int:
        """What it adds to a transaction at most: its paths, its state, its topic's name in the change node."""
        nodes = 1 if self.version is not None else 3
        return nodes * (_PATH_BYTES_MAX + len(self.topic)) + _STATE_BYTES_MAX + len(self.topic)

    def operations(self) -> list[Operation]:
        body = self.document.to_json()
        path = paths.partition_state(self.topic, self.index)
        if self.version is not None:
            return [Set(path, body, self.version)]
        parents: list[Operation] = [Create(paths.partition(self.topic, self.index))]
        if self.opens_topic:
            parents.insert(0, Create(paths.partitions(self.topic)))
        return [*parents, Create(path, body)]
