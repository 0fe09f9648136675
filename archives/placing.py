"""Folders of an archive: one for each hour, and shared ones for the records of hours that have few. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from typing import Final, NamedTuple

from archives import limits

MS_PER_HOUR: Final = 3_600_000
HOURS_PER_DAY: Final = 24
# First hour of the year 10000, which cannot be a folder name.
HOURS_END: Final = int(datetime(9999, 12, 31, 23, tzinfo=UTC).timestamp()) // 3_600 + 1
# Placeholders for date and hour. They have the types that readers infer for the others: pyarrow cannot read a partition
# column with only nulls, and Spark reads the column as strings if one value is a word.
NO_DATE: Final = "0001-01-01"
NO_HOUR: Final = "-1"
PERCENT: Final = 100


class Folder(NamedTuple):
    """Folder of an hour; day and hour are counted since 1970. Without `hour` it is for records of several hours of the
    day; without both, for records of several days or without a usable timestamp.
    """

    day: int | None = None
    hour: int | None = None

    @property
    def path(self) -> str:
        date = NO_DATE if self.day is None else f"{datetime.fromtimestamp(self.day * 86_400, UTC):%Y-%m-%d}"
        hour = NO_HOUR if self.hour is None else f"{self.hour % HOURS_PER_DAY:02}"
        return f"date={date}/hour={hour}"


UNDATED: Final = Folder()


def hour_of(timestamp_ms: int) -> int | None:
    """Returns the number of the hour since 1970; None if it has no folder: no timestamp, before 1970, after 9999."""
    hour = timestamp_ms // MS_PER_HOUR
    return hour if 0 <= hour < HOURS_END else None


def placed(sizes: Mapping[int | None, int], open_folders: Collection[Folder]) -> dict[int | None, Folder]:
    """Returns the folder of each hour. `sizes` has the bytes to be written now by hour; None stands for undated
    records.

    If a task has few hours, each has its own files. Otherwise hours with many records or with a file in `open_folders`
    have their own, and the other hours of a day share a file, as do the remaining days.
    """
    total = sum(sizes.values())
    hours = {hour: size for hour, size in sizes.items() if hour is not None}
    own_folders = _own_folders(hours, total, open_folders, lambda hour: Folder(hour // HOURS_PER_DAY, hour))
    days: dict[int, int] = defaultdict(int)
    for hour, size in hours.items():
        if hour not in own_folders:
            days[hour // HOURS_PER_DAY] += size
    of_days = _own_folders(days, total, open_folders, Folder)
    return {
        hour: UNDATED if hour is None else own_folders.get(hour) or of_days.get(hour // HOURS_PER_DAY, UNDATED)
        for hour in sizes
    }


def _own_folders(
    sizes: Mapping[int, int], total: int, open_folders: Collection[Folder], folder: Callable[[int], Folder]
) -> dict[int, Folder]:
    """Returns hours or days with a folder of their own; `total` is the size of everything written at once."""
    folders = {number: folder(number) for number in sizes}
    if len({*folders.values(), *open_folders}) <= limits.OPEN_FILES_MAX:
        return folders
    return {
        number: folders[number]
        for number, size in sizes.items()
        if folders[number] in open_folders or size >= limits.OWN_FILE_BYTES_MIN or size * PERCENT >= total
    }
