"""Choice of an archive's folder for each hour of records; hours with few records share a folder. Pure."""

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
    """Folder for records of one hour; `day` and `hour` are counted since 1970.

    A folder without `hour` is for records of several hours of the day. A folder without both is for records of several
    days or without a usable timestamp.
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


def choose_folders(
    bytes_by_hour: Mapping[int | None, int], open_folders: Collection[Folder]
) -> dict[int | None, Folder]:
    """Returns the folder of each hour. The hour None stands for undated records.

    If there are few hours, each has its own folder. Otherwise only hours with many bytes or with a folder in
    `open_folders` have their own; the other hours of a day share a folder, and days with few bytes share one, too.
    """
    total_bytes = sum(bytes_by_hour.values())
    dated_bytes_by_hour = {hour: size_bytes for hour, size_bytes in bytes_by_hour.items() if hour is not None}
    folder_by_hour = _choose_own_folders(
        dated_bytes_by_hour, total_bytes, open_folders, lambda hour: Folder(hour // HOURS_PER_DAY, hour)
    )
    bytes_by_day: dict[int, int] = defaultdict(int)
    for hour, size_bytes in dated_bytes_by_hour.items():
        if hour not in folder_by_hour:
            bytes_by_day[hour // HOURS_PER_DAY] += size_bytes
    folder_by_day = _choose_own_folders(bytes_by_day, total_bytes, open_folders, Folder)
    return {
        hour: UNDATED if hour is None else folder_by_hour.get(hour) or folder_by_day.get(hour // HOURS_PER_DAY, UNDATED)
        for hour in bytes_by_hour
    }


def _choose_own_folders(
    bytes_by_number: Mapping[int, int],
    total_bytes: int,
    open_folders: Collection[Folder],
    make_folder: Callable[[int], Folder],
) -> dict[int, Folder]:
    """Returns the hours or days that get their own folder, with that folder; `total_bytes` are all bytes to write."""
    folders = {number: make_folder(number) for number in bytes_by_number}
    if len({*folders.values(), *open_folders}) <= limits.OPEN_FILES_MAX:
        return folders
    return {
        number: folders[number]
        for number, size_bytes in bytes_by_number.items()
        if folders[number] in open_folders
        or size_bytes >= limits.OWN_FILE_BYTES_MIN
        or size_bytes * PERCENT >= total_bytes
    }
