"""Suspension of a tenant as shown to its members: time, reason and note."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.http import HttpRequest

from tenants import selectors
from tenants.actors import Actor
from tenants.choices import SuspensionReason
from tenants.errors import DomainError, PaymentRequired

SUSPENDED = "tenant_suspended"


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantSuspension:
    """Suspension of a tenant in words. `note` is the operator's text, `since` None without an audit row."""

    tenant: str
    reason: str
    note: str
    since: datetime | None
    is_unpaid: bool


def suspension_of(request: HttpRequest, error: DomainError) -> TenantSuspension | None:
    """Returns the suspension that caused a refusal; None for other refusals."""
    acting: Actor | None = getattr(request, "actor", None)
    tenant = acting.tenant if acting is not None else None
    is_of_tenant = error.code == SUSPENDED or isinstance(error, PaymentRequired)
    if not is_of_tenant or tenant is None or not tenant.is_suspended:
        return None
    return TenantSuspension(
        tenant=tenant.name,
        reason=str(tenant.get_suspension_reason_display()),
        note=tenant.suspension_note,
        since=selectors.suspended_at(tenant),
        is_unpaid=tenant.suspension_reason == SuspensionReason.UNPAID,
    )
