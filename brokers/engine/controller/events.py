"""Events, instructions and state of the controller: plain values, so that a history can be recorded and replayed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from brokers.contract.partitions import PartitionKey
from brokers.engine.cluster.controller_epoch import ControllerEpoch, StateWrite
from brokers.engine.cluster.image import ClusterImage, TopicImage
from brokers.engine.controller.policy import DEFAULT, Policy

# --- events ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Elected:
    """This broker was elected (CTL-1); everything is decided again from the current image (CTL-3)."""

    held_epoch: ControllerEpoch


@dataclass(frozen=True, slots=True)
class Deposed:
    """The controllership is lost: another controller was elected, or the session ended."""

    reason: str


@dataclass(frozen=True, slots=True)
class ImageChanged:
    image: ClusterImage


@dataclass(frozen=True, slots=True)
class PolicyChanged:
    """Operators changed the policy, which may allow elections that were not possible before."""

    policy: Policy


@dataclass(frozen=True, slots=True)
class StatesWritten:
    """Result of a write: the new version of each written state node, and the states that another write overtook."""

    written: Mapping[PartitionKey, int]
    lost: tuple[PartitionKey, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicApplied:
    """The deletion, creation or growth of a topic has ended, successfully or not."""

    topic: str
    succeeded: bool = True


@dataclass(frozen=True, slots=True)
class BalanceDue:
    """The check of the balance of leaders is due (REP-31)."""


Event = Elected | Deposed | ImageChanged | PolicyChanged | StatesWritten | TopicApplied | BalanceDue

# --- instructions ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WriteStates:
    """Write all partition states of one event together (CTL-8); `cause` is logged."""

    writes: tuple[StateWrite, ...]
    cause: str


@dataclass(frozen=True, slots=True)
class FinishReassignments:
    """Finish the reassignments of partitions of `topic` whose target replicas are in sync (REP-32).

    One transaction writes their final states and makes the target replicas their replicas.
    """

    topic: TopicImage
    writes: tuple[StateWrite, ...]


@dataclass(frozen=True, slots=True)
class FinishDeletion:
    """Delete the nodes of a topic that is marked for deletion."""

    topic: TopicImage


@dataclass(frozen=True, slots=True)
class CreateSystemTopic:
    """Create a topic of the cluster with these replicas by partition."""

    name: str
    assignment: Mapping[int, tuple[int, ...]]
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class GrowSystemTopic:
    """Add partitions to a topic of the cluster that had `present` partitions when this was decided."""

    name: str
    present: int
    added: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class ReconcileAgain:
    """Read topics again whose states or documents another process has changed."""

    topics: tuple[str, ...]


Instruction = WriteStates | FinishReassignments | FinishDeletion | CreateSystemTopic | GrowSystemTopic | ReconcileAgain


@dataclass(frozen=True)
class ControllerState:
    """State of the controller.

    `held_epoch` is None while this broker is not the controller; then no instructions are decided (CTL-7).
    `pending_versions` has for each written partition the version that the image must show before the next decision
    about it, -1 during the write. `busy` has the topics whose deletion, creation or growth is in progress.
    """

    broker_id: int
    image: ClusterImage
    policy: Policy = DEFAULT
    held_epoch: ControllerEpoch | None = None
    pending_versions: Mapping[PartitionKey, int] = field(default_factory=dict)
    busy: frozenset[str] = frozenset()

    def check(self) -> None:
        """Checks the invariants; called by tests after every step."""
        assert self.held_epoch is not None or not self.pending_versions, "a deposed controller awaits nothing"
        assert self.held_epoch is not None or not self.busy, "a deposed controller is busy with nothing"
        assert all(version >= -1 for version in self.pending_versions.values())
