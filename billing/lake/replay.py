"""Replay of usage hours from the files of the lake alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from django.db.models import QuerySet

from billing.lake.address import Lake
from billing.lake.counters import CounterBroken, Counters
from billing.lake.files import added_bytes, is_merged, read
from billing.lake.merging import FileMismatch, batches_of, rows_of_groups
from billing.models import LakeFile

if TYPE_CHECKING:
    import pyarrow as pa

MS_PER_HOUR = 3_600_000


class LakeBroken(Exception):
    """A file does not match its row: it is missing, has other rows, or its counters are inconsistent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeHour:
    """Bytes of an instance in one UTC hour in one direction."""

    instance_id: str
    hour: datetime
    direction: str
    bytes: int


def hours(lake: Lake, instance_ids: Iterable[str] | None, start: datetime, end: datetime) -> Iterator[LakeHour]:
    """Yields the hours with bytes of these instances (None: of all) in `[start, end)`, in any order.

    Memory is bounded by one file and the last report of each counter.

    Raises:
        LakeBroken: a file is damaged.
    """
    for instance_id, hour, direction, count in sums_by_step(lake, instance_ids, start, end, MS_PER_HOUR):
        yield LakeHour(instance_id=instance_id, hour=hour, direction=direction, bytes=count)


def sums_by_step(
    lake: Lake,
    instance_ids: Iterable[str] | None,
    start: datetime,
    end: datetime,
    step_ms: int,
    progress: Callable[[int], object] = lambda _rows: None,
) -> Iterator[tuple[str, datetime, str, int]]:
    """Yields (instance id, start of the step, direction, bytes) like `hours`, in steps of `step_ms`.

    `progress` is called with the number of rows read so far.

    Raises:
        LakeBroken: a file is damaged.
    """
    sorted_ids = None if instance_ids is None else sorted(set(instance_ids))
    files = list(files_of(start, end))
    try:
        sums = sums_of(lake, files, sorted_ids, step_ms, progress)
    except LakeBroken:
        merged = list(files_of(start, end))
        if merged == files:
            raise
        # The files were merged in the meantime.
        sums = sums_of(lake, merged, sorted_ids, step_ms, progress)
    for (instance_id, number, direction), count in sums.items():
        instant = datetime.fromtimestamp(number * step_ms / 1000, UTC)
        if count and start <= instant < end:
            yield instance_id, instant, direction, count


def files_of(start: datetime, end: datetime) -> QuerySet[LakeFile]:
    """Returns the files of all days that `[start, end)` touches, in reading order."""
    files = LakeFile.objects.filter(day__gte=start.date(), day__lte=(end - timedelta.resolution).date())
    return files.order_by("day", "cluster_id", "id")


def sums_of(
    lake: Lake,
    files: Sequence[LakeFile],
    instance_ids: list[str] | None,
    step_ms: int,
    progress: Callable[[int], object],
) -> dict[tuple[str, int, str], int]:
    """Returns the bytes by instance id, number of the step since 1970, and direction. Raises `LakeBroken`."""
    import pyarrow.compute as pc

    counters, rows = Counters(), 0
    sums: dict[tuple[str, int, str], int] = defaultdict(int)
    for file in files:
        for table in tables_of(lake, file, instance_ids):
            rows += table.num_rows
            progress(rows)
            if instance_ids is not None:
                table = table.filter(pc.is_in(table.column("instance_id"), value_set=_strings(instance_ids)))
            try:
                counters.verify(table)
            except CounterBroken as broken:
                raise LakeBroken(f"{file.path}: {broken}") from None
            step = pc.divide(pc.subtract(table.column("at_ms"), 1), step_ms)
            by_step = table.append_column("step", step).group_by(["instance_id", "step", "direction"])
            for row in by_step.aggregate([("added_bytes", "sum")]).to_pylist():
                sums[row["instance_id"], row["step"], row["direction"]] += row["added_bytes_sum"]
    return sums


def tables_of(lake: Lake, file: LakeFile, instance_ids: Sequence[str] | None) -> Iterator[pa.Table]:
    """Yields the reports of a file: a merged file in batches, without row groups that have none of the instances.

    Files that are read completely are compared with their row.

    Raises:
        LakeBroken: the file is damaged.
    """
    if not is_merged(file.path):
        yield read_verified(lake, file)
        return
    rows = added = 0
    try:
        for table in batches_of(lake, file, instance_ids=instance_ids):
            rows, added = rows + table.num_rows, added + added_bytes(table)
            yield table
    except FileMismatch as mismatch:
        raise LakeBroken(str(mismatch)) from None
    except (OSError, ValueError) as error:
        raise LakeBroken(f"{file.path}: {type(error).__name__}") from error
    if instance_ids is None and (rows, added) != (file.rows, file.added_bytes):
        detail = f"{rows} rows that add {added} bytes"
        raise LakeBroken(f"{file.path}: {detail}, but {file.rows} and {file.added_bytes} were written")


def rows_to_read(lake: Lake, instance_ids: Iterable[str], start: datetime, end: datetime) -> int:
    """Returns the number of rows that a replay of these instances reads."""
    sorted_ids = sorted(set(instance_ids))
    rows = 0
    for file in files_of(start, end):
        try:
            rows += rows_of_groups(lake, file, sorted_ids) if is_merged(file.path) else file.rows
        except (OSError, ValueError):
            rows += file.rows  # the replay reports the error
    return rows


def read_verified(lake: Lake, file: LakeFile) -> pa.Table:
    """Reads a file and compares it with its row. Raises `LakeBroken`."""
    try:
        table = read(lake, file.path)
    except (OSError, ValueError) as error:
        raise LakeBroken(f"{file.path}: {type(error).__name__}") from error
    added = added_bytes(table)
    if (table.num_rows, added) != (file.rows, file.added_bytes):
        detail = f"{table.num_rows} rows that add {added} bytes"
        raise LakeBroken(f"{file.path}: {detail}, but {file.rows} and {file.added_bytes} were written")
    return table


def _strings(values: list[str]) -> pa.Array:
    import pyarrow as pa

    return pa.array(values, type=pa.string())
