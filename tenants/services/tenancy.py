"""Changes of a tenant: name, second-factor requirement, suspension and resumption."""

from __future__ import annotations

from django.db import transaction
from django.utils.translation import gettext_noop

from tenants import access, audit, selectors
from tenants.actors import Actor
from tenants.choices import Role, Scope, SuspensionReason, TenantStatus
from tenants.errors import Conflict, Invalid, Message, PermissionDenied
from tenants.interfaces import tenant_instances
from tenants.limits import SUSPENSION_NOTE_CHARS_MAX
from tenants.models import Tenant
from tenants.services.people import validated_name


@transaction.atomic
def rename_tenant(*, acting: Actor, tenant: Tenant, name: str) -> Tenant:
    """Changes the displayed name; ids and URLs do not change."""
    tenant = Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)
    name = validated_name(name)
    if name == tenant.name:
        return tenant
    before = {"name": tenant.name}
    tenant.name = name
    tenant.save_changes(["name"])
    audit.record(acting, "tenant.renamed", tenant, before, {"name": name}, tenant=tenant)
    return tenant


@transaction.atomic
def set_second_factor_required(*, acting: Actor, tenant: Tenant, required: bool) -> Tenant:
    """Sets whether members need a second factor.

    Only for owners. To require it, the owner must have a second factor, so that they are not locked out.

    Raises `Conflict`, `PermissionDenied` and `ConfirmationNeeded`.
    """
    if acting.role is not Role.OWNER:
        raise PermissionDenied("Only owners decide whether members need a second factor.")
    access.require(acting, Scope.TENANT_WRITE)
    access.require_confirmed(acting)
    if required and acting.user is not None and not selectors.has_second_factor(acting.user):
        raise Conflict("Set up a second factor of your own first.", code="no_second_factor")
    tenant = Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)
    if tenant.requires_second_factor == required:
        return tenant
    tenant.requires_second_factor = required
    tenant.save_changes(["requires_second_factor"])
    before, after = {"second_factor_required": not required}, {"second_factor_required": required}
    audit.record(acting, "tenant.second_factor_changed", tenant, before, after, tenant=tenant)
    return tenant


@transaction.atomic
def suspend_tenant(*, acting: Actor, tenant: Tenant, reason: SuspensionReason, note: str = "") -> Tenant:
    """Suspends a tenant: all its writes stop, including those of its instances' clients.

    Only for operators and the system. Raises `Conflict` if it is suspended already. The tenant can read the reason and
    the `note`.
    """
    _require_platform(acting)
    tenant = Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)
    if tenant.is_suspended:
        raise Conflict("The tenant is suspended already.", code="already_suspended")
    tenant.status, tenant.suspension_reason = TenantStatus.SUSPENDED, SuspensionReason(reason)
    tenant.suspension_note = validated_note(note)
    tenant.save_changes(["status", "suspension_reason", "suspension_note"])
    after = {"status": TenantStatus.SUSPENDED, "reason": tenant.suspension_reason, "note": tenant.suspension_note}
    audit.record(acting, "tenant.suspended", tenant, {"status": TenantStatus.ACTIVE}, after, tenant=tenant)
    tenant_instances.implementation.suspend(tenant=tenant, acting=acting)
    return tenant


@transaction.atomic
def resume_tenant(*, acting: Actor, tenant: Tenant) -> Tenant:
    """Ends a suspension. Only for operators and the system. Raises `Conflict` if the tenant is active."""
    _require_platform(acting)
    tenant = Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)
    if not tenant.is_suspended:
        raise Conflict("The tenant is not suspended.", code="not_suspended")
    before = {"status": TenantStatus.SUSPENDED, "reason": tenant.suspension_reason}
    tenant.status, tenant.suspension_reason = TenantStatus.ACTIVE, ""
    tenant.suspension_note = ""
    tenant.save_changes(["status", "suspension_reason", "suspension_note"])
    audit.record(acting, "tenant.resumed", tenant, before, {"status": TenantStatus.ACTIVE}, tenant=tenant)
    tenant_instances.implementation.resume(tenant=tenant, acting=acting)
    return tenant


def validated_note(note: str) -> str:
    """Returns an operator's note without surrounding spaces. Raises `Invalid` if it is too long or has U+0000."""
    note = note.strip()
    if "\x00" in note:  # PostgreSQL has no text with it
        raise Invalid.at("/note", "A note cannot contain the character U+0000.")
    if len(note) > SUSPENSION_NOTE_CHARS_MAX:
        raise Invalid.at(
            "/note", Message(gettext_noop("A note has at most %(n)s characters."), n=SUSPENSION_NOTE_CHARS_MAX)
        )
    return note


def _require_platform(acting: Actor) -> None:
    if acting.kind not in ("operator", "system"):
        raise PermissionDenied("Only operators suspend and resume tenants.")
