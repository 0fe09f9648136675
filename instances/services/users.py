"""Changes of an instance's users and their passwords, through a Kafka admin client.

A password is generated here, shown once and not stored: brokers get a SCRAM credential. The audit row is written first
and the admin client is called last: a refusal by the brokers rolls everything back.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from django.utils import timezone
from django.utils.translation import gettext_noop

from instances.access import require_reachable
from instances.acls import selectors as acl_selectors
from instances.acls.interfaces import AclRule
from instances.acls.presets import Preset, preset_rules
from instances.models import DeletedUser, Instance
from instances.services.acls import create_acls, missing_acls
from instances.services.common import lock_user, user_ref
from instances.services.deleted_users import require_user_name_free, soft_delete_user
from instances.users import selectors
from instances.users.interfaces import (
    NEVER,
    NewSecret,
    Presence,
    SecretDescription,
    UserChange,
    UserDescription,
    user_admin_client,
)
from instances.users.limits import SECRETS_PER_USER_MAX
from instances.users.naming import PRINCIPAL_PREFIX, name_fault, principal_of
from tenants import access, audit
from tenants.actors import Actor
from tenants.choices import Scope
from tenants.errors import Conflict, DomainError, Invalid, Message, NotFound, QuotaExceeded
from tenants.models import AuditEntry
from tenants.secrets import new_secret

PASSWORD_START: Final = "psu_"  # noqa: S105  lets secret scanners recognise a leaked password
SECRET_ID_BYTES: Final = 5
MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MS_PER_S: Final = 1_000


@audit.atomic
def create_user(
    *,
    acting: Actor,
    instance: Instance,
    name: str,
    superuser: bool = False,
    rights: Preset = Preset.NOTHING,
    expires_at: datetime | None = None,
    dry_run: bool = False,
) -> tuple[UserDescription, NewSecret]:
    """Creates a user with the access rules of a preset; returns it with its password, which is not stored.

    Raises `Invalid` for a name that no user may have and for a past expiry, `Conflict` for a user that exists
    (`already_exists`) and for rights in an open instance (`instance_open`), and `QuotaExceeded` beyond the limits of
    users and rules.
    """
    access.require(acting, Scope.USERS_WRITE)
    require_reachable(instance)
    name_error = name_fault(name)
    if name_error is not None:
        raise Invalid.at("/name", name_error, code="invalid_name")
    require_user_name_free(instance, name)
    now_ms = _now_ms()
    expires_at_ms = _expiry(expires_at, now_ms)
    rules = preset_rules(rights, principal_of(name))
    if rules:
        _require_closed(instance)
        missing_acls(acting, instance, rules)  # refuses before the user is created
    secret = _new_secret()
    change = UserChange(
        name=name,
        presence=Presence.FORBIDDEN,
        superuser=superuser,
        disabled=False,
        expires_at_ms=NEVER if expires_at_ms is None else expires_at_ms,
        added_secrets=(secret,),
    )
    after = {"superuser": superuser, "expires_at": expires_at, "key_id": secret.id}
    entry = audit.record(acting, "user.created", user_ref(instance, name), None, after, tenant=instance.tenant)
    with audit.in_doubt(entry):
        user_admin_client.implementation.change(instance.pk, change, validate_only=dry_run)
    if rules and not dry_run:
        _create_rules(acting, instance, rules, entry)
    user = UserDescription(
        name=name, superuser=superuser, disabled=False, expires_at_ms=expires_at_ms, created_at_ms=now_ms,
        last_used_at_ms=None, connections=0, secrets=(_description_of_secret(secret, now_ms),),
    )  # fmt: skip
    return user, secret


def _require_closed(instance: Instance) -> None:
    """Raises `Conflict` if rules on every topic would lock out the users that work without rules."""
    if acl_selectors.allows_everyone(instance):
        raise Conflict(
            "The instance is open: rules on every topic would close it to all users without rules. Close it first.",
            code="instance_open",
        )


def _create_rules(acting: Actor, instance: Instance, rules: Sequence[AclRule], entry: AuditEntry) -> None:
    """Creates the rules of a new user. If that fails the user is deleted again, because its password is lost.

    `entry` is the audit row of the user; it stays if the outcome of the deletion is unknown.
    """
    name = rules[0].principal.removeprefix(PRINCIPAL_PREFIX)
    try:
        create_acls(acting=acting, instance=instance, rules=rules)
    except DomainError:
        with audit.in_doubt(entry):
            user_admin_client.implementation.change(
                instance.pk, UserChange(name=name, is_deleted=True), validate_only=False
            )
        raise


@audit.atomic
def update_user(
    *,
    acting: Actor,
    instance: Instance,
    name: str,
    superuser: bool | None = None,
    disabled: bool | None = None,
    expires_at: datetime | None = None,
    never_expires: bool = False,
    dry_run: bool = False,
) -> UserDescription:
    """Changes full access, the disabled state or the expiry of a user. None leaves a value unchanged; `never_expires`
    removes the expiry.

    It takes effect within a second: disabled and expired users are disconnected. Raises `NotFound`, and `Invalid` for a
    past expiry.
    """
    access.require(acting, Scope.USERS_WRITE)
    require_reachable(instance)
    lock_user(instance, name)
    user = selectors.user(instance, name)
    expires_at_ms = NEVER if never_expires else _expiry(expires_at, _now_ms())
    after = replace(
        user,
        superuser=user.superuser if superuser is None else superuser,
        disabled=user.disabled if disabled is None else disabled,
        expires_at_ms=user.expires_at_ms if expires_at_ms is None else _none_if_never(expires_at_ms),
    )
    before, changes = audit.difference(_audited_fields(user), _audited_fields(after))
    if not changes:
        return user
    change = UserChange(name=name, superuser=superuser, disabled=disabled, expires_at_ms=expires_at_ms)
    entry = audit.record(acting, "user.changed", user_ref(instance, name), before, changes, tenant=instance.tenant)
    with audit.in_doubt(entry):
        user_admin_client.implementation.change(instance.pk, change, validate_only=dry_run)
    return after


@audit.atomic
def delete_user(
    *, acting: Actor, instance: Instance, name: str, for_good: bool = False, dry_run: bool = False
) -> DeletedUser | None:
    """Deletes a user: its connections end within a second. Access rules and quotas that name it stay.

    It can be restored for some days by the returned row, unless it is deleted `for_good` or its name has U+0000. Raises
    `NotFound` for an unknown user.
    """
    access.require(acting, Scope.USERS_WRITE)
    require_reachable(instance)
    lock_user(instance, name)
    user = selectors.user(instance, name)
    before = {**_audited_fields(user), "key_ids": [secret.id for secret in user.secrets]}
    deleted_row, change, after = None, UserChange(name=name, is_deleted=True), None
    if not for_good and "\x00" not in name:  # not valid in PostgreSQL text
        deleted_row = soft_delete_user(instance, user, now=timezone.now())
        change, after = UserChange(name=name, disabled=True), {"restorable_until": deleted_row.expires_at.isoformat()}
    entry = audit.record(acting, "user.deleted", user_ref(instance, name), before, after, tenant=instance.tenant)
    with audit.in_doubt(entry):
        user_admin_client.implementation.change(instance.pk, change, validate_only=dry_run)
    return deleted_row


@audit.atomic
def add_secret(*, acting: Actor, instance: Instance, name: str, dry_run: bool = False) -> NewSecret:
    """Adds a second password to a user, so that its clients can change over, and returns it. It is not stored.

    Raises `NotFound`, and `QuotaExceeded` if the user has two.
    """
    access.require(acting, Scope.USERS_WRITE)
    require_reachable(instance)
    lock_user(instance, name)
    user = selectors.user(instance, name)
    if len(user.secrets) >= SECRETS_PER_USER_MAX:
        detail = Message(
            gettext_noop("A user has at most %(n)s passwords. Remove the old one first."), n=SECRETS_PER_USER_MAX
        )
        raise QuotaExceeded(detail)
    secret = _new_secret()
    entry = audit.record(
        acting, "user.secret_added", user_ref(instance, name), None, {"key_id": secret.id}, tenant=instance.tenant
    )
    with audit.in_doubt(entry):
        change = UserChange(name=name, added_secrets=(secret,))
        user_admin_client.implementation.change(instance.pk, change, validate_only=dry_run)
    return secret


@audit.atomic
def remove_secret(*, acting: Actor, instance: Instance, name: str, secret_id: str, dry_run: bool = False) -> None:
    """Removes a password of a user; connections that were opened with it end within a second.

    Raises `NotFound`, and `Conflict(last_secret)` for the only password of an enabled user: probably a mistake.
    """
    access.require(acting, Scope.USERS_WRITE)
    require_reachable(instance)
    lock_user(instance, name)
    user = selectors.user(instance, name)
    if secret_id not in {secret.id for secret in user.secrets}:
        raise NotFound
    if len(user.secrets) == 1 and not user.disabled:
        raise Conflict(
            "This is the user's only password. Add another one first, or disable the user.", code="last_secret"
        )
    entry = audit.record(
        acting, "user.secret_removed", user_ref(instance, name), {"key_id": secret_id}, None, tenant=instance.tenant
    )
    with audit.in_doubt(entry):
        change = UserChange(name=name, removed_secrets=(secret_id,))
        user_admin_client.implementation.change(instance.pk, change, validate_only=dry_run)


def _new_secret() -> NewSecret:
    return NewSecret(id=f"sec-{secrets.token_hex(SECRET_ID_BYTES)}", password=new_secret(PASSWORD_START))


def _description_of_secret(secret: NewSecret, now_ms: int) -> SecretDescription:
    return SecretDescription(id=secret.id, created_at_ms=now_ms, last_used_at_ms=None, mechanisms=MECHANISMS)


def _expiry(expires_at: datetime | None, now_ms: int) -> int | None:
    if expires_at is None:
        return None
    at_ms = round(expires_at.timestamp() * MS_PER_S)
    if at_ms <= now_ms:
        raise Invalid.at("/expires_at", "The expiry has passed.")
    return at_ms


def _none_if_never(at_ms: int) -> int | None:
    return None if at_ms == NEVER else at_ms


def _audited_fields(user: UserDescription) -> dict[str, Any]:
    """Returns the fields of a user that the audit log records."""
    return {
        "superuser": user.superuser,
        "disabled": user.disabled,
        "expires_at": selectors.instant_of(user.expires_at_ms),
    }


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
