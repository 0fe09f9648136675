"""What every service of instances does: move the phase by the table, ask the reconciler on commit."""

from __future__ import annotations

import hashlib
import logging

from django.db import OperationalError, connection, transaction
from django.db.models import F
from django.utils import timezone

from instances import interfaces
from instances.choices import Reason
from instances.lifecycle.phases import Phase, require_transition
from instances.limits import DATA_PLANE_LOCK_WAIT_MS
from instances.models import Instance
from tenants.errors import Conflict

logger = logging.getLogger(__name__)

# The wait is bounded for this lock alone.
_LOCK_IN_TIME = """
SELECT set_config('lock_timeout', %s, true), pg_advisory_xact_lock(%s), set_config('lock_timeout', '0', true)
"""


def set_phase(instance: Instance, phase: Phase, reason: Reason | str = Reason.NONE) -> list[str]:
    """Set phase and reason on the (locked) row; returns the fields to save. Raises `IllegalTransition`."""
    require_transition(instance.current_phase, phase)
    if instance.phase != phase.value:
        instance.phase_since = timezone.now()
    instance.phase, instance.reason = phase.value, str(reason)
    return ["phase", "phase_since", "reason"]


def bump_generation(instance: Instance) -> list[str]:
    """Something that brokers are told has changed: the next generation is wanted."""
    instance.generation += 1
    return ["generation"]


def want_published(instance: Instance, *, dry_run: bool = False) -> None:
    """The same where the row is not locked: something beside it has changed, such as the address lists of a topic.

    What lies in the queue may be lost, and the sweep looks for generations alone. Call it last, or the row is kept from
    others while a broker takes its time; who changes a topic holds that one (`hold_topic`) before.
    """
    Instance.objects.filter(pk=instance.pk).update(generation=F("generation") + 1)
    reconcile_on_commit(instance, dry_run=dry_run)


def reconcile_on_commit(instance: Instance, *, dry_run: bool = False) -> None:
    """Ask for the work once the transaction is written. A queue that does not answer delays it until the sweep."""
    if dry_run:
        return
    instance_id = instance.pk
    transaction.on_commit(lambda: interfaces.reconcile.it(instance_id))


def hold_topic(instance: Instance, name: str) -> None:
    """Until the transaction ends, nobody else changes this topic by way of the control plane.

    What is read after it and compared with an If-Match is what is then changed. Topics have no row to lock, and the
    instance's is wanted by others while a broker takes its time. Raises `Conflict(already_in_progress)` when the one
    before takes too long.
    """
    _hold(f"topic\n{instance.pk}\n{name}", "Another change of this topic is being carried out.")


def hold_user(instance: Instance, name: str) -> None:
    """The same for a user of the instance."""
    _hold(f"user\n{instance.pk}\n{name}", "Another change of this user is being carried out.")


def hold_acls(instance: Instance) -> None:
    """The same for the access rules of the instance, all together: what a row of the audit log says was there, was."""
    _hold(f"acls\n{instance.pk}", "Another change of the access rules is being carried out.")


def _hold(text: str, refusal: str) -> None:
    number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big", signed=True)
    try:
        with connection.cursor() as cursor:
            cursor.execute(_LOCK_IN_TIME, [str(DATA_PLANE_LOCK_WAIT_MS), number])
    except OperationalError as error:
        raise Conflict(refusal, code="already_in_progress", retry_after_s=1) from error
