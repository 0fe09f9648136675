"""Reads of archives, for the page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, Sum
from django.db.models.functions import Coalesce

from billing import access
from billing.archives.address import parse
from billing.models import Archive, ArchiveFile, ArchivePartition
from tenants.models import Tenant


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveProgress:
    """An archive, how far it is, and the line by which its files are read."""

    archive: Archive
    partitions: list[ArchivePartition]
    files: int
    rows: int
    bytes: int
    one_liner: str

    @property
    def lag(self) -> int:
        return sum(each.lag for each in self.partitions)


def with_progress(tenant: Tenant) -> list[ArchiveProgress]:
    """All of the tenant's, the earliest first."""
    archives = list(
        access.archives_of(tenant)
        .select_related("instance")
        .prefetch_related("partitions")
        .order_by("created_at", "id")
    )  # fmt: skip
    sums = {
        row["archive_id"]: row
        for row in ArchiveFile.objects.filter(archive__in=archives)
        .order_by()
        .values("archive_id")
        .annotate(files=Count("id"), all_rows=Coalesce(Sum("rows"), 0), all_bytes=Coalesce(Sum("bytes"), 0))
    }
    return [_progress(each, sums.get(each.pk, {})) for each in archives]


def _progress(archive: Archive, sums: Mapping[str, Any]) -> ArchiveProgress:
    return ArchiveProgress(
        archive=archive,
        partitions=sorted(archive.partitions.all(), key=lambda row: row.partition),
        files=sums.get("files", 0),
        rows=sums.get("all_rows", 0),
        bytes=sums.get("all_bytes", 0),
        one_liner=one_liner(archive),
    )


def one_liner(archive: Archive) -> str:
    """Reads all of an archive into a table of pyarrow. Keys come from AWS' usual variables."""
    found = parse(archive.url)
    folder = f"{found.path}/{archive.pk}/{archive.topic}".lstrip("/")
    place = folder
    if found.bucket:
        endpoint = f"&endpoint_override={found.endpoint.removeprefix('https://')}" if found.endpoint else ""
        place = f"s3://{found.bucket}/{folder}?region={found.region}{endpoint}"
    return f'import pyarrow.dataset as ds; table = ds.dataset("{place}", partitioning="hive").to_table()'
