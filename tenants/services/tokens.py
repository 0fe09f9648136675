"""API tokens: created with scopes of their creator at most, shown once, revoked permanently.

A token that creates tokens is their parent; they cannot outlive it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from django.db import IntegrityError, transaction
from django.db.models import F, Q
from django.utils import timezone
from django.utils.translation import gettext_noop

from tenants import access, audit
from tenants.actors import Actor
from tenants.choices import ActorKind, Scope
from tenants.errors import Conflict, FieldError, Invalid, Message, PermissionDenied, QuotaExceeded
from tenants.limits import TOKENS_PER_TENANT_MAX
from tenants.models import TOKEN_PREFIX_CHARS, ApiToken, IdempotencyRecord, Invitation, Tenant, User
from tenants.secrets import API_TOKEN_START, hash_secret, new_secret
from tenants.services.people import validated_name

USE_RECORD_INTERVAL = timedelta(minutes=1)  # a write per request would cost more than the request


@transaction.atomic
def create_token(
    *, acting: Actor, name: str, scopes: Sequence[str], expires_at: datetime | None = None, once: str = ""
) -> tuple[ApiToken, str]:
    """Creates a token and returns it with its secret, which is not stored.

    A token created with a token expires and is revoked with it at the latest. `once` identifies a form that a browser
    may submit again. Raises `Invalid` for unknown scopes, a past expiry or one after the parent's, `PermissionDenied`
    for scopes the actor does not have, and `Conflict(made_already)`.
    """
    name = validated_name(name)
    unknown_scope_errors = [
        FieldError(pointer=f"/scopes/{index}", detail="There is no such scope.", code="invalid_choice")
        for index, scope in enumerate(scopes)
        if scope not in access.TOKEN_SCOPES
    ]
    if unknown_scope_errors or not scopes:
        raise Invalid(
            "Name at least one known scope.",
            errors=unknown_scope_errors or [FieldError(pointer="/scopes", detail="Empty.")],
        )
    missing_scopes = sorted(set(scopes) - access.scopes_of(acting))
    if missing_scopes:
        raise PermissionDenied(
            Message(
                gettext_noop("You cannot grant what you do not have: %(scopes)s."), scopes=", ".join(missing_scopes)
            ),
            code="scope_too_wide",
        )
    if expires_at is not None and expires_at <= timezone.now():
        raise Invalid.at("/expires_at", "The expiry has passed.")
    access.require_confirmed(acting)
    tenant = Tenant.objects.select_for_update(no_key=True).get(pk=access.tenant_of(acting).pk)
    if ApiToken.objects.filter(tenant=tenant, revoked_at=None).count() >= TOKENS_PER_TENANT_MAX:
        raise QuotaExceeded(
            Message(gettext_noop("A tenant may have %(n)s tokens. Revoke one first."), n=TOKENS_PER_TENANT_MAX)
        )
    assert acting.member is not None, "tokens are made by members"
    parent = access.acting_token(acting)
    secret = new_secret(API_TOKEN_START)
    token = ApiToken.objects.create(
        tenant=tenant,
        member=acting.member,
        parent=parent,
        name=name,
        prefix=secret[:TOKEN_PREFIX_CHARS],
        secret_hash=hash_secret(secret),
        scopes=sorted(set(scopes)),
        expires_at=_limited_expiry(parent, expires_at),
    )
    if once:
        _record_form(acting, tenant, once, name)
    after = {"name": name, "scopes": token.scopes, "expires_at": token.expires_at, "parent": token.parent_id}
    audit.record(acting, "token.created", token, None, after)
    return token, secret


def _limited_expiry(parent: ApiToken | None, expires_at: datetime | None) -> datetime | None:
    if parent is None or parent.expires_at is None:
        return expires_at
    if expires_at is not None and expires_at > parent.expires_at:
        detail = Message(
            gettext_noop("A token expires no later than the token that makes it: %(instant)s."),
            instant=parent.expires_at.isoformat(),
        )
        raise Invalid.at("/expires_at", detail, code="after_parent")
    return expires_at or parent.expires_at


def _record_form(acting: Actor, tenant: Tenant, once: str, name: str) -> None:
    """Ensures that a form creates one token: stores its hash with the Idempotency-Keys, which expire after a day."""
    digest = hash_secret(once)
    try:
        with transaction.atomic():
            IdempotencyRecord.objects.create(
                actor_id=acting.id, tenant_id=tenant.pk, key=f"form:{digest}", fingerprint=digest, status=201
            )
    except IntegrityError:
        detail = Message(
            gettext_noop(
                "The token %(token)s is made already; its secret was shown then. Lost it? Revoke it and make another."
            ),
            token=name,
        )
        raise Conflict(detail, code="made_already") from None


@transaction.atomic
def revoke_token(*, acting: Actor, token: ApiToken) -> None:
    """Revokes a token, and with it the tokens and open invitations that were created with it.

    Members who may not manage members may only revoke their own tokens.
    """
    if acting.kind is not ActorKind.OPERATOR and not access.permits(acting, Scope.MEMBERS_WRITE):
        is_own = acting.member is not None and token.member_id == acting.member.pk
        if not is_own:
            raise PermissionDenied("You may revoke tokens you made yourself.")
    if token.revoked_at is not None:
        raise Conflict("The token is revoked already.")
    _revoke_with_descendants(acting, token)


@transaction.atomic
def revoke_tokens_of(*, acting: Actor, user: User) -> int:
    """Revokes every token that a person has created in any tenant; returns their number."""
    rows = ApiToken.objects.filter(member__user=user, revoked_at=None).select_related("tenant").order_by("pk")
    tokens = list(rows.select_for_update(of=("self",), no_key=True))
    for token in tokens:
        _revoke_one(acting, token)
    return len(tokens)


def _revoke_with_descendants(acting: Actor, token: ApiToken) -> None:
    """Revokes a token and its descendants; creating a token locks its parent (`access.acting_token`)."""
    generation = [token]
    while generation:
        for descendant in generation:
            _revoke_one(acting, descendant)
        children = ApiToken.objects.filter(parent__in=generation, revoked_at=None).select_related("tenant")
        generation = list(children.select_for_update(of=("self",), no_key=True).order_by("pk"))


def _revoke_one(acting: Actor, token: ApiToken) -> None:
    now = timezone.now()
    token.revoked_at = now
    token.save(update_fields=["revoked_at"])
    invitations = Invitation.objects.filter(token=token, accepted_at=None, revoked_at=None)
    revoked_invitation_count = invitations.update(revoked_at=now, version=F("version") + 1)
    before = {"name": token.name, "scopes": token.scopes}
    after = {"revoked_invitations": revoked_invitation_count} if revoked_invitation_count else None
    audit.record(acting, "token.revoked", token, before, after, tenant=token.tenant)


def record_token_use(token: ApiToken, now: datetime) -> None:
    """Records when a token was last used, with a resolution of a minute."""
    is_stale = token.last_used_at is None or token.last_used_at <= now - USE_RECORD_INTERVAL
    if is_stale:
        is_older = Q(last_used_at=None) | Q(last_used_at__lte=now - USE_RECORD_INTERVAL)
        ApiToken.objects.filter(is_older, pk=token.pk).update(last_used_at=now)
