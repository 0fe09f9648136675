"""Limit of the number of names per minute: tenants choose topics, users and client ids, but not the size of the tables.
Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from billing.pipeline import schema
from billing.pipeline.schema import MINUTE_NAMES
from brokers.contract.usage import COUNTED, OTHER

if TYPE_CHECKING:
    import pyarrow as pa

# Limit per instance, minute and direction in one run; the remainder is counted under OTHER.
NAMED_PER_MINUTE_MAX: Final = 1_000
# Maximum number in the tables.
SUM_MAX: Final = 2**62
_NAMES: Final = ("topic", "user", "client_id")
_OF_MINUTE: Final = [MINUTE_NAMES.index(name) for name in MINUTE_NAMES if name not in (*_NAMES, *COUNTED)]
_BYTES: Final = MINUTE_NAMES.index("bytes")

Row = tuple[Any, ...]


def with_bounded_names(minutes: pa.Table, named_max: int = NAMED_PER_MINUTE_MAX) -> pa.Table:
    """Returns columns of `MINUTE_NAMES` in which only the heaviest rows keep their names; sums are preserved."""
    import pyarrow as pa
    import pyarrow.compute as pc

    of_minute = [MINUTE_NAMES[index] for index in _OF_MINUTE]
    crowds = minutes.group_by(of_minute, use_threads=False).aggregate([("bytes", "count")])
    crowds = crowds.filter(pc.greater(crowds.column("bytes_count"), named_max))
    if not crowds.num_rows:
        return minutes
    crowded = minutes.join(crowds, of_minute, join_type="left semi").select(list(MINUTE_NAMES))
    others = minutes.join(crowds, of_minute, join_type="left anti").select(list(MINUTE_NAMES))
    rows = with_others(zip(*(column.to_pylist() for column in crowded.columns), strict=True), named_max)
    return pa.concat_tables([others, schema.table(schema.columns(MINUTE_NAMES), rows)])


def with_others(rows: Iterable[Row], named_max: int = NAMED_PER_MINUTE_MAX) -> list[Row]:
    """Returns rows of `MINUTE_NAMES` in which only the heaviest keep their names; sums are preserved."""
    of_minute: dict[Row, list[Row]] = defaultdict(list)
    for row in rows:
        of_minute[tuple(row[index] for index in _OF_MINUTE)].append(row)
    result: list[Row] = []
    for minute_rows in of_minute.values():
        if len(minute_rows) <= named_max:
            result += minute_rows
            continue
        heaviest_first = sorted(minute_rows, key=lambda row: (-row[_BYTES], row))
        result += _sum_by_name([*heaviest_first[:named_max], *map(_unnamed, heaviest_first[named_max:])])
    return result


def _unnamed(row: Row) -> Row:
    return tuple(OTHER if name in _NAMES else value for name, value in zip(MINUTE_NAMES, row, strict=True))


def _sum_by_name(rows: Iterable[Row]) -> list[Row]:
    """Sums rows with equal names: a broker also counts under OTHER."""
    sums: dict[Row, list[int]] = {}
    for row in rows:
        total = sums.setdefault(row[: -len(COUNTED)], [0] * len(COUNTED))
        for number, count in enumerate(row[-len(COUNTED) :]):
            total[number] = min(total[number] + count, SUM_MAX)
    return [(*key, *total) for key, total in sums.items()]
