"""The columns of the pipeline, all of them derived from the fields of `UsageEvent`: for Spark, Arrow and the sink."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, get_type_hints

from brokers.contract.usage import COUNTED, COUNTER_KEY, FIELD_NAMES, OF_INCARNATION, UsageEvent

if TYPE_CHECKING:
    import pyarrow as pa


class Kind(NamedTuple):
    """What one kind of value is called; `arrow` names a function of pyarrow."""

    spark: str
    arrow: str


INT32 = Kind("int", "int32")
INT64 = Kind("long", "int64")
STRING = Kind("string", "string")
# Kafka's ids of brokers and partitions have 32 bits, all its counts 64.
_OF_32_BITS = frozenset({"partition", "broker_id"})
_HINTS = get_type_hints(UsageEvent)


@dataclass(frozen=True, slots=True)
class Column:
    """One column, by the name it has everywhere."""

    name: str
    kind: Kind


def _column(name: str) -> Column:
    if _HINTS.get(name, int) is not int:
        return Column(name, STRING)
    return Column(name, INT32 if name in _OF_32_BITS else INT64)


def columns(names: Iterable[str]) -> tuple[Column, ...]:
    """Columns of these names; one that is no field of an event is an integer."""
    return tuple(_column(name) for name in names)


# Why a report is left out, or counted at another time than it names (CLOCK).
MALFORMED, NEWER_VERSION, EPOCH_REUSED, CLOCK = "malformed", "newer_version", "epoch_reused", "clock"
# A record as it is read: where it lay, what it says, and what is the matter with it.
EVENT = (*columns(("partition", "offset", *FIELD_NAMES)), Column("problem", STRING), Column("detail", STRING))
# What is stored of a counter: its key, and what its last report said.
COUNTER_NAMES = (*COUNTER_KEY, "sequence", *COUNTED)
COUNTER = columns(COUNTER_NAMES)
# A sum is kept by whatever names a counter but the process that counted, and by minute.
MINUTE_KEY = ("instance_id", "minute_ms", *(n for n in COUNTER_KEY if n not in ("instance_id", *OF_INCARNATION)))
MINUTE_NAMES = (*MINUTE_KEY, *COUNTED)


def spark_ddl(schema: Iterable[Column]) -> str:
    """The schema in Spark's words."""
    return ", ".join(f"{column.name} {column.kind.spark}" for column in schema)


def arrow(schema: Iterable[Column]) -> pa.Schema:
    """The schema in Arrow's words."""
    import pyarrow as pa

    return pa.schema([(column.name, getattr(pa, column.kind.arrow)()) for column in schema])


def table(schema: Iterable[Column], rows: Iterable[tuple[Any, ...]]) -> pa.Table:
    """Rows in the order of the schema's columns, as a table."""
    import pyarrow as pa

    of_arrow = arrow(schema)
    columns = list(zip(*rows, strict=True)) or [()] * len(of_arrow)
    return pa.Table.from_arrays(
        [pa.array(values, type=field.type) for values, field in zip(columns, of_arrow, strict=True)], schema=of_arrow
    )
