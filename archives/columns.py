"""Columns of values, independent of their format. Pure.

A value that cannot be decoded or does not fit gets null columns; its bytes are archived nevertheless.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

COLUMNS_MAX: Final = 100
SCHEMA_CHARS_MAX: Final = 20_000

TIMESTAMP_MS_TYPE: Final = pa.timestamp("ms", tz="UTC")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,99}\Z")

Row = tuple[Any, ...]


class SchemaRefused(ValueError):
    """The columns are invalid. The message is shown to the user who entered them."""


class ValueUnfit(ValueError):
    """A value does not have the form of the columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Fields of the columns and the decoder of a value, which may raise any exception for a value that does not fit."""

    fields: tuple[pa.Field, ...]
    decode: Callable[[bytes], Row] | None = None

    def decode_row(self, value: bytes | None) -> Row | None:
        """Returns the row of a value; None if there is no value or it does not fit."""
        if value is None or self.decode is None:
            return None
        try:
            return self.decode(value)
        except Exception:  # decoders may raise anything for a tenant's bytes
            return None

    def build_array(self, rows: Sequence[Row | None]) -> tuple[pa.StructArray, int]:
        """Returns one struct per record, null if its value does not fit, and the number of nulls."""
        try:
            return self._build_array(rows), sum(row is None for row in rows)
        except (pa.ArrowException, ValueError, TypeError, OverflowError):
            fitting = [row if row is not None and self._fits(row) else None for row in rows]
            return self._build_array(fitting), sum(row is None for row in fitting)

    def _fits(self, row: Row) -> bool:
        """True if each value fits its column's type; a decoder may return numbers that are too large for it."""
        try:
            self._build_array([row])
        except (pa.ArrowException, ValueError, TypeError, OverflowError):
            return False
        return True

    def _build_array(self, rows: Sequence[Row | None]) -> pa.StructArray:
        empty = (None,) * len(self.fields)
        columns = list(zip(*(empty if row is None else row for row in rows), strict=True))
        return pa.StructArray.from_arrays(
            [pa.array(column, type=field.type) for column, field in zip(columns, self.fields, strict=True)],
            fields=list(self.fields),
            mask=pa.array([row is None for row in rows], pa.bool_()),
        )


NO_COLUMNS: Final = Columns(fields=())


def require_column_name(name: Any, existing_names: Mapping[str, Any]) -> str:
    """Returns the validated name of a column, unique without regard to case, because Spark ignores case."""
    if not isinstance(name, str) or not _NAME.match(name):
        raise SchemaRefused("A column is named by 1 to 100 letters, digits, _ and -, and does not begin with a digit.")
    if name.lower() in {existing_name.lower() for existing_name in existing_names}:
        raise SchemaRefused(f"Two columns are named {name}.")
    if len(existing_names) >= COLUMNS_MAX:
        raise SchemaRefused(f"There are more than {COLUMNS_MAX} columns.")
    return name


def arrow_fields(types: Mapping[str, pa.DataType]) -> tuple[pa.Field, ...]:
    """Returns the fields of the columns. Raises `SchemaRefused` if there are none."""
    if not types:
        raise SchemaRefused("Name the columns.")
    return tuple(pa.field(name, kind) for name, kind in types.items())
