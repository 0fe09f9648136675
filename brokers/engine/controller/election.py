"""When to stand for controller and when the controllership is lost (CTL-1, CTL-2, CTL-4). Pure; `ClusterStore.elect`
does the voting.
"""

from __future__ import annotations

from brokers.engine.cluster.controller_epoch import ControllerEpoch
from brokers.engine.cluster.image import NO_CONTROLLER, ClusterImage


def should_run_for_election(image: ClusterImage, broker_id: int, *, unsure: bool) -> bool:
    """A registered broker stands when nobody holds the controllership. `unsure`: the answer to an earlier vote was
    lost, so the holder of this id may be this very session.
    """
    if broker_id not in image.brokers:
        return False
    return image.controller_id == NO_CONTROLLER or (unsure and image.controller_id == broker_id)


def is_over(held_epoch: ControllerEpoch, image: ClusterImage) -> bool:
    """The image shows another holder, or none, at this controller epoch or later. An older image says
    nothing.
    """
    return image.controller_epoch > held_epoch.epoch or (
        image.controller_epoch == held_epoch.epoch and image.controller_id != held_epoch.broker_id
    )
