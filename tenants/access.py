"""Authorization: permissions of roles, and tenant-scoped access to rows.

The functions raise `NotFound` for unknown and foreign ids alike, so that the existence of another tenant's rows is not
revealed. Other apps build such functions on `fetch`; views call them and never `Model.objects`.
"""

from __future__ import annotations

from typing import Any, TypeVar

from django.core.exceptions import ObjectDoesNotExist
from django.db.models import Model, QuerySet
from django.utils.translation import gettext_noop

from tenants.actors import Actor
from tenants.choices import ActorKind, Role, Scope, SuspensionReason
from tenants.errors import ConfirmationNeeded, Message, NotFound, PaymentRequired, PermissionDenied, Unauthenticated
from tenants.models import ApiToken, Invitation, Member, Tenant

Row = TypeVar("Row", bound=Model)

_READ_SCOPES = frozenset(scope.value for scope in Scope if scope.value.endswith(":read"))
_ALL_TENANT_SCOPES = frozenset(scope.value for scope in Scope if scope is not Scope.OPERATOR)
_DEVELOPER_WRITE_SCOPES = frozenset(
    {Scope.INSTANCES_WRITE, Scope.TOPICS_WRITE, Scope.MESSAGES_WRITE, Scope.USERS_WRITE, Scope.ACLS_WRITE,
     Scope.QUOTAS_WRITE, Scope.GROUPS_WRITE, Scope.CLIENTS_WRITE, Scope.TOKENS_WRITE, Scope.ARCHIVES_WRITE}
)  # fmt: skip
_FINANCE_SCOPES = frozenset(
    {Scope.TENANT_READ, Scope.MEMBERS_READ, Scope.INSTANCES_READ, Scope.USAGE_READ, Scope.BILLING_READ,
     Scope.BILLING_WRITE, Scope.AUDIT_READ}
)  # fmt: skip
_VIEWER_SCOPES = _READ_SCOPES - {Scope.MESSAGES_READ, Scope.TOKENS_READ, Scope.AUDIT_READ, Scope.BILLING_READ}

ROLE_SCOPES: dict[Role, frozenset[str]] = {
    Role.OWNER: _ALL_TENANT_SCOPES,
    Role.ADMIN: _ALL_TENANT_SCOPES - {Scope.BILLING_WRITE},
    Role.DEVELOPER: (_READ_SCOPES - {Scope.BILLING_READ}) | _DEVELOPER_WRITE_SCOPES,
    Role.FINANCE: _FINANCE_SCOPES,
    Role.VIEWER: _VIEWER_SCOPES,
}

# Scopes that a token may have: each is required by a route of the API (tests/component/api/test_routes.py).
TOKEN_SCOPES = frozenset(Scope.values)

# Roles that a member may assign or remove, by the member's own role. Only owners assign owners.
MANAGED_ROLES: dict[Role, frozenset[Role]] = {
    Role.OWNER: frozenset(Role),
    Role.ADMIN: frozenset(Role) - {Role.OWNER},
}


def scopes_of(actor: Actor) -> frozenset[str]:
    """Returns the actor's scopes in its tenant: those of the role, restricted to those of the token."""
    if actor.kind is ActorKind.SYSTEM:
        return frozenset(Scope.values)
    role_scopes = ROLE_SCOPES[actor.role] if actor.role is not None else frozenset()
    if actor.user is not None and actor.user.is_staff and not actor.is_confined:
        role_scopes = role_scopes | {Scope.OPERATOR.value}
    return role_scopes if actor.scopes is None else role_scopes & actor.scopes


def grantable_scopes(actor: Actor) -> frozenset[str]:
    """Returns the scopes for which the actor may create a token."""
    return scopes_of(actor) & TOKEN_SCOPES


def may_assign_role(actor: Actor, role: Role) -> bool:
    """True if the actor may add or change a member with this role.

    The actor's own role must manage it. A token must also have every scope of the role, so that it cannot invite a
    member with more permissions than its own.
    """
    if actor.kind is ActorKind.SYSTEM:
        return True
    if actor.role is None or role not in MANAGED_ROLES.get(actor.role, frozenset()):
        return False
    return actor.scopes is None or ROLE_SCOPES[role] <= scopes_of(actor)


def permits(actor: Actor, scope: str) -> bool:
    """True if the actor's role and token allow `scope`; suspension is not considered."""
    return scope in scopes_of(actor)


def require(actor: Actor, scope: str) -> None:
    """Raises `PermissionDenied` unless the actor has `scope`; writes also require a tenant that is not suspended."""
    if not permits(actor, scope):
        refusal = PermissionDenied(Message(gettext_noop("This needs the permission %(scope)s."), scope=scope))
        refusal.scope = scope
        raise refusal
    if scope.endswith(":write"):
        require_active(actor)


