"""API tokens: created with scopes no wider than the maker's own, shown once, revoked for good."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from django.db import IntegrityError, transaction
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_noop

from tenants import access, audit
from tenants.actors import Actor
from tenants.choices import ActorKind, Scope
from tenants.errors import Conflict, FieldError, Invalid, Message, PermissionDenied, QuotaExceeded
from tenants.limits import TOKENS_PER_TENANT_MAX
from tenants.models import TOKEN_PREFIX_CHARS, ApiToken, IdempotencyRecord, Tenant
from tenants.secrets import API_TOKEN_START, hash_secret, new_secret
from tenants.services.people import checked_name

USE_NOTED_EVERY = timedelta(minutes=1)  # a write per request would cost more than the request


@transaction.atomic
def create_token(
    *, acting: Actor, name: str, scopes: Sequence[str], expires_at: datetime | None = None, once: str = ""
) -> tuple[ApiToken, str]:
    """A token and its secret, which is nowhere else.

    `once` is the mark of a form that a browser may send again. Raises `Invalid` for unknown scopes or a past expiry,
    `PermissionDenied` for scopes the actor does not have, and `Conflict(made_already)`.
    """
    name = checked_name(name)
    unknown = [
        FieldError(pointer=f"/scopes/{index}", detail="There is no such scope.", code="invalid_choice")
        for index, scope in enumerate(scopes)
        if scope not in access.TOKEN_SCOPES
    ]
    if unknown or not scopes:
        raise Invalid(
            "Name at least one known scope.", errors=unknown or [FieldError(pointer="/scopes", detail="Empty.")]
        )
    wider = sorted(set(scopes) - access.scopes_of(acting))
    if wider:
        raise PermissionDenied(
            Message(gettext_noop("You cannot grant what you do not have: %(scopes)s."), scopes=", ".join(wider)),
            code="scope_too_wide",
        )
    if expires_at is not None and expires_at <= timezone.now():
        raise Invalid.at("/expires_at", "The expiry has passed.")
    tenant = Tenant.objects.select_for_update(no_key=True).get(pk=access.tenant_of(acting).pk)
    if ApiToken.objects.filter(tenant=tenant, revoked_at=None).count() >= TOKENS_PER_TENANT_MAX:
        raise QuotaExceeded(
            Message(gettext_noop("A tenant may have %(n)s tokens. Revoke one first."), n=TOKENS_PER_TENANT_MAX)
        )
    assert acting.member is not None, "tokens are made by members"
    secret = new_secret(API_TOKEN_START)
    token = ApiToken.objects.create(
        tenant=tenant,
        member=acting.member,
        name=name,
        prefix=secret[:TOKEN_PREFIX_CHARS],
        secret_hash=hash_secret(secret),
        scopes=sorted(set(scopes)),
        expires_at=expires_at,
    )
    if once:
        _use_up(acting, tenant, once, name)
    after = {"name": name, "scopes": token.scopes, "expires_at": expires_at}
    audit.record(acting, "token.created", token, None, after)
    return token, secret


def _use_up(acting: Actor, tenant: Tenant, once: str, name: str) -> None:
    """A form is good for one token. Its mark lies beside the Idempotency-Keys, which are forgotten after a day."""
    mark = hash_secret(once)
    try:
        with transaction.atomic():
            IdempotencyRecord.objects.create(
                actor_id=acting.id, tenant_id=tenant.pk, key=f"form:{mark}", fingerprint=mark, status=201
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
    """The token stops working at once. Members who may not manage members revoke only tokens of their own."""
    if acting.kind is not ActorKind.OPERATOR and not access.permits(acting, Scope.MEMBERS_WRITE):
        is_own = acting.member is not None and token.member_id == acting.member.pk
        if not is_own:
            raise PermissionDenied("You may revoke tokens you made yourself.")
    if token.revoked_at is not None:
        raise Conflict("The token is revoked already.")
    token.revoked_at = timezone.now()
    token.save(update_fields=["revoked_at"])
    audit.record(acting, "token.revoked", token, {"name": token.name, "scopes": token.scopes}, None)


def note_token_use(token: ApiToken, now: datetime) -> None:
    """Remember when a token was last used, to the minute."""
    is_stale = token.last_used_at is None or token.last_used_at <= now - USE_NOTED_EVERY
    if is_stale:
        earlier = Q(last_used_at=None) | Q(last_used_at__lte=now - USE_NOTED_EVERY)
        ApiToken.objects.filter(earlier, pk=token.pk).update(last_used_at=now)
