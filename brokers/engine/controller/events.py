"""What the controller is told, and what it then wants done: plain values, so that a history can be written down and
replayed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from brokers.contract.partitions import PartitionKey
from brokers.engine.cluster.controller_epoch import ControllerEpoch, StateWrite
from brokers.engine.cluster.image import ClusterImage, TopicImage
from brokers.engine.controller.policy import Policy

# --- events ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Elected:
    """This broker won (CTL-1); all is decided anew from the present image (CTL-3)."""

    held_epoch: ControllerEpoch


@dataclass(frozen=True, slots=True)
class Deposed:
    """The controller epoch is over: another controller, or no session."""

    reason: str


@dataclass(frozen=True, slots=True)
class ImageChanged:
    image: ClusterImage


@dataclass(frozen=True, slots=True)
class PolicyChanged:
    """Operators chose otherwise: what waited for lack of a choice may be decided."""

    policy: Policy


@dataclass(frozen=True, slots=True)
class StatesWritten:
    """`written` maps to the version each state node has now; `lost` were overtaken by somebody else's write."""

    written: Mapping[PartitionKey, int]
    lost: tuple[PartitionKey, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicApplied:
    """A deletion, creation or growth that was under way ended, well or not."""

    topic: str
    succeeded: bool = True


@dataclass(frozen=True, slots=True)
class BalanceDue:
    """Time to look whether leaders are where they should be (REP-31)."""


Event = Elected | Deposed | ImageChanged | PolicyChanged | StatesWritten | TopicApplied | BalanceDue

# --- instructions ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WriteStates:
    """All partition states of one event in one go (CTL-8); `cause` goes to the log."""

    writes: tuple[StateWrite, ...]
    cause: str


@dataclass(frozen=True, slots=True)
class FinishReassignments:
    """`writes` are the last states of partitions of `topic` that have arrived (REP-32): in one transaction with them
    the replicas of these partitions become their targets.
    """

    topic: TopicImage
    writes: tuple[StateWrite, ...]


@dataclass(frozen=True, slots=True)
class FinishDeletion:
    topic: TopicImage


@dataclass(frozen=True, slots=True)
class CreateSystemTopic:
    name: str
    assignment: Mapping[int, tuple[int, ...]]
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class GrowSystemTopic:
    """`added` continues after the `present` partitions the decision was made on."""

    name: str
    present: int
    added: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class ReconcileAgain:
    """Somebody else wrote these topics: have them read again."""

    topics: tuple[str, ...]


Instruction = WriteStates | FinishReassignments | FinishDeletion | CreateSystemTopic | GrowSystemTopic | ReconcileAgain
