"""The fence: what each role may do, and the only doors to a tenant's rows.

A door answers `NotFound` for unknown and foreign alike, so nobody can learn that another tenant's thing exists.
Other apps build their doors from `fetch`; views call doors, never `Model.objects`.
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

_READS = frozenset(scope.value for scope in Scope if scope.value.endswith(":read"))
_EVERYTHING = frozenset(scope.value for scope in Scope if scope is not Scope.OPERATOR)
_WORK = frozenset(
    {Scope.INSTANCES_WRITE, Scope.TOPICS_WRITE, Scope.MESSAGES_WRITE, Scope.USERS_WRITE, Scope.ACLS_WRITE,
     Scope.QUOTAS_WRITE, Scope.GROUPS_WRITE, Scope.CLIENTS_WRITE, Scope.TOKENS_WRITE, Scope.ARCHIVES_WRITE}
)  # fmt: skip
_MONEY = frozenset(
    {Scope.TENANT_READ, Scope.MEMBERS_READ, Scope.INSTANCES_READ, Scope.USAGE_READ, Scope.BILLING_READ,
     Scope.BILLING_WRITE, Scope.AUDIT_READ}
)  # fmt: skip
_ONLY_SEEING = _READS - {Scope.MESSAGES_READ, Scope.TOKENS_READ, Scope.AUDIT_READ, Scope.BILLING_READ}

ROLE_SCOPES: dict[Role, frozenset[str]] = {
    Role.OWNER: _EVERYTHING,
    Role.ADMIN: _EVERYTHING - {Scope.BILLING_WRITE},
    Role.DEVELOPER: (_READS - {Scope.BILLING_READ}) | _WORK,
    Role.FINANCE: _MONEY,
    Role.VIEWER: _ONLY_SEEING,
}

# What a token may be made for: each is asked for by a route of the API (tests/component/api/test_routes.py).
TOKEN_SCOPES = frozenset(Scope.values)

# Roles a member of a role may give or take away. Only an owner makes owners.
MANAGED_ROLES: dict[Role, frozenset[Role]] = {
    Role.OWNER: frozenset(Role),
    Role.ADMIN: frozenset(Role) - {Role.OWNER},
}


def scopes_of(actor: Actor) -> frozenset[str]:
    """Everything the actor may do in its tenant: the role's scopes, narrowed by the token's."""
    if actor.kind is ActorKind.SYSTEM:
        return frozenset(Scope.values)
    granted = ROLE_SCOPES[actor.role] if actor.role is not None else frozenset()
    if actor.user is not None and actor.user.is_staff:
        granted = granted | {Scope.OPERATOR.value}
    return granted if actor.scopes is None else granted & actor.scopes


def grantable_scopes(actor: Actor) -> frozenset[str]:
    """What the actor may make a token for."""
    return scopes_of(actor) & TOKEN_SCOPES


def may_give(actor: Actor, role: Role) -> bool:
    """Whether the actor may make somebody a member with this role: the actor's own role manages it, and a token also
    has every scope that the role brings, lest it invite somebody who may do more than it may.
    """
    if actor.kind is ActorKind.SYSTEM:
        return True
    if actor.role is None or role not in MANAGED_ROLES.get(actor.role, frozenset()):
        return False
    return actor.scopes is None or ROLE_SCOPES[role] <= scopes_of(actor)


def permits(actor: Actor, scope: str) -> bool:
    """True when the actor's role and token allow `scope`; says nothing about suspension."""
    return scope in scopes_of(actor)


def require(actor: Actor, scope: str) -> None:
    """Raise `PermissionDenied` unless the actor has `scope`; writes also need a tenant that is not suspended."""
    if not permits(actor, scope):
        refusal = PermissionDenied(Message(gettext_noop("This needs the permission %(scope)s."), scope=scope))
        refusal.scope = scope
        raise refusal
    if scope.endswith(":write"):
        require_active(actor)


