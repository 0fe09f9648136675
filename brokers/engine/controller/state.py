"""State of the controller between two events, beside the image."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from brokers.contract.partitions import PartitionKey
from brokers.engine.cluster.controller_epoch import ControllerEpoch
from brokers.engine.cluster.image import ClusterImage
from brokers.engine.controller.policy import DEFAULT, Policy


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
