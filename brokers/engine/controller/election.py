"""Conditions under which a broker runs for controller, and under which a controller is deposed (CTL-1, CTL-2, CTL-4).
Pure.

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


def is_deposed(held_epoch: ControllerEpoch, image: ClusterImage) -> bool:
    """True if the controller elected in `held_epoch` is controller no longer: the image shows another one, or none, in
    that controller epoch or a later one.

    An older image proves nothing.
    """
    return image.controller_epoch > held_epoch.epoch or (
        image.controller_epoch == held_epoch.epoch and image.controller_id != held_epoch.broker_id
    )