def require_active(actor: Actor) -> None:
    """Raises `PaymentRequired` or `PermissionDenied` if the actor's tenant is suspended, except for the system and
    operators.
    """
    tenant = actor.tenant
    if tenant is None or not tenant.is_suspended or actor.kind in (ActorKind.SYSTEM, ActorKind.OPERATOR):
        return
    if tenant.suspension_reason == SuspensionReason.UNPAID:
        raise PaymentRequired("The tenant is suspended until its invoice is paid. Reading still works.")
    raise PermissionDenied("The tenant is suspended. Reading still works.", code="tenant_suspended")


def require_may_set_sso(actor: Actor) -> None:
    """Raises `PermissionDenied` or `ConfirmationNeeded` unless the actor may appoint admins, because an identity
    provider can make a person admin.
    """
    require(actor, Scope.MEMBERS_WRITE)
    if not may_assign_role(actor, Role.ADMIN):
        detail = "The provider can make admins. This needs a role and a token that may do all that admins may."
        raise PermissionDenied(detail, code="scope_too_wide")
    require_confirmed(actor)


def require_confirmed(actor: Actor) -> None:
    """Raises `ConfirmationNeeded` if a user's session was not confirmed lately.

    A stolen session therefore cannot create tokens or owners.
    """
    if not actor.is_confirmed:
        raise ConfirmationNeeded("Confirm that it is you in the console, then try again.")


def require_whole_account(actor: Actor) -> None:
    """Raises `PermissionDenied` for a session of single sign-on, which is for the tenant of its provider only."""
    if actor.is_confined:
        raise PermissionDenied("Sign in with your password or passkey for this.", code="sso_session")


def tenant_of(actor: Actor) -> Tenant:
    """Returns the actor's tenant. Raises `PermissionDenied` for a user without one."""
    if actor.tenant is None:
        raise PermissionDenied("Join or create a tenant first.", code="no_tenant")
    return actor.tenant


def fetch(rows: QuerySet[Row], *, lock: bool = False, **lookup: Any) -> Row:
    """Returns the row of a queryset that is already restricted to a tenant. Raises `NotFound`.

    `lock` locks the row FOR NO KEY UPDATE (in a transaction). Rows that refer to it, such as audit entries about a
    locked tenant, can therefore be inserted without waiting.
    """
    if any(isinstance(value, str) and "\x00" in value for value in lookup.values()):
        raise NotFound  # PostgreSQL text cannot contain U+0000, so no row has it
    if lock:
        rows = rows.select_for_update(of=("self",), no_key=True)
    try:
        return rows.get(**lookup)
    except ObjectDoesNotExist:
        raise NotFound from None


def tenant(actor: Actor, tenant_id: str, *, lock: bool = False) -> Tenant:
    """Returns a tenant of the acting user; a token or a session of single sign-on sees only its own.

    Raises `NotFound`.
    """
    rows = Tenant.objects.all()
    if actor.kind is ActorKind.TOKEN or actor.is_confined:
        rows = rows.filter(pk=tenant_of(actor).pk)
    else:
        own_tenants = Member.objects.filter(user=actor.user, removed_at=None).values("tenant")
        rows = rows.filter(pk__in=own_tenants)
    return fetch(rows, lock=lock, pk=tenant_id)


def own_tenant(actor: Actor, tenant_id: str, *, lock: bool = False) -> Tenant:
    """Returns the actor's current tenant by id. Raises `NotFound` for other tenants of the user.

    A request that changes another tenant must act in that tenant.
    """
    return fetch(Tenant.objects.filter(pk=tenant_of(actor).pk), lock=lock, pk=tenant_id)


def member(actor: Actor, member_id: str, *, lock: bool = False) -> Member:
    """Returns a current member of the actor's tenant. Raises `NotFound`."""
    rows = Member.objects.filter(tenant=tenant_of(actor), removed_at=None).select_related("user", "tenant")
    return fetch(rows, lock=lock, pk=member_id)


def invitation(actor: Actor, invitation_id: str, *, lock: bool = False) -> Invitation:
    """Returns an open invitation of the actor's tenant. Raises `NotFound`."""
    rows = Invitation.objects.filter(tenant=tenant_of(actor), accepted_at=None, revoked_at=None)
    return fetch(rows.select_related("invited_by__user"), lock=lock, pk=invitation_id)


def token(actor: Actor, token_id: str, *, lock: bool = False) -> ApiToken:
    """Returns a token of the actor's tenant that is not revoked. Raises `NotFound`."""
    rows = ApiToken.objects.filter(tenant=tenant_of(actor), revoked_at=None).select_related("member__user")
    return fetch(rows, lock=lock, pk=token_id)


def acting_token(actor: Actor) -> ApiToken | None:
    """Returns the acting token, locked against revocation until its changes are written; None without a token.

    Raises `Unauthenticated` if it has been revoked since the request began. The caller must lock the tenant first.
    """
    if actor.kind is not ActorKind.TOKEN:
        return None
    row = ApiToken.objects.select_for_update(no_key=True).filter(pk=actor.id, revoked_at=None).first()
    if row is None:
        raise Unauthenticated("The token is unknown, expired or revoked.")
    return row
