"""What every service of instances does: move the phase by the table, ask the reconciler on commit."""

from __future__ import annotations

import logging

from django.db import transaction
from django.utils import timezone

from instances import ports
from instances.choices import Reason
from instances.lifecycle import Phase, require_move
from instances.models import Instance

logger = logging.getLogger(__name__)


def move(instance: Instance, phase: Phase, reason: Reason | str = Reason.NONE) -> list[str]:
    """Set phase and reason on the (locked) row; returns the fields to save. Raises `IllegalMove`."""
    require_move(instance.current_phase, phase)
    if instance.phase != phase.value:
        instance.phase_since = timezone.now()
    instance.phase, instance.reason = phase.value, str(reason)
    return ["phase", "phase_since", "reason"]


def want_more(instance: Instance) -> list[str]:
    """Something that brokers are told has changed: the next generation is wanted."""
    instance.generation += 1
    return ["generation"]


def reconcile_on_commit(instance: Instance, *, dry_run: bool = False) -> None:
    """Ask for the work once the transaction is written. A queue that does not answer delays it until the sweep."""
    if dry_run:
        return
    instance_id = instance.pk
    transaction.on_commit(lambda: ports.reconcile.it(instance_id))
