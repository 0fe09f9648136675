"""Creates, changes and deletes archives of tenants. `archives.running` copies their records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext_noop

from archives import address, limits, running
from archives.columns import SchemaRefused
from archives.models import ENCRYPTED_CHARS_MAX, Archive, ArchiveState, ValueFormat
from archives.values import columns_of
from instances.models import Instance
from instances.naming import is_valid_topic_name
from instances.services import is_masked, require_unmasked
from tenants import access, audit
from tenants.actors import Actor
from tenants.choices import Scope
from tenants.errors import Conflict, Invalid, Message, QuotaExceeded
from tenants.models import Tenant
from tenants.second_factor.adapter import cipher

SECRETS = ("password", "secret_access_key", "database_password")
CHANGEABLE = (
    "interval_minutes", "run_after_bytes", "bytes_per_s_max", "on_gap", "on_bad_record", "username", "access_key_id",
    "database_user", *SECRETS,
)  # fmt: skip
AUDITED_FIELDS = ("url", "state", "value_format", "may_unmask", *(name for name in CHANGEABLE if name not in SECRETS))


@transaction.atomic
def create(*, acting: Actor, instance: Instance, topic: str, url: str, **values: Any) -> Archive:
    """Creates an archive of an instance that was fetched for the actor. Raises `QuotaExceeded`, `Conflict`,
    `Invalid`.
    """
    access.require(acting, Scope.ARCHIVES_WRITE)
    tenant = Tenant.objects.select_for_update().get(pk=access.tenant_of(acting).pk)
    if Archive.objects.filter(tenant=tenant).count() >= limits.ARCHIVES_PER_TENANT_MAX:
        raise QuotaExceeded(
            Message(gettext_noop("A tenant has at most %(n)s archives."), n=limits.ARCHIVES_PER_TENANT_MAX)
        )
    if not is_valid_topic_name(topic):
        raise Invalid.at("/topic", gettext_noop("There can be no such topic."), code="invalid_name")
    require_unmasked(acting, instance, topic)
    archive = Archive(
        tenant=tenant, instance=instance, topic=topic, url=url,
        may_unmask=access.permits(acting, Scope.MESSAGES_UNMASK), **_with_encrypted_secrets(values),
    )  # fmt: skip
    _require_consistent(archive)
    existing = Archive.objects.filter(instance=instance, topic=topic, url=url).exclude(state=ArchiveState.DELETING)
    if existing.exists():
        raise Conflict(gettext_noop("The topic has an archive at this address."), code="name_taken")
    archive.save()
    audit.record(
        acting, "archive.created", archive, None, {"instance": instance.pk, "topic": topic, **_audit_values(archive)}
    )
    return archive


@transaction.atomic
def change(*, acting: Actor, archive: Archive, changes: Mapping[str, Any]) -> Archive:
    """Changes schedule, rate, policies and credentials of a locked archive; `is_paused` pauses or resumes it.

    Raises `Conflict`, `Invalid`.
    """
    access.require(acting, Scope.ARCHIVES_WRITE)
    _require_not_ended(archive)
    before = _audit_values(archive)
    values = _with_encrypted_secrets({name: value for name, value in changes.items() if name in CHANGEABLE})
    if "is_paused" in changes:
        values["state"] = ArchiveState.PAUSED if changes["is_paused"] else ArchiveState.ACTIVE
    for name, value in values.items():
        setattr(archive, name, value)
    _require_consistent(archive)
    if _audit_values(archive) != before or any(changes.get(name) for name in SECRETS):
        archive.next_run_at = timezone.now()
        archive.save_changes([*values, "next_run_at"])
        audit.record(acting, "archive.changed", archive, *audit.difference(before, _audit_values(archive)))
    return archive


@transaction.atomic
def run_now(*, acting: Actor, archive: Archive) -> Archive:
    """Makes a locked archive due now. Raises `Conflict` while it is paused.

    If the topic has masks and the archive may not read masked fields, an actor with `messages:unmask` lets it, and
    `PermissionDenied` is raised for others.
    """
    access.require(acting, Scope.ARCHIVES_WRITE)
    _require_not_ended(archive)
    if archive.state == ArchiveState.PAUSED:
        raise Conflict(gettext_noop("The archive is paused. Resume it first."), code="paused")
    before = _audit_values(archive)
    if not archive.may_unmask and is_masked(archive.instance, archive.topic):
        access.require(acting, Scope.MESSAGES_UNMASK)
        archive.may_unmask = True
    archive.next_run_at = timezone.now()
    archive.save_changes(["next_run_at", "may_unmask"])
    audit.record(acting, "archive.run_asked", archive, *audit.difference(before, _audit_values(archive)))
    return archive


@transaction.atomic
def delete(*, acting: Actor, archive: Archive) -> None:
    """Marks an archive as deleted; the runner deletes its files on local disks. Files at the tenant's address stay."""
    access.require(acting, Scope.ARCHIVES_WRITE)
    audit.record(acting, "archive.deleted", archive, {"topic": archive.topic, **_audit_values(archive)}, None)
    archive.state, archive.next_run_at = ArchiveState.DELETING, timezone.now()
    archive.save_changes(["state", "next_run_at"])


def _require_not_ended(archive: Archive) -> None:
    if archive.state == ArchiveState.ENDED:
        raise Conflict(gettext_noop("The archive has ended with its instance. Its files stay."), code="ended")


def _require_consistent(archive: Archive) -> None:
    try:
        columns_of(archive.value_format, archive.value_schema)
    except SchemaRefused as refusal:
        raise Invalid.at("/value_schema", str(refusal), code="schema") from None
    _require_destination(archive)
    if bool(archive.username) != bool(archive.password):
        raise Invalid.at("/username", gettext_noop("A user needs a password, and a password a user."), code="user")


def _require_destination(archive: Archive) -> None:
    """Raises `Invalid` if the address is refused, or the archive lacks credentials for it or has others."""
    try:
        if archive.is_in_database:
            running.require_allowed_database(archive.url)
            is_bucket = False
        else:
            is_bucket = bool(running.require_allowed(archive.url).bucket)
    except address.AddressRefused as refusal:
        raise Invalid.at("/url", str(refusal), code="not_allowed") from None
    if archive.is_in_database and archive.value_format != ValueFormat.RAW:
        raise Invalid.at(
            "/value_format", gettext_noop("A table has the bytes of values. Choose raw."), code="value_format"
        )
    keys = (archive.access_key_id, archive.secret_access_key)
    if any(keys) != is_bucket or all(keys) != is_bucket:
        raise Invalid.at(
            "/access_key_id", gettext_noop("An address at s3: needs both keys, one at file: has none."), code="keys"
        )
    login = (archive.database_user, archive.database_password)
    if any(login) != archive.is_in_database or all(login) != archive.is_in_database:
        raise Invalid.at(
            "/database_user",
            gettext_noop("An address at postgresql: needs a user of the database and its password, others have none."),
            code="database_user",
        )
    for name in SECRETS:
        if len(getattr(archive, name)) > ENCRYPTED_CHARS_MAX:
            raise Invalid.at(f"/{name}", gettext_noop("It is too long."), code="max_length")


def _with_encrypted_secrets(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: cipher().encrypt(value.encode()).decode() if name in SECRETS and value else value
        for name, value in values.items()
    }


def _audit_values(archive: Archive) -> dict[str, Any]:
    return {name: getattr(archive, name) for name in AUDITED_FIELDS}
