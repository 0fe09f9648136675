"""Access to a tenant's archives; an archive of another tenant raises `NotFound`."""

from __future__ import annotations

from django.db.models import QuerySet

from archives.models import Archive, ArchiveFile, ArchiveState
from tenants import access
from tenants.actors import Actor
from tenants.models import Tenant


def archives_of(tenant: Tenant) -> QuerySet[Archive]:
    """Returns the tenant's archives except those that are being deleted."""
    return Archive.objects.filter(tenant=tenant).exclude(state=ArchiveState.DELETING)


def archive(acting: Actor, archive_id: str, *, lock: bool = False) -> Archive:
    """Returns an archive of the actor's tenant. Raises `NotFound`."""
    return access.fetch(archives_of(access.tenant_of(acting)), lock=lock, pk=archive_id)


def archive_files_of(row: Archive) -> QuerySet[ArchiveFile]:
    """Returns the files that belong to an archive."""
    return ArchiveFile.objects.filter(archive=row)
