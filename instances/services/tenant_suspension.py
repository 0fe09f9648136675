"""Suspension and resumption of instances with their tenant: suspended ones refuse produce and allow consume.

An instance that is being provisioned at that time is suspended by the reconciler as soon as it runs.
"""

from __future__ import annotations

from instances.choices import Reason
from instances.lifecycle.phases import Phase
from instances.models import Instance
from instances.services.suspending import resume_instance, suspend_instance
from tenants.actors import Actor
from tenants.choices import SuspensionReason
from tenants.models import Tenant

REASONS = (Reason.UNPAID, Reason.TENANT_SUSPENDED)


def reason_of(tenant: Tenant) -> Reason:
    """Returns the reason of suspension for the instances of a suspended tenant."""
    return Reason.UNPAID if tenant.suspension_reason == SuspensionReason.UNPAID else Reason.TENANT_SUSPENDED


class InstancesOfTenant:
    """Implementation of `tenants.interfaces.tenant_instances`."""

    def suspend(self, *, tenant: Tenant, acting: Actor) -> None:
        """Suspends the running instances of a tenant; those that an operator has suspended keep their reason."""
        acting = acting.within(tenant)
        running = Instance.objects.filter(phase__in=(Phase.RUNNING.value, Phase.UPDATING.value), suspended_for="")
        for instance in running.filter(tenant=tenant).select_for_update(of=("self",)).order_by("pk"):
            suspend_instance(acting=acting, instance=instance, reason=reason_of(tenant), note=tenant.suspension_note)

    def resume(self, *, tenant: Tenant, acting: Actor) -> None:
        """Resumes the instances that were suspended with the tenant. A deleted one only loses its suspension, so that
        it is not suspended after a restore.
        """
        acting = acting.within(tenant)
        suspended_instances = Instance.objects.filter(tenant=tenant, suspended_for__in=REASONS).select_for_update(
            of=("self",)
        )
        for instance in suspended_instances.order_by("pk"):
            if instance.current_phase is Phase.SUSPENDED:
                resume_instance(acting=acting, instance=instance)
            else:
                instance.suspended_for = instance.suspension_note = ""
                instance.save_changes(["suspended_for", "suspension_note"])
