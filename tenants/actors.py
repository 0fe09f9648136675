"""Actors: passed to every service as `acting`, and written to the audit log.

An actor is an immutable value. It is created once per request (API: `tenants.api.authentication`; console:
`tenants.requests.actor_of`) or per task (`system_actor`), and carries the tenant it acts in, so that services need no
request.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tenants.choices import ActorKind, Role

if TYPE_CHECKING:
    from tenants.models import ApiToken, Member, Tenant, User


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """User, token, operator or the system, acting in at most one tenant.

    `scopes` is None unless a token restricts the role. `tenant` is None for a user without a tenant, for operators
    working across tenants, and for system tasks that belong to no tenant.
    """

    kind: ActorKind
    id: str
    label: str
    tenant: Tenant | None = None
    member: Member | None = None
    user: User | None = None
    role: Role | None = None
    scopes: frozenset[str] | None = None
    ip: str | None = None
    request_id: str | None = None
    # False if a user's session was not confirmed lately (`access.require_confirmed`); always true for programs.
    is_confirmed: bool = True
    # True for a session of single sign-on: it reaches nothing outside the tenant whose identity provider began it.
    is_confined: bool = False
    # True for a session in which the person's second factor was given.
    gave_second_factor: bool = False

    def within(self, tenant: Tenant) -> Actor:
        """Returns the same actor in `tenant`; for system and operator actors only."""
        assert self.kind in (ActorKind.SYSTEM, ActorKind.OPERATOR)
        return replace(self, tenant=tenant)


def system_actor(name: str, tenant: Tenant | None = None, *, request_id: str | None = None) -> Actor:
    """Returns the actor of a task, such as `system_actor("reconciler", instance.tenant)`. It has all permissions."""
    return Actor(kind=ActorKind.SYSTEM, id=f"system:{name}", label=name, tenant=tenant, request_id=request_id)


def member_actor(member: Member, *, ip: str | None = None, request_id: str | None = None) -> Actor:
    """Returns the actor of a signed-in person in one of their tenants."""
    return Actor(
        kind=ActorKind.USER, id=member.user_id, label=member.user.email, tenant=member.tenant, member=member,
        user=member.user, role=Role(member.role), ip=ip, request_id=request_id,
    )  # fmt: skip


def token_actor(token: ApiToken, *, ip: str | None = None, request_id: str | None = None) -> Actor:
    """Returns the actor of an API token: its member's role, restricted to the token's scopes."""
    member = token.member
    return Actor(
        kind=ActorKind.TOKEN, id=token.id, label=token.name, tenant=token.tenant, member=member, user=member.user,
        role=Role(member.role), scopes=frozenset(token.scopes), ip=ip, request_id=request_id,
    )  # fmt: skip


def user_actor(user: User, *, ip: str | None = None, request_id: str | None = None) -> Actor:
    """Returns the actor of a signed-in person outside any tenant (accepting an invitation, founding a tenant)."""
    return Actor(kind=ActorKind.USER, id=user.pk, label=user.email, user=user, ip=ip, request_id=request_id)


def operator_actor(user: User, *, ip: str | None = None, request_id: str | None = None) -> Actor:
    """Returns the actor of staff in the operator panel, across tenants."""
    return Actor(kind=ActorKind.OPERATOR, id=user.pk, label=user.email, user=user, ip=ip, request_id=request_id)
