"""Suspension and resumption of an instance."""

from __future__ import annotations

from django.db import transaction
from django.utils.translation import gettext_noop

from instances.choices import OperationType, Reason
from instances.lifecycle import operations
from instances.lifecycle.phases import Phase, may_transition
from instances.models import Instance, Operation
from instances.services.common import bump_generation, reconcile_on_commit, set_phase
from tenants import access, audit
from tenants.actors import Actor
from tenants.choices import Scope
from tenants.errors import Conflict, Message
from tenants.services.tenancy import validated_note


@transaction.atomic
def suspend_instance(
    *,
    acting: Actor,
    instance: Instance,
    reason: Reason | str = Reason.BY_OPERATOR,
    note: str = "",
    dry_run: bool = False,
) -> Operation:
    """Suspends an instance: produce is refused, consume allowed (CKA-14). The `note` is shown to the tenant."""
    access.require(acting, Scope.OPERATOR)
    if instance.is_suspended or not may_transition(instance.current_phase, Phase.SUSPENDED):
        raise Conflict(Message(gettext_noop("The instance is %(phase)s."), phase=instance.phase))
    instance.suspended_for, instance.suspension_note = str(reason), validated_note(note)
    fields = [
        "suspended_for",
        "suspension_note",
        *bump_generation(instance),
        *set_phase(instance, Phase.SUSPENDED, reason),
    ]
    instance.save_changes(fields)
    operation = operations.begin(acting, instance, OperationType.SUSPEND)
    after = {"suspended_for": str(reason), "note": instance.suspension_note}
    audit.record(acting, "instance.suspended", instance, None, after, tenant=instance.tenant)
    reconcile_on_commit(instance, dry_run=dry_run)
    return operation


@transaction.atomic
def resume_instance(*, acting: Actor, instance: Instance, dry_run: bool = False) -> Operation:
    """Ends a suspension. A tenant may end a suspension for idleness, an operator any suspension.

    Raises `Conflict` if the instance is not suspended, or is being deleted.
    """
    access.require(acting, Scope.INSTANCES_WRITE if instance.suspended_for == Reason.IDLE else Scope.OPERATOR)
    if not instance.is_suspended or instance.current_phase is not Phase.SUSPENDED:
        raise Conflict(Message(gettext_noop("The instance is %(phase)s."), phase=instance.phase))
    instance.suspended_for = instance.suspension_note = ""
    fields = ["suspended_for", "suspension_note", *bump_generation(instance), *set_phase(instance, Phase.UPDATING)]
    instance.save_changes(fields)
    operation = operations.begin(acting, instance, OperationType.RESUME)
    audit.record(acting, "instance.resumed", instance, tenant=instance.tenant)
    reconcile_on_commit(instance, dry_run=dry_run)
    return operation
