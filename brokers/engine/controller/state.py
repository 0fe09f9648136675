"""What the controller remembers between two events; everything else it reads off the image."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from brokers.contract.partitions import PartitionKey
from brokers.engine.cluster.controller_epoch import ControllerEpoch
from brokers.engine.cluster.image import ClusterImage
from brokers.engine.controller.policy import DEFAULT, Policy


@dataclass(frozen=True)
class ControllerState:
    """`held_epoch` None: somebody else is, or nobody, and no instruction is given (CTL-7).

    `awaited` holds, per partition written, the version that the image must show before it is decided on again; -1
    while the write is under way. `busy` names the topics whose deletion or growth is under way.
    """

    broker_id: int
    image: ClusterImage
    policy: Policy = DEFAULT
    held_epoch: ControllerEpoch | None = None
    awaited: Mapping[PartitionKey, int] = field(default_factory=dict)
    busy: frozenset[str] = frozenset()

    def check(self) -> None:
        """Invariants, run after every step in tests and at role changes."""
        assert self.held_epoch is not None or not self.awaited, "a deposed controller awaits nothing"
        assert self.held_epoch is not None or not self.busy, "a deposed controller is busy with nothing"
        assert all(version >= -1 for version in self.awaited.values())
