"""Deletion of lake files without a row: of killed or repeated runs, and of merges that could not delete old files."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Final

import structlog

from billing.lake import files
from billing.lake.address import Lake
from billing.models import LakeFile
from billing.pipeline import sink

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo

log = structlog.get_logger(__name__)

# Files are written for days within the retention of `__usage`, and merged when a day is over.
DAYS_SWEPT: Final = 45
DAYS_AHEAD: Final = 1
# Runs and merges insert the row of a file within minutes after they wrote it.
STRAY_AFTER: Final = timedelta(hours=6)
DELETED_MAX: Final = 1_000
# Names that this product writes; other files are left alone.
_NAME: Final = re.compile(
    rf"(?:{files.MERGED_PREFIX})?[0-9a-f]{{{files.NAME_CHARS}}}\.parquet(?:\.[0-9a-f]{{8}}\.new)?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepResult:
    """Result of a sweep. `is_complete` is False if it ended at `DELETED_MAX`, or a cluster had a run in progress."""

    files: int
    bytes: int
    is_complete: bool


def sweep(lake: Lake, dsn: str, now: datetime, deleted_max: int = DELETED_MAX) -> SweepResult:
    """Deletes files without a row that are older than `STRAY_AFTER`, `deleted_max` at most.

    A cluster is swept under its pipeline lock, so that no run is between writing a file and inserting its row.

    Raises:
        OSError: the lake does not answer.
    """
    deleted, size, is_complete = 0, 0, True
    for cluster_id, folders in sorted(_folders(lake, now.astimezone(UTC).date()).items()):
        try:
            with sink.exclusive(dsn, cluster_id):
                for stray in _strays(lake, folders, now):
                    if deleted == deleted_max:
                        is_complete = False
                        break
                    files.delete(lake, stray.path.removeprefix(f"{lake.folder}/"))
                    deleted, size = deleted + 1, size + (stray.size or 0)
        except sink.PipelineBusy:
            is_complete = False
    if deleted:
        log.info("lake_strays_deleted", files=deleted, bytes=size)
    return SweepResult(files=deleted, bytes=size, is_complete=is_complete)


def _folders(lake: Lake, today: date) -> dict[str, list[str]]:
    """Returns the folders of each cluster, one for each day."""
    from pyarrow.fs import FileSelector, FileType

    result = defaultdict(list)
    for number in range(-DAYS_AHEAD, DAYS_SWEPT):
        day = lake.path(f"events/{today - timedelta(days=number):%Y-%m-%d}")
        for cluster in lake.files.get_file_info(FileSelector(day, allow_not_found=True)):
            if cluster.type is FileType.Directory:
                result[cluster.base_name].append(cluster.path)
    return result


def _strays(lake: Lake, folders: Sequence[str], now: datetime) -> Iterator[FileInfo]:
    from pyarrow.fs import FileSelector

    for folder in folders:
        old_files = {
            info.path.removeprefix(f"{lake.folder}/"): info
            for info in lake.files.get_file_info(FileSelector(folder, allow_not_found=True))
            if info.is_file and _NAME.fullmatch(info.base_name) and _is_old(info, now)
        }
        # Queried after the folder was listed, because rows may be inserted while it is listed.
        known_paths = set(LakeFile.objects.filter(path__in=list(old_files)).values_list("path", flat=True))
        for path in sorted(old_files.keys() - known_paths):
            yield old_files[path]


def _is_old(info: FileInfo, now: datetime) -> bool:
    return info.mtime is not None and now - info.mtime > STRAY_AFTER
