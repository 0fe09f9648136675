"""Controller epochs and the partition states written in them. Pure, because decisions consist of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from brokers.contract import paths
from brokers.contract.documents import PartitionStateDocument, TopicDocument
from brokers.engine.cluster.tree import Check, Create, Operation, Set

# Upper bound of the chroot, `/brokers/topics/<t>/partitions/<p>/state` without the topic's name, and the headers of an
# operation.
_PATH_BYTES_MAX = 128
_STATE_BYTES_MAX = 256


@dataclass(frozen=True, slots=True)
class ControllerEpoch:
    """A controller epoch; `guard_version` is the version of `/controller_epoch` that every write checks."""

    broker_id: int
    epoch: int
    guard_version: int

    @property
    def guard(self) -> Check:
        return Check(paths.CONTROLLER_EPOCH, self.guard_version)


@dataclass(frozen=True, slots=True)
class StateWrite:
    """Write of one partition state.

    A `version` of None creates the node, and `opens_topic` marks the first state of a topic. `identity` is the
    path of the topic's identity node (`TopicImage.identity`), whose existence the write checks, because versions start
    again with the next topic of the same name.
    """

    topic: str
    index: int
    document: PartitionStateDocument
    version: int | None
    opens_topic: bool = False
    identity: str | None = None

    @property
    def key(self) -> tuple[str, int]:
        return self.topic, self.index

    @property
    def bytes_max(self) -> int:
        """Maximum number of bytes that it adds to a transaction: paths, state, and the topic's name in the change
        node.
        """
        nodes = 2 if self.version is not None else 4
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


def identity_checks(name: str, document: TopicDocument) -> list[Operation]:
    """Returns operations that make a transaction fail unless the topic is the one of this document."""
    return [Check(paths.topic_identity(name, document.topic_id), 0)] if document.identified else []


def operations_of(writes: Iterable[StateWrite]) -> list[Operation]:
    """Returns the operations of all writes, which fail unless their topics are the expected ones."""
    writes = tuple(writes)
    identities = dict.fromkeys(write.identity for write in writes)
    checks = [Check(identity, 0) for identity in identities if identity is not None]
    return [*checks, *(operation for write in writes for operation in write.operations())]
