"""Folders of an archive: which records lie in a folder of their hour, and which are few and lie with others. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from typing import Final, NamedTuple

from billing.archives import limits

MS_PER_HOUR: Final = 3_600_000
HOURS_PER_DAY: Final = 24
# The first hour of the year 10000, which no folder can be named after.
HOURS_END: Final = int(datetime(9999, 12, 31, 23, tzinfo=UTC).timestamp()) // 3_600 + 1
# In place of a date and an hour. They are of the types that readers infer of the others: pyarrow cannot read where all
# are null, and where one is a word, Spark takes them all for words.
NO_DATE: Final = "0001-01-01"
NO_HOUR: Final = "-1"
PERCENT: Final = 100


class Folder(NamedTuple):
    """A day and an hour since 1970; without an hour, records of several hours of the day, and without both, of several
    days, or of none.
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
    """Number of its hour since 1970; None where there is no such folder: no timestamp, before 1970, after 9999."""
    hour = timestamp_ms // MS_PER_HOUR
    return hour if 0 <= hour < HOURS_END else None


def placed(sizes: Mapping[int | None, int], opened: Collection[Folder]) -> dict[int | None, Folder]:
    """The folder of each hour, whose records have `sizes` together and are to be written now; None: of no hour.

    As long as a task has few hours, each has its own files. Of many, those that are large or already have a file
    (`opened`) have their own. The others of a day share a file, and so do the others of many days.
    """
    total = sum(sizes.values())
    hours = {hour: size for hour, size in sizes.items() if hour is not None}
    own = _own(hours, total, opened, lambda hour: Folder(hour // HOURS_PER_DAY, hour))
    days: dict[int, int] = defaultdict(int)
    for hour, size in hours.items():
        if hour not in own:
            days[hour // HOURS_PER_DAY] += size
    of_days = _own(days, total, opened, Folder)
    return {
        hour: UNDATED if hour is None else own.get(hour) or of_days.get(hour // HOURS_PER_DAY, UNDATED)
        for hour in sizes
    }


def _own(
    sizes: Mapping[int, int], total: int, opened: Collection[Folder], folder: Callable[[int], Folder]
) -> dict[int, Folder]:
    """Hours, or days, that have a folder of their own; `total` is the size of all that is written at once."""
    wanted = {number: folder(number) for number in sizes}
    if len({*wanted.values(), *opened}) <= limits.OPEN_FILES_MAX:
        return wanted
    return {
        number: wanted[number]
        for number, size in sizes.items()
        if wanted[number] in opened or size >= limits.OWN_FILE_BYTES_MIN or size * PERCENT >= total
    }
