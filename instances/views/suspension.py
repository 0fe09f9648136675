"""Why an instance is suspended, in the words of who suspended it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from instances.choices import Reason
from instances.lifecycle.phases import Phase
from instances.models import Instance

WITH_TENANT = (Reason.UNPAID, Reason.TENANT_SUSPENDED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspension:
    """The reason out of the known ones, what the operator wrote, and since when produce is refused. `is_idle`: the
    tenant ends it.
    """

    reason: str
    note: str
    since: datetime
    is_idle: bool


def suspension(instance: Instance) -> Suspension | None:
    """None while the instance takes messages."""
    if instance.current_phase is not Phase.SUSPENDED:
        return None
    tenant = instance.tenant
    is_with_tenant = instance.suspended_for in WITH_TENANT and tenant.is_suspended
    reason = tenant.get_suspension_reason_display() if is_with_tenant else instance.get_suspended_for_display()
    return Suspension(
        reason=str(reason),
        note=instance.suspension_note,
        since=instance.phase_since,
        is_idle=instance.suspended_for == Reason.IDLE,
    )
