"""Steps that the services of instances share: phase transitions, generations, reconciliation on commit, and locks."""

from __future__ import annotations

import hashlib
import logging

from django.db import OperationalError, connection, transaction
from django.db.models import F
from django.utils import timezone
from psycopg.errors import LockNotAvailable

from instances import interfaces
from instances.choices import Reason
from instances.lifecycle.phases import Phase, require_transition
from instances.limits import DATA_PLANE_LOCK_WAIT_MS
from instances.models import Instance
from tenants.errors import Conflict
from tenants.models import Tenant

USER_REF_CHARS_MAX = 300
logger = logging.getLogger(__name__)

# The timeout applies to this lock only.
_LOCK_WITH_TIMEOUT = """
SELECT set_config('lock_timeout', %s, true), pg_advisory_xact_lock(%s), set_config('lock_timeout', '0', true)
"""


def set_phase(instance: Instance, phase: Phase, reason: Reason | str = Reason.NONE) -> list[str]:
    """Sets phase and reason of the (locked) row; returns the fields to save. Raises `IllegalTransition`."""
    require_transition(instance.current_phase, phase)
    if instance.phase != phase.value:
        instance.phase_since = timezone.now()
    instance.phase, instance.reason = phase.value, str(reason)
    return ["phase", "phase_since", "reason"]


def bump_generation(instance: Instance) -> list[str]:
    """Increments the generation for a change that brokers have to confirm; returns the fields to save."""
    instance.generation += 1
    return ["generation"]


def bump_and_publish(instance: Instance, *, dry_run: bool = False) -> None:
    """Increments the generation of an instance and enqueues its publication, after a change of data that belongs to the
    instance, such as the address lists of a topic. The instance's row is not locked yet.

    If the task is lost, the sweep finds the instance by its generation. Call this last: it locks the row, for which
    other transactions would wait during a call to a broker. A caller that changes a topic calls `lock_topic` first.
    """
    Instance.objects.filter(pk=instance.pk).update(generation=F("generation") + 1)
    reconcile_on_commit(instance, dry_run=dry_run)


def reconcile_on_commit(instance: Instance, *, dry_run: bool = False) -> None:
    """Enqueues the reconciliation when the transaction is committed. If the queue is down, the sweep does it later."""
    if dry_run:
        return
    instance_id = instance.pk
    transaction.on_commit(lambda: interfaces.reconcile.implementation(instance_id))


def lock_topic(instance: Instance, name: str) -> None:
    """Locks a topic against other changes through the control plane until the transaction ends.

    A state that is read under the lock and compared with an If-Match is the state that is changed. It is an advisory
    lock: topics have no row, and the row of the instance would block others during a call to a broker. Raises
    `Conflict(already_in_progress)` if the lock is not free in time.
    """
    _lock(f"topic\n{instance.pk}\n{name}", "Another change of this topic is being carried out.")


def lock_user(instance: Instance, name: str) -> None:
    """Locks a user of the instance, like `lock_topic`."""
    _lock(f"user\n{instance.pk}\n{name}", "Another change of this user is being carried out.")


def lock_copies(instance: Instance) -> None:
    """Locks the topic copies of all instances of a tenant, like `lock_topic`, because some limits are by tenant."""
    _lock(f"copies\n{instance.tenant_id}", "Another copy of a topic is being begun or stopped.")


def lock_unverified_sizes(tenant: Tenant) -> None:
    """Locks the sizes of all instances of a tenant without a verified owner, like `lock_topic`.

    Callers have locked the row of an instance, and others lock that of the tenant before those of its instances.
    """
    _lock(f"ceiling\n{tenant.pk}", "Another instance is being created or resized.")


def lock_acls(instance: Instance) -> None:
    """Locks all access rules of the instance, like `lock_topic`, so that audit rows have the state before."""
    _lock(f"acls\n{instance.pk}", "Another change of the access rules is being carried out.")


def lock_allow_lists(instance: Instance) -> None:
    """Locks the address lists of all topics of the instance, like `lock_topic`, because their limits are by instance.

    A caller that also locks a topic calls `lock_topic` first.
    """
    _lock(f"allow lists\n{instance.pk}", "Another change of the address lists is being carried out.")


def user_ref(instance: Instance, name: str) -> tuple[str, str]:
    """Returns the name of an instance's user in the audit log: `ins-…/users/alice`, without U+0000."""
    shown = name.replace("\x00", "\N{REPLACEMENT CHARACTER}")
    return "user", f"{instance.pk}/users/{shown}"[:USER_REF_CHARS_MAX]


def _lock(lock_name: str, conflict_detail: str) -> None:
    lock_key = int.from_bytes(hashlib.sha256(lock_name.encode()).digest()[:8], "big", signed=True)
    try:
        with connection.cursor() as cursor:
            cursor.execute(_LOCK_WITH_TIMEOUT, [str(DATA_PLANE_LOCK_WAIT_MS), lock_key])
    except OperationalError as error:
        if not isinstance(error.__cause__, LockNotAvailable):
            raise
        raise Conflict(conflict_detail, code="already_in_progress", retry_after_s=1) from error
