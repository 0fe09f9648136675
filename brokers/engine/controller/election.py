"""Conditions for running for controller and for having lost the controllership (CTL-1, CTL-2, CTL-4). Pure.

`ClusterStore.elect` performs the election.
"""

from __future__ import annotations

from brokers.engine.cluster.controller_epoch import ControllerEpoch
from brokers.engine.cluster.image import NO_CONTROLLER, ClusterImage


def should_run_for_election(image: ClusterImage, broker_id: int, *, outcome_unknown: bool) -> bool:
    """True if this broker is registered and there is no controller.

    With `outcome_unknown` the result of an earlier election was lost. If the image then shows this broker as the
    controller, it may have been elected in this session, and it runs again to find out.
    """
    if broker_id not in image.brokers:
        return False
    return image.controller_id == NO_CONTROLLER or (outcome_unknown and image.controller_id == broker_id)


def is_over(held_epoch: ControllerEpoch, image: ClusterImage) -> bool:
    """True if the image shows another controller, or none, in this controller epoch or a later one.

    An older image proves nothing.
    """
    return image.controller_epoch > held_epoch.epoch or (
        image.controller_epoch == held_epoch.epoch and image.controller_id != held_epoch.broker_id
    )
