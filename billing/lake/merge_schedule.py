"""Merges the files of past days of the lake."""

from __future__ import annotations

from datetime import date

import structlog
from django.db import transaction
from django.db.models import Count

from billing.lake import files, merging
from billing.lake.address import Lake
from billing.lake.replay import LakeBroken
from billing.models import LakeFile

log = structlog.get_logger(__name__)

# Maximum number of files of a cluster on one day before they are merged.
FILES_PER_DAY_MAX = 60


def merge_days(lake: Lake, today: date) -> int:
    """Merges files of past days and of days with too many files; returns the decrease in the number of files.

    Raises:
        LakeBroken: files are damaged. Nothing of their days is merged; all other days are.
    """
    removed = 0
    broken: list[LakeBroken] = []
    groups = (
        LakeFile.objects.values("day", "cluster_id").annotate(count=Count("id")).filter(count__gt=1).order_by("day")
    )
    for group in groups:
        if group["day"] < today or group["count"] > FILES_PER_DAY_MAX:
            try:
                removed += _merge(lake, group["cluster_id"], group["day"])
            except LakeBroken as failure:
                broken.append(failure)
    if broken:
        others = f" (and {len(broken) - 1} other days)" if len(broken) > 1 else ""
        raise LakeBroken(f"{broken[0]}{others}") from broken[0]
    return removed


def _merge(lake: Lake, cluster_id: str, day: date) -> int:
    source_files = list(LakeFile.objects.filter(cluster_id=cluster_id, day=day).order_by("id"))
    try:
        written = merging.merge(lake, cluster_id, day, source_files)
    except (OSError, ValueError, merging.FileMismatch) as error:
        raise LakeBroken(f"{day} of {cluster_id}: {error}") from error
    expected = sum(file.rows for file in source_files), sum(file.added_bytes for file in source_files)
    if (written.rows, written.added_bytes) != expected:
        raise LakeBroken(f"{written.path}: merged to {written.rows} rows, {written.added_bytes} bytes; not {expected}")
    with transaction.atomic():
        deleted, _ = LakeFile.objects.filter(pk__in=[file.pk for file in source_files]).delete()
        if deleted != len(source_files):
            transaction.set_rollback(True)
            return 0  # another process merged them
        LakeFile.objects.create(
            path=written.path, cluster_id=cluster_id, day=day, rows=written.rows, added_bytes=written.added_bytes,
            schema_version=files.SCHEMA_VERSION,
        )  # fmt: skip
    try:
        for file in source_files:
            files.delete(lake, file.path)
    except OSError as failure:  # without a row they are strays, which are deleted later
        log.warning("lake_files_not_deleted", day=str(day), cluster=cluster_id, reason=str(failure))
    return len(source_files) - 1
