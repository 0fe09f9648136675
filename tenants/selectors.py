"""Reads of this app: plain querysets and lists, already fenced to the tenant they are asked for."""

from __future__ import annotations

from datetime import datetime, timedelta

from allauth.mfa.models import Authenticator
from django.conf import settings
from django.db.models import Exists, F, OuterRef, Q, QuerySet

from tenants.actors import Actor
from tenants.choices import ActorKind, Role
from tenants.models import ApiToken, AuditEntry, Invitation, Member, Session, SignInPlace, Tenant, User
from tenants.secrets import hash_secret


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
    return (
        Member.objects.filter(user=user, removed_at=None).select_related("tenant", "user").order_by("created_at", "id")
    )


def tenants_of(user: User) -> QuerySet[Tenant]:
    """The tenants a user belongs to, each with the user's role in it as `own_role`."""
    rows = Tenant.objects.filter(members__user=user, members__removed_at=None)
    return rows.annotate(own_role=F("members__role"))


def tenants_seen_by(actor: Actor) -> QuerySet[Tenant]:
    """What `GET /tenants` lists: a token sees its tenant, a person all of theirs."""
    if actor.kind is ActorKind.TOKEN or actor.user is None:
        return Tenant.objects.filter(pk=actor.tenant.pk if actor.tenant else "")
    return tenants_of(actor.user)


def is_verified(tenant: Tenant) -> bool:
    """Whether an owner has proved a mailbox; where no mail is sent nobody can, and nobody need."""
    if not settings.MAIL_IS_CONFIGURED:
        return True
    owners = Member.objects.filter(tenant=tenant, role=Role.OWNER, removed_at=None)
    return owners.exclude(user__email_verified_at=None).exists()


def members(tenant: Tenant) -> QuerySet[Member]:
    """Present members of a tenant."""
    return Member.objects.filter(tenant=tenant, removed_at=None).select_related("user")


def members_with_factors(tenant: Tenant) -> QuerySet[Member]:
    """The same, each with whether the person has a second factor (`has_second_factor`)."""
    return members(tenant).annotate(has_second_factor=_has_factor())


def _has_factor() -> Exists:
    """Of a member. Recovery codes stand in for a factor; alone they are none."""
    factors = Authenticator.objects.filter(user=OuterRef("user"))
    return Exists(factors.exclude(type=Authenticator.Type.RECOVERY_CODES))


def members_without_factor(tenant: Tenant) -> list[str]:
    """Whom asking for a second factor would lead to set one up first, by e-mail address."""
    return sorted(members(tenant).filter(~_has_factor()).values_list("user__email", flat=True))


def has_second_factor(user: User) -> bool:
    """Whether an account has an app or a passkey."""
    return authenticators_of(user).exclude(type=Authenticator.Type.RECOVERY_CODES).exists()


def authenticators_of(user: User) -> QuerySet[Authenticator]:
    """What a person has set up as second factors, recovery codes among them, in order of time."""
    return Authenticator.objects.filter(user=user).order_by("created_at", "pk")


def invitations(tenant: Tenant) -> QuerySet[Invitation]:
    """Invitations that are neither accepted nor revoked (an expired one is listed with its expiry)."""
    rows = Invitation.objects.filter(tenant=tenant, accepted_at=None, revoked_at=None)
    return rows.select_related("invited_by__user")


def tokens(tenant: Tenant) -> QuerySet[ApiToken]:
    """Tokens that are not revoked."""
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
    """The tenant's audit log, latest first, narrowed by what is given; `since` is inside, `until` is not."""
    wanted = {
        "action": action, "actor_kind": actor_kind, "actor_id": actor_id, "target_id": target_id, "ip": ip,
        "time__gte": since, "time__lt": until,
    }  # fmt: skip
    return AuditEntry.objects.filter(
        tenant=tenant, **{name: value for name, value in wanted.items() if value is not None}
    )


def live_token(secret_hash: str, now: datetime) -> ApiToken | None:
    """The token with this hash, if it may be used at `now`: not expired, not revoked, its member present and active."""
    rows = ApiToken.objects.filter(
        Q(expires_at=None) | Q(expires_at__gt=now),
        secret_hash=secret_hash,
        revoked_at=None,
        member__removed_at=None,
        member__user__is_active=True,
    )
    token = rows.select_related("tenant", "member__user").order_by().first()
    if token is not None:
        token.member.tenant = token.tenant  # the same row: no second join, no second object
    return token


def invitation_behind(secret: str) -> Invitation | None:
    """The invitation that a link was made for, whatever has become of it; only who has the link learns of it."""
    rows = Invitation.objects.filter(secret_hash=hash_secret(secret))
    return rows.select_related("tenant", "invited_by__user").first()


def sessions_of(user: User, now: datetime) -> QuerySet[Session]:
    """A person's open sessions, the one seen last first."""
    idle = now - timedelta(seconds=settings.SESSION_IDLE_S)
    rows = Session.objects.filter(user=user, expire_date__gt=now, last_seen_at__gt=idle)
    return rows.defer("session_data").order_by("-last_seen_at", "public_id")


def sign_in_notices(user: User, except_place: str | None) -> QuerySet[SignInPlace]:
    """Sign-ins that the person has not read of, but the one that the asking session began with."""
    return SignInPlace.objects.filter(user=user, is_unread=True).exclude(pk=except_place or "")


def suspended_at(tenant: Tenant) -> datetime | None:
    """When a tenant that is suspended was; None where the audit log does not say."""
    rows = AuditEntry.objects.filter(tenant=tenant, action="tenant.suspended", target_id=tenant.pk)
    return rows.order_by("-time").values_list("time", flat=True).first()
