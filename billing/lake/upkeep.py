"""Merges the files of past days of the lake."""

from __future__ import annotations

from datetime import date

from django.db import transaction
from django.db.models import Count

from billing.lake import files, merging
from billing.lake.address import LakePlace
from billing.lake.replay import LakeBroken
from billing.models import LakeFile

# Maximum number of files of a cluster on one day before they are merged.
FILES_PER_DAY_MAX = 60


def merge_days(place: LakePlace, today: date) -> int:
    """Merges files of past days and of days with too many files; returns by how many files their number decreased.

    Raises:
        LakeBroken: a file is damaged; nothing of its day is merged.
    """
    fewer = 0
    many = LakeFile.objects.values("day", "cluster_id").annotate(count=Count("id")).filter(count__gt=1).order_by("day")
    for group in many:
        if group["day"] < today or group["count"] > FILES_PER_DAY_MAX:
            fewer += _merge(place, group["cluster_id"], group["day"])
    return fewer


def _merge(place: LakePlace, cluster_id: str, day: date) -> int:
    old = list(LakeFile.objects.filter(cluster_id=cluster_id, day=day).order_by("id"))
    try:
        written = merging.merge(place, cluster_id, day, old)
    except (OSError, ValueError, merging.Differs) as trouble:
        raise LakeBroken(f"{day} of {cluster_id}: {trouble}") from trouble
    expected = sum(file.rows for file in old), sum(file.added_bytes for file in old)
    if (written.rows, written.added_bytes) != expected:
        raise LakeBroken(f"{written.path}: merged to {written.rows} rows, {written.added_bytes} bytes; not {expected}")
    with transaction.atomic():
        gone, _ = LakeFile.objects.filter(pk__in=[file.pk for file in old]).delete()
        if gone != len(old):
            transaction.set_rollback(True)
            return 0  # another process merged them
        LakeFile.objects.create(
            path=written.path, cluster_id=cluster_id, day=day, rows=written.rows, added_bytes=written.added_bytes,
            schema_version=files.SCHEMA_VERSION,
        )  # fmt: skip
    for file in old:
        files.delete(place, file.path)
    return len(old) - 1
