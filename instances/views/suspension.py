"""Reason of an instance's suspension, with the operator's note."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from instances.choices import Reason
from instances.lifecycle.phases import Phase
from instances.models import Instance

WITH_TENANT = (Reason.UNPAID, Reason.TENANT_SUSPENDED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspension:
    """Reason of a suspension in words, the operator's note, and the start. `is_idle`: the tenant can end it."""

    reason: str
    note: str
    since: datetime
    is_idle: bool


def suspension(instance: Instance) -> Suspension | None:
    """Returns the suspension; None if the instance is not suspended."""
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