def require_active(actor: Actor) -> None:
    """Raise `PaymentRequired` or `PermissionDenied` when the actor's tenant is suspended (the system still may)."""
    tenant = actor.tenant
    if tenant is None or not tenant.is_suspended or actor.kind in (ActorKind.SYSTEM, ActorKind.OPERATOR):
        return
    if tenant.suspension_reason == SuspensionReason.UNPAID:
        raise PaymentRequired("The tenant is suspended until its invoice is paid. Reading still works.")
    raise PermissionDenied("The tenant is suspended. Reading still works.", code="tenant_suspended")


def require_confirmed(actor: Actor) -> None:
    """Raise `ConfirmationNeeded` where a person's session was not confirmed lately: whoever has stolen it makes no
    token and no owner with it.
    """
    if not actor.is_confirmed:
        raise ConfirmationNeeded("Confirm that it is you in the console, then try again.")


def tenant_of(actor: Actor) -> Tenant:
    """The tenant the actor works in, or `PermissionDenied` for a user without one."""
    if actor.tenant is None:
        raise PermissionDenied("Join or create a tenant first.", code="no_tenant")
    return actor.tenant


def fetch(rows: QuerySet[Row], *, lock: bool = False, **lookup: Any) -> Row:
    """The one row of a queryset already fenced to a tenant, or `NotFound`; `lock` takes its lock (in a transaction).

    Keys never change, so the lock leaves them to others: an audit entry about a tenant waits for nobody who holds it.
    """
    if any(isinstance(value, str) and "\x00" in value for value in lookup.values()):
        raise NotFound  # PostgreSQL has no text with U+0000, so nothing is called that
    if lock:
        rows = rows.select_for_update(of=("self",), no_key=True)
    try:
        return rows.get(**lookup)
    except ObjectDoesNotExist:
        raise NotFound from None


def tenant(actor: Actor, tenant_id: str, *, lock: bool = False) -> Tenant:
    """A tenant the acting user belongs to; a token sees only its own."""
    rows = Tenant.objects.all()
    if actor.kind is ActorKind.TOKEN:
        rows = rows.filter(pk=tenant_of(actor).pk)
    else:
        mine = Member.objects.filter(user=actor.user, removed_at=None).values("tenant")
        rows = rows.filter(pk__in=mine)
    return fetch(rows, lock=lock, pk=tenant_id)


def own_tenant(actor: Actor, tenant_id: str, *, lock: bool = False) -> Tenant:
    """The tenant the actor works in, by id. Another of the user's tenants is changed while working in it."""
    return fetch(Tenant.objects.filter(pk=tenant_of(actor).pk), lock=lock, pk=tenant_id)


def member(actor: Actor, member_id: str, *, lock: bool = False) -> Member:
    """A present member of the actor's tenant."""
    rows = Member.objects.filter(tenant=tenant_of(actor), removed_at=None).select_related("user", "tenant")
    return fetch(rows, lock=lock, pk=member_id)


def invitation(actor: Actor, invitation_id: str, *, lock: bool = False) -> Invitation:
    """An invitation of the actor's tenant that is neither accepted nor revoked."""
    rows = Invitation.objects.filter(tenant=tenant_of(actor), accepted_at=None, revoked_at=None)
    return fetch(rows.select_related("invited_by__user"), lock=lock, pk=invitation_id)


def token(actor: Actor, token_id: str, *, lock: bool = False) -> ApiToken:
    """A token of the actor's tenant that is not revoked."""
    rows = ApiToken.objects.filter(tenant=tenant_of(actor), revoked_at=None).select_related("member__user")
    return fetch(rows, lock=lock, pk=token_id)


def acting_token(actor: Actor) -> ApiToken | None:
    """The token that acts, locked: it is not revoked before what it makes is written. None for who holds no token.

    Raises `Unauthenticated` when it has been revoked since the request began. The tenant is locked before.
    """
    if actor.kind is not ActorKind.TOKEN:
        return None
    found = ApiToken.objects.select_for_update(no_key=True).filter(pk=actor.id, revoked_at=None).first()
    if found is None:
        raise Unauthenticated("The token is unknown, expired or revoked.")
    return found
