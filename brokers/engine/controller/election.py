"""When to stand for controller and when the office is lost (CTL-1, CTL-2, CTL-4). Pure; `ClusterStore.elect` does
the voting.
"""

from __future__ import annotations

from brokers.engine.cluster.image import NO_CONTROLLER, ClusterImage
from brokers.engine.cluster.terms import ControllerTerm


def should_stand(image: ClusterImage, broker_id: int, *, unsure: bool) -> bool:
    """A registered broker stands when nobody holds the office. `unsure`: the answer to an earlier vote was lost, so the
    holder of this id may be this very session.
    """
    if broker_id not in image.brokers:
        return False
    return image.controller_id == NO_CONTROLLER or (unsure and image.controller_id == broker_id)


def is_over(term: ControllerTerm, image: ClusterImage) -> bool:
    """The image shows another holder, or none, at this term's epoch or later. An older image says nothing."""
    return image.controller_epoch > term.epoch or (
        image.controller_epoch == term.epoch and image.controller_id != term.broker_id
    )
