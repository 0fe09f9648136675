"""Reads of this app: querysets and lists that are restricted to the given tenant."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from allauth.mfa.models import Authenticator
from django.conf import settings
from django.db.models import Exists, F, OuterRef, Q, QuerySet

from tenants.actors import Actor, token_actor
from tenants.choices import ActorKind, Role
from tenants.models import ApiToken, AuditEntry, Invitation, Member, Session, SignInPlace, Tenant, User
from tenants.secrets import hash_secret


def chosen_member(user: User, tenant_id: str | None, *, confined_to: str | None = None) -> Member | None:
    """Returns the user's membership in the chosen tenant, otherwise the oldest one, otherwise None.

    For a session of single sign-on, `confined_to` is its tenant, and other memberships are ignored.
    """
    rows = memberships(user)
    if confined_to is not None:
        return rows.filter(tenant_id=confined_to).first()
    if tenant_id:
        chosen = rows.filter(tenant_id=tenant_id).first()
        if chosen is not None:
            return chosen
    return rows.first()


def memberships(user: User) -> QuerySet[Member]:
    """Returns the memberships of a user, oldest first."""
    return (
        Member.objects.filter(user=user, removed_at=None).select_related("tenant", "user").order_by("created_at", "id")
    )


def tenants_of(user: User) -> QuerySet[Tenant]:
    """Returns the tenants of a user, each with the user's role as `own_role`."""
    rows = Tenant.objects.filter(members__user=user, members__removed_at=None)
    return rows.annotate(own_role=F("members__role"))


def tenants_seen_by(actor: Actor) -> QuerySet[Tenant]:
    """Returns the tenants for `GET /tenants`: a token or a session of single sign-on sees only its tenant, other
    sessions all tenants of the user.
    """
    if actor.kind is ActorKind.TOKEN or actor.is_confined or actor.user is None:
        return Tenant.objects.filter(pk=actor.tenant.pk if actor.tenant else "")
    return tenants_of(actor.user)


def is_verified(tenant: Tenant) -> bool:
    """True if an owner has a verified address, or no mail is configured."""
    if not settings.MAIL_IS_CONFIGURED:
        return True
    owners = Member.objects.filter(tenant=tenant, role=Role.OWNER, removed_at=None)
    return owners.exclude(user__email_verified_at=None).exists()


def members(tenant: Tenant) -> QuerySet[Member]:
    """Returns the current members of a tenant."""
    return Member.objects.filter(tenant=tenant, removed_at=None).select_related("user")


def members_with_factors(tenant: Tenant) -> QuerySet[Member]:
    """Returns the current members, annotated with `has_second_factor`."""
    return members(tenant).annotate(has_second_factor=_has_factor())


def _has_factor() -> Exists:
    """Returns the condition that a member has a factor; recovery codes alone do not count."""
    factors = Authenticator.objects.filter(user=OuterRef("user"))
    return Exists(factors.exclude(type=Authenticator.Type.RECOVERY_CODES))


def members_without_factor(tenant: Tenant) -> list[str]:
    """Returns the e-mail addresses of members without a second factor."""
    return sorted(members(tenant).filter(~_has_factor()).values_list("user__email", flat=True))


def has_second_factor(user: User) -> bool:
    """True if an account has an app or a passkey."""
    return authenticators_of(user).exclude(type=Authenticator.Type.RECOVERY_CODES).exists()


def authenticators_of(user: User) -> QuerySet[Authenticator]:
    """Returns the second factors of a person, including recovery codes, oldest first."""
    return Authenticator.objects.filter(user=user).order_by("created_at", "pk")


def invitations(tenant: Tenant) -> QuerySet[Invitation]:
    """Returns invitations that are neither accepted nor revoked, including expired ones."""
    rows = Invitation.objects.filter(tenant=tenant, accepted_at=None, revoked_at=None)
    return rows.select_related("invited_by__user")


def tokens(tenant: Tenant) -> QuerySet[ApiToken]:
    """Returns tokens that are not revoked."""
    return ApiToken.objects.filter(tenant=tenant, revoked_at=None).select_related("member__user")


def audit_entries(
    tenant: Tenant,
    *,
    action: str | None = None,
    actor_kind: str | None = None,
    actor_id: str | None = None,
    target_id: str | None = None,
    ip: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> QuerySet[AuditEntry]:
    """Returns the tenant's audit log, latest first, filtered by the arguments; `since` is inclusive,
    `until` exclusive.
    """
    filters = {
        "action": action, "actor_kind": actor_kind, "actor_id": actor_id, "target_id": target_id, "ip": ip,
        "time__gte": since, "time__lt": until,
    }  # fmt: skip
    return AuditEntry.objects.filter(
        tenant=tenant, **{name: value for name, value in filters.items() if value is not None}
    )


def live_token(secret_hash: str, now: datetime) -> ApiToken | None:
    """Returns the token with this hash if it is valid at `now`: not expired or revoked, its member current
    and active.
    """
    return _live_token(now, secret_hash=secret_hash)


def refreshed_actor(actor: Actor, now: datetime) -> Actor | None:
    """Returns an actor of an earlier request with the role and scopes that it has at `now`, and what its session added.

    None: its token is no longer valid, or its member was removed or disabled. A sign-out of the person is not checked.
    """
    if actor.kind is ActorKind.TOKEN:
        token = _live_token(now, pk=actor.id)
        return None if token is None else token_actor(token, ip=actor.ip, request_id=actor.request_id)
    if actor.member is None:
        return actor
    rows = Member.objects.filter(pk=actor.member.pk, removed_at=None, user__is_active=True)
    member = rows.select_related("tenant", "user").first()
    if member is None:
        return None
    return replace(
        actor, label=member.user.email, tenant=member.tenant, member=member, user=member.user, role=Role(member.role)
    )


def _live_token(now: datetime, **lookup: str) -> ApiToken | None:
    rows = ApiToken.objects.filter(
        Q(expires_at=None) | Q(expires_at__gt=now),
        revoked_at=None,
        member__removed_at=None,
        member__user__is_active=True,
        **lookup,
    )
    token = rows.select_related("tenant", "member__user").order_by().first()
    if token is not None:
        token.member.tenant = token.tenant  # the same row: saves a join and a second object
    return token


def invitation_of_link(secret: str) -> Invitation | None:
    """Returns the invitation of a link in any state; only holders of the link can read it."""
    rows = Invitation.objects.filter(secret_hash=hash_secret(secret))
    return rows.select_related("tenant", "invited_by__user").first()


def sessions_of(user: User, now: datetime) -> QuerySet[Session]:
    """Returns a person's open sessions, most recently seen first."""
    idle_since = now - timedelta(seconds=settings.SESSION_IDLE_S)
    rows = Session.objects.filter(user=user, expire_date__gt=now, last_seen_at__gt=idle_since)
    return rows.defer("session_data").order_by("-last_seen_at", "public_id")


def sign_in_notices(user: User, except_place: str | None) -> QuerySet[SignInPlace]:
    """Returns sign-ins that the person has not acknowledged, except that of the current session."""
    return SignInPlace.objects.filter(user=user, is_unread=True).exclude(pk=except_place or "")


def suspended_at(tenant: Tenant) -> datetime | None:
    """Returns when a suspended tenant was suspended; None if the audit log has no such entry."""
    rows = AuditEntry.objects.filter(tenant=tenant, action="tenant.suspended", target_id=tenant.pk)
    return rows.order_by("-time").values_list("time", flat=True).first()
