"""Hours of usage, worked out again from the files of the lake alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from django.db.models import QuerySet

from billing.lake.address import LakePlace
from billing.lake.files import added_bytes, read
from billing.models import LakeFile
from brokers.contract.usage import COUNTER_KEY

if TYPE_CHECKING:
    import pyarrow as pa

MS_PER_HOUR = 3_600_000


class LakeBroken(Exception):
    """A file that counts is not what was written: it is not there, has other rows, or its counters do not follow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeHour:
    """Bytes of an instance in one UTC hour, in one direction."""

    instance_id: str
    hour: datetime
    direction: str
    bytes: int


def hours(place: LakePlace, instance_ids: Iterable[str] | None, start: datetime, end: datetime) -> Iterator[LakeHour]:
    """Of these instances (of all where None) in `[start, end)`, in any order; hours without bytes are left out. One
    file is in memory at a time, and the last report of each counter.

    Raises:
        LakeBroken: see there.
    """
    wanted = None if instance_ids is None else sorted(set(instance_ids))
    files = list(files_of(start, end))
    try:
        sums = _sums(place, files, wanted)
    except LakeBroken:
        merged = list(files_of(start, end))
        if merged == files:
            raise
        # What was read was merged meanwhile, and is in other files.
        sums = _sums(place, merged, wanted)
    for (instance_id, hour_number, direction), count in sums.items():
        hour = datetime.fromtimestamp(hour_number * MS_PER_HOUR / 1000, UTC)
        if count and start <= hour < end:
            yield LakeHour(instance_id=instance_id, hour=hour, direction=direction, bytes=count)


def files_of(start: datetime, end: datetime) -> QuerySet[LakeFile]:
    """Of all days that the span touches, in the order in which they are to be read."""
    found = LakeFile.objects.filter(day__gte=start.date(), day__lte=end.date())
    return found.order_by("day", "cluster_id", "id")


def _sums(place: LakePlace, files: Sequence[LakeFile], wanted: list[str] | None) -> dict[tuple[str, int, str], int]:
    """Bytes by instance, number of the hour and direction."""
    import pyarrow.compute as pc

    last: dict[tuple[Any, ...], tuple[int, int]] = {}
    sums: dict[tuple[str, int, str], int] = defaultdict(int)
    for file in files:
        table = checked(place, file)
        if wanted is not None:
            table = table.filter(pc.is_in(table.column("instance_id"), value_set=_strings(wanted)))
        for row in table.sort_by([("sequence", "ascending")]).to_pylist():
            _follow(last, row, file.path)
            sums[row["instance_id"], (row["at_ms"] - 1) // MS_PER_HOUR, row["direction"]] += row["added_bytes"]
    return sums


def checked(place: LakePlace, file: LakeFile) -> pa.Table:
    """Raises `LakeBroken`."""
    try:
        table = read(place, file.path)
    except (OSError, ValueError) as trouble:
        raise LakeBroken(f"{file.path}: {type(trouble).__name__}") from trouble
    added = added_bytes(table)
    if (table.num_rows, added) != (file.rows, file.added_bytes):
        found = f"{table.num_rows} rows that add {added} bytes"
        raise LakeBroken(f"{file.path}: {found}, but {file.rows} and {file.added_bytes} were written")
    return table


def _follow(last: dict[tuple[Any, ...], tuple[int, int]], row: dict[str, Any], path: str) -> None:
    """What a report added is what its counter grew by since the one before, where that one is in the lake."""
    key = tuple(row[name] for name in COUNTER_KEY)
    before = last.get(key)
    if before is not None:
        if row["sequence"] <= before[0]:
            return  # of a file that was merged while another one was written
        grown = max(0, row["bytes"] - before[1])
        if grown != row["added_bytes"]:
            raise LakeBroken(f"{path}: a counter grew by {grown} bytes and {row['added_bytes']} were added")
    last[key] = row["sequence"], row["bytes"]


def _strings(values: list[str]) -> pa.Array:
    import pyarrow as pa

    return pa.array(values, type=pa.string())
