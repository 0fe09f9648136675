"""Conversion of Arrow tables to the text format of PostgreSQL's COPY, column by column. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

# The order matters: backslashes of the other escapes must not be escaped again.
_ESCAPES: Final = (("\\", "\\\\"), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"))


def as_text(table: pa.Table) -> bytes:
    """Returns the table's rows as lines; its columns are integers and strings without nulls."""
    import pyarrow.compute as pc

    if not table.num_rows:
        return b""
    columns = [_text(table.column(name).combine_chunks()) for name in table.column_names]
    lines = pc.binary_join_element_wise(*columns, "\t")
    # The values of a column are contiguous in its buffer.
    text: bytes = pc.binary_join_element_wise(lines, "", "\n").buffers()[2].to_pybytes()
    return text


def _text(array: pa.Array) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_string(array.type):
        return array.cast(pa.string())
    for plain, escaped in _ESCAPES:
        array = pc.replace_substring(array, plain, escaped)
    return array
