"""Columns of the pipeline, derived from the fields of `UsageEvent`, for Spark, Arrow and the sink."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, get_type_hints

from brokers.contract.usage import COUNTED, COUNTER_KEY, FIELD_NAMES, OF_INCARNATION, UsageEvent

if TYPE_CHECKING:
    import pyarrow as pa


class Kind(NamedTuple):
    """Names of a value type; `arrow` names a function of pyarrow."""

    spark: str
    arrow: str


INT32 = Kind("int", "int32")
INT64 = Kind("long", "int64")
STRING = Kind("string", "string")
# Kafka's broker and partition ids have 32 bits, its counts 64.
_OF_32_BITS = frozenset({"partition", "broker_id"})
_HINTS = get_type_hints(UsageEvent)


@dataclass(frozen=True, slots=True)
class Column:
    """Column with one name for Spark, Arrow and the sink."""

    name: str
    kind: Kind


def _column(name: str) -> Column:
    if _HINTS.get(name, int) is not int:
        return Column(name, STRING)
    return Column(name, INT32 if name in _OF_32_BITS else INT64)


def columns(names: Iterable[str]) -> tuple[Column, ...]:
    """Returns columns of these names; names that are no field of an event are integers."""
    return tuple(_column(name) for name in names)


# Reasons why a report is omitted, or counted at another time than the one that it states (CLOCK).
MALFORMED, NEWER_VERSION, EPOCH_REUSED, CLOCK = "malformed", "newer_version", "epoch_reused", "clock"
# Record as it was read: position, content and problem.
EVENT = (*columns(("partition", "offset", *FIELD_NAMES)), Column("problem", STRING), Column("detail", STRING))
# Stored columns of a counter: its key and its last report.
COUNTER_NAMES = (*COUNTER_KEY, "sequence", *COUNTED)
COUNTER = columns(COUNTER_NAMES)
# Key of sums: the key of a counter without the process that counted, and the minute.
MINUTE_KEY = ("instance_id", "minute_ms", *(n for n in COUNTER_KEY if n not in ("instance_id", *OF_INCARNATION)))
MINUTE_NAMES = (*MINUTE_KEY, *COUNTED)


def spark_ddl(schema: Iterable[Column]) -> str:
    """Returns the schema as Spark DDL."""
    return ", ".join(f"{column.name} {column.kind.spark}" for column in schema)


def arrow(schema: Iterable[Column]) -> pa.Schema:
    """Returns the schema for Arrow."""
    import pyarrow as pa

    return pa.schema([(column.name, getattr(pa, column.kind.arrow)()) for column in schema])


def table(schema: Iterable[Column], rows: Iterable[tuple[Any, ...]]) -> pa.Table:
    """Builds a table from rows in the order of the schema's columns."""
    import pyarrow as pa

    of_arrow = arrow(schema)
    columns = list(zip(*rows, strict=True)) or [()] * len(of_arrow)
    return pa.Table.from_arrays(
        [pa.array(values, type=field.type) for values, field in zip(columns, of_arrow, strict=True)], schema=of_arrow
    )
