"""Changes of an instance's OAuth configuration: the accepted issuer, audience and keys. Callers lock the
instance by `instances.access.instance(…, lock=True)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import F

from instances import interfaces
from instances.access import require_changeable
from instances.models import Instance, OAuthConfiguration
from instances.oauth.key_sets import PublicKey
from instances.oauth.validation import validated_columns
from tenants import access, audit
from tenants.actors import Actor
from tenants.choices import Scope
from tenants.errors import NotFound


@transaction.atomic
def configure_oauth(
    *, acting: Actor, instance: Instance, requested: Mapping[str, Any], dry_run: bool = False
) -> OAuthConfiguration:
    """Accepts tokens of an issuer for an audience. `requested` has `issuer`, `audience`, and `jwks_url` or `jwks`, and
    may have `principal_claim` and `clock_skew_seconds`.

    It takes effect within a second. Another issuer, audience or claim ends connections that were opened with tokens;
    other keys do not. Raises `Invalid`, and `Conflict` in a phase in which an instance cannot change.
    """
    access.require(acting, Scope.USERS_WRITE)
    require_changeable(instance)
    columns = validated_columns(requested)
    row = OAuthConfiguration.objects.select_for_update(of=("self",)).filter(instance=instance).first()
    before = None if row is None or row.is_removed else audited_oauth_fields(row)
    row = row or OAuthConfiguration(instance=instance, revision=0)
    if "keys" in columns:
        columns |= {"fetched_at": None, "tried_at": None, "fetch_error": ""}
    elif before is None or row.jwks_url != columns["jwks_url"]:
        columns |= {"keys": [], "fetched_at": None, "tried_at": None, "fetch_error": ""}
    for name, value in columns.items():
        setattr(row, name, value)
    row.is_removed = False
    after = audited_oauth_fields(row)
    if before == after:
        return row
    row.revision += 1
    row.save()
    before_changes, after_changes = (None, after) if before is None else audit.difference(before, after)
    audit.record(acting, "oauth.configured", oauth_ref(instance), before_changes, after_changes, tenant=instance.tenant)
    _publish_on_commit(instance, dry_run=dry_run)
    return row


@transaction.atomic
def remove_oauth(*, acting: Actor, instance: Instance, dry_run: bool = False) -> None:
    """Stops accepting tokens: connections that were opened with one end within a second. Raises `NotFound`."""
    access.require(acting, Scope.USERS_WRITE)
    require_changeable(instance)
    row = OAuthConfiguration.objects.select_for_update(of=("self",)).filter(instance=instance, is_removed=False).first()
    if row is None:
        raise NotFound
    before = audited_oauth_fields(row)
    row.is_removed = True
    row.revision += 1
    row.save()
    audit.record(acting, "oauth.removed", oauth_ref(instance), before, None, tenant=instance.tenant)
    _publish_on_commit(instance, dry_run=dry_run)


@transaction.atomic
def store_fetched_keys(row: OAuthConfiguration, keys: tuple[PublicKey, ...], now: datetime) -> bool:
    """Stores a fetched key set; returns True if brokers need it. It is ignored if the address was replaced
    meanwhile.
    """
    current = _lock_row_with_same_url(row)
    if current is None:
        return False
    bodies = [key.to_body() for key in keys]
    has_changed = current.keys != bodies
    current.keys, current.fetched_at, current.tried_at, current.fetch_error = bodies, now, now, ""
    current.revision += has_changed
    current.save(update_fields=["keys", "fetched_at", "tried_at", "fetch_error", "revision"])
    return has_changed


@transaction.atomic
def store_failed_fetch(row: OAuthConfiguration, reason: str, now: datetime) -> None:
    """Stores the reason of a failed fetch. The keys that were fetched before stay in force."""
    current = _lock_row_with_same_url(row)
    if current is not None:
        current.tried_at, current.fetch_error = now, reason
        current.save(update_fields=["tried_at", "fetch_error"])


def mark_published(row: OAuthConfiguration) -> None:
    """Records that the revision of `row` is published. The row of a removed configuration is deleted."""
    published = OAuthConfiguration.objects.filter(pk=row.pk, revision=row.revision)
    if row.is_removed:
        published.delete()
    else:
        published.update(published_revision=F("revision"))


def audited_oauth_fields(row: OAuthConfiguration) -> dict[str, Any]:
    """Returns the fields that the audit log records, with the identity of pinned keys instead of the keys."""
    return {
        "issuer": row.issuer,
        "audience": row.audience,
        "jwks_url": row.jwks_url or None,
        "pinned_keys": None if row.jwks_url else [_key_identity(key) for key in row.public_keys],
        "principal_claim": row.principal_claim,
        "clock_skew_seconds": row.clock_skew_s,
    }


def _key_identity(key: PublicKey) -> dict[str, Any]:
    return {"kid": key.id, "algorithms": list(key.algorithms), "sha256": key.fingerprint}


def oauth_ref(instance: Instance) -> tuple[str, str]:
    """Returns the audit log's name of an instance's OAuth configuration."""
    return "oauth", f"{instance.pk}/oauth"


def _lock_row_with_same_url(row: OAuthConfiguration) -> OAuthConfiguration | None:
    return (
        OAuthConfiguration.objects.select_for_update(of=("self",))
        .filter(pk=row.pk, is_removed=False, jwks_url=row.jwks_url)
        .exclude(jwks_url="")
        .first()
    )


def _publish_on_commit(instance: Instance, *, dry_run: bool) -> None:
    if dry_run:
        return
    instance_id = instance.pk
    transaction.on_commit(lambda: interfaces.publish_oauth.implementation(instance_id))
