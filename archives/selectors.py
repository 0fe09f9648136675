"""Reads of archives for their pages. Partitions are summed by the database, since an archive may have a thousand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db.models import Case, Count, F, Q, QuerySet, Sum, When
from django.db.models.functions import Coalesce, Greatest
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from archives import access
from archives.address import parse
from archives.database_address import parse_database
from archives.models import Archive, ArchiveFile, ArchivePartition
from tenants.models import Tenant


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveProgress:
    """Archive with sums over its partitions and files.

    `troubled` counts partitions with an error, `lag` offsets that are not archived yet, and `ends` all offsets of the
    log. `skipped` counts unreadable records, `missed` offsets that were deleted before, and `unfit` values archived
    without columns. `rows` and `bytes` are those of files; in a database, `rows` are those of the table.
    """

    archive: Archive
    partitions: int = 0
    troubled: int = 0
    lag: int = 0
    ends: int = 0
    skipped: int = 0
    missed: int = 0
    unfit: int = 0
    files: int = 0
    rows: int = 0
    bytes: int = 0

    @property
    def percent(self) -> float:
        """Percentage of the log, as last seen, that is archived."""
        return 100.0 * (self.ends - self.lag) / self.ends if self.ends else 100.0


def list_with_progress(tenant: Tenant) -> list[ArchiveProgress]:
    """Returns all archives of the tenant with their progress, oldest first."""
    return _sum_progress(access.archives_of(tenant).select_related("instance").order_by("created_at", "id"))


def progress_of(archive: Archive) -> ArchiveProgress:
    return _sum_progress(Archive.objects.filter(pk=archive.pk).select_related("instance"))[0]


def _sum_progress(archives: QuerySet[Archive]) -> list[ArchiveProgress]:
    rows = list(archives)
    sums_by_archive: dict[str, dict[str, Any]] = {row.pk: {} for row in rows}
    files_by_archive = ArchiveFile.objects.filter(archive__in=rows).order_by().values("archive_id")
    for file_sums in files_by_archive.annotate(
        files=Count("id"), all_rows=Coalesce(Sum("rows"), 0), all_bytes=Coalesce(Sum("bytes"), 0)
    ):  # fmt: skip
        sums_by_archive[file_sums["archive_id"]] |= {
            "files": file_sums["files"],
            "rows": file_sums["all_rows"],
            "bytes": file_sums["all_bytes"],
        }
    partitions_by_archive = ArchivePartition.objects.filter(archive__in=rows).order_by().values("archive_id")
    for row in partitions_by_archive.annotate(
        partitions=Count("id"),
        troubled=Count("id", filter=~Q(error="")),
        behind=Sum(
            Case(
                When(is_of_deleted=True, then=F("end_offset")), default=Greatest(F("end_offset") - F("next_offset"), 0)
            )
        ),
        ends=Sum("end_offset"),
        skipped=Sum("skipped_records"),
        missed=Sum("missed_offsets"),
        loaded=Sum("loaded_rows"),
        unfit=Sum("unfit_values"),
    ):
        sums_by_archive[row["archive_id"]] |= {
            "partitions": row["partitions"], "troubled": row["troubled"], "lag": row["behind"], "ends": row["ends"],
            "skipped": row["skipped"], "missed": row["missed"], "unfit": row["unfit"],
        }  # fmt: skip
        if row["loaded"]:
            sums_by_archive[row["archive_id"]]["rows"] = row["loaded"]
    return [ArchiveProgress(archive=row, **sums_by_archive[row.pk]) for row in rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingExample:
    """Code that reads an archive, with the id of its element in the page."""

    id: str
    title: str | Promise
    code: str


def reading_examples(archive: Archive) -> list[ReadingExample]:
    """Returns code that reads the archive, one example for each tool."""
    if archive.is_in_database:
        return [ReadingExample(id="code-sql", title=_("With SQL:"), code=sql_lines(archive))]
    pyarrow_title = (
        _("With pyarrow:") if archive.is_on_our_disks
        else _("With pyarrow; keys come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY:")
    )  # fmt: skip
    return [
        ReadingExample(id="code-pyarrow", title=pyarrow_title, code=pyarrow_line(archive)),
        ReadingExample(id="code-spark", title=_("With Spark:"), code=spark_line(archive)),
    ]


def sql_lines(archive: Archive) -> str:
    """Returns SQL that reads the newest records of the table."""
    parsed = parse_database(archive.url)
    return (
        "SELECT partition, \"offset\", timestamp, encode(key, 'escape') AS key, encode(value, 'escape') AS value"
        f'\nFROM "{parsed.schema}"."{parsed.table}" ORDER BY timestamp DESC NULLS LAST LIMIT 20;'
    )


def pyarrow_line(archive: Archive) -> str:
    """Returns code that reads the archive into a pyarrow table. Keys come from AWS's environment variables."""
    parsed = parse(archive.url)
    location = _folder(archive)
    if parsed.bucket:
        endpoint = f"&endpoint_override={parsed.endpoint.removeprefix('https://')}" if parsed.endpoint else ""
        location = f"s3://{parsed.bucket}/{location}?region={parsed.region}{endpoint}"
    return f'import pyarrow.dataset as ds; table = ds.dataset("{location}", partitioning="hive").to_table()'


def spark_line(archive: Archive) -> str:
    """Returns code that reads the archive in a Spark session, which addresses buckets by its Hadoop file system."""
    parsed = parse(archive.url)
    location = f"s3a://{parsed.bucket}/{_folder(archive)}" if parsed.bucket else _folder(archive)
    return f'frame = spark.read.parquet("{location}")'


def _folder(archive: Archive) -> str:
    return f"{parse(archive.url).path}/{archive.pk}/{archive.topic}".lstrip("/")
