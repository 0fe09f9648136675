"""Files of the lake: written under deterministic names, and merged when a day is over."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

from billing.lake.address import Lake
from brokers.contract.usage import COUNTED, COUNTER_KEY

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA_VERSION = 1
MS_PER_DAY = 86_400_000
EPOCH = date(1970, 1, 1)
ADDED_COLUMNS = tuple(f"added_{name}" for name in COUNTED)
# Columns of `billing.pipeline.differences.increments`.
COLUMNS = (*COUNTER_KEY, "sequence", "at_ms", *COUNTED, *ADDED_COLUMNS)
NAME_CHARS = 24
MERGED_PREFIX = "merged-"


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenLakeFile:
    """Completed file with the values of the `LakeFile` row that makes it part of the lake."""

    path: str
    cluster_id: str
    day: date
    rows: int
    added_bytes: int


def write(
    lake: Lake, cluster_id: str, ranges: Mapping[int, tuple[int, int]], reports: pa.Table, part: str = ""
) -> list[WrittenLakeFile]:
    """Writes the reports of these offset ranges, one file per UTC day; `part` names a part of a range's reports.

    Names depend only on cluster, ranges and part, so that files of a killed run are overwritten or have no row.
    """
    name = _name([cluster_id, sorted(ranges.items()), *([part] if part else [])])
    return [
        _write(lake, f"events/{day:%Y-%m-%d}/{cluster_id}/{name}.parquet", cluster_id, day, table)
        for day, table in _by_day(reports)
    ]


def merged_path(cluster_id: str, day: date, paths: Sequence[str]) -> str:
    """Returns the path of the file that these files of a cluster and day are merged to (`billing.lake.merging`)."""
    return f"events/{day:%Y-%m-%d}/{cluster_id}/{MERGED_PREFIX}{_name(sorted(paths))}.parquet"


def is_merged(path: str) -> bool:
    """True for files whose rows are sorted by counter and sequence."""
    return path.rpartition("/")[2].startswith(MERGED_PREFIX)


def read(lake: Lake, path: str) -> pa.Table:
    """Reads a whole file. Raises `OSError` or `ValueError` if it cannot be read."""
    from pyarrow import parquet

    # Opened as a stream: pyarrow would take a path for a data set and its folder's name for a column.
    with lake.files.open_input_file(lake.path(path)) as stream:
        return parquet.read_table(stream)


def delete(lake: Lake, path: str) -> None:
    """Deletes a file; a missing file is not an error."""
    try:
        lake.files.delete_file(lake.path(path))
    except FileNotFoundError:
        return


def _write(lake: Lake, path: str, cluster_id: str, day: date, table: pa.Table) -> WrittenLakeFile:
    from pyarrow import parquet

    target = lake.path(path)
    lake.files.create_dir(target.rpartition("/")[0], recursive=True)
    # A task that Spark runs twice must not write to the same file.
    temporary = f"{target}.{secrets.token_hex(4)}.new"
    with lake.files.open_output_stream(temporary) as stream:
        # Without pyarrow's own schema every reader has names as strings, also where they were dictionaries.
        parquet.write_table(table, stream, compression="zstd", store_schema=False)
    lake.files.move(temporary, target)
    return WrittenLakeFile(
        path=path, cluster_id=cluster_id, day=day, rows=table.num_rows, added_bytes=added_bytes(table)
    )


def added_bytes(table: pa.Table) -> int:
    """Returns the sum of the increments in bytes, which a file's row stores for verification."""
    import pyarrow.compute as pc

    return int(pc.sum(table.column("added_bytes")).as_py() or 0)


def _by_day(reports: pa.Table) -> list[tuple[date, pa.Table]]:
    """Splits reports by the day of their minute; a report at midnight belongs to the day that ended."""
    import pyarrow.compute as pc

    numbers = pc.divide(pc.subtract(reports.column("at_ms"), 1), MS_PER_DAY)
    days = pc.unique(numbers).to_pylist()
    if len(days) == 1:
        return [(EPOCH + timedelta(days=days[0]), reports)]
    return [(EPOCH + timedelta(days=number), reports.filter(pc.equal(numbers, number))) for number in sorted(days)]


def _name(identity: Any) -> str:
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:NAME_CHARS]
