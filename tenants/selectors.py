"""Reads of this app: plain querysets and lists, already fenced to the tenant they are asked for."""

from __future__ import annotations

from django.db.models import QuerySet

from tenants.models import ApiToken, AuditEntry, Invitation, Member, Tenant, User


def chosen_member(user: User, tenant_id: str | None) -> Member | None:
    """The user's membership in the chosen tenant, else the oldest one, else None."""
    rows = memberships(user)
    if tenant_id:
        chosen = rows.filter(tenant_id=tenant_id).first()
        if chosen is not None:
            return chosen
    return rows.first()


def memberships(user: User) -> QuerySet[Member]:
    """Where a user belongs, oldest first."""
    return Member.objects.filter(user=user, removed_at=None).select_related("tenant", "user").order_by("created_at", "id")


def tenants_of(user: User) -> QuerySet[Tenant]:
    """The tenants a user belongs to."""
    return Tenant.objects.filter(pk__in=Member.objects.filter(user=user, removed_at=None).values("tenant"))


def members(tenant: Tenant) -> QuerySet[Member]:
    """Present members of a tenant."""
    return Member.objects.filter(tenant=tenant, removed_at=None).select_related("user")


def invitations(tenant: Tenant) -> QuerySet[Invitation]:
    """Invitations that are neither accepted nor revoked (an expired one is listed with its expiry)."""
    rows = Invitation.objects.filter(tenant=tenant, accepted_at=None, revoked_at=None)
    return rows.select_related("invited_by__user")


def tokens(tenant: Tenant) -> QuerySet[ApiToken]:
    """Tokens that are not revoked."""
    return ApiToken.objects.filter(tenant=tenant, revoked_at=None).select_related("member__user")


def audit_entries(tenant: Tenant) -> QuerySet[AuditEntry]:
    """The tenant's audit log, latest first."""
    return AuditEntry.objects.filter(tenant=tenant)
