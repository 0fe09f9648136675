"""Pages of rows that are sorted by any of their columns, with tokens of the adjacent pages.

A token is the position after a row: its value in the column and its unique name. Rows that are added or removed between
two requests neither repeat nor hide others.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tenants.api import pages

Row = TypeVar("Row")
# Token of the first page.
FIRST_PAGE_TOKEN = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SortedPage(Generic[Row]):
    """Rows of one page. `next_token` is None on the last page, `previous_token` on the first one. `first` is the number
    of the first row, counted from 1.
    """

    rows: Sequence[Row]
    first: int
    next_token: str | None
    previous_token: str | None


def sorted_page(
    rows: list[Row],
    *,
    column: Callable[[Row], Any],
    name: Callable[[Row], str],
    is_descending: bool,
    page_token: str,
    page_size: int,
    binding: str,
) -> SortedPage[Row]:
    """Returns a page of `rows`, which are sorted in place. None comes last in either order; ties are sorted by name.

    `binding` identifies the list and its order. Raises `DomainError(invalid_page_token)` for a token of another list.
    """

    def key(row: Row) -> tuple[Any, ...]:
        return _sort_key(column(row), name(row), is_descending=is_descending)

    rows.sort(key=key)
    begin = 0
    if page_token:
        value, last_name = pages.decode_token(page_token, binding, 2)
        begin = bisect_right(rows, _sort_key(value, last_name, is_descending=is_descending), key=key)
    end = begin + page_size

    def token_after(index: int) -> str:
        return pages.encode_token([column(rows[index]), name(rows[index])], binding)

    previous_begin = max(0, begin - page_size)
    return SortedPage(
        rows=rows[begin:end],
        first=begin + 1,
        next_token=token_after(end - 1) if end < len(rows) else None,
        previous_token=None if begin == 0 else token_after(previous_begin - 1) if previous_begin else FIRST_PAGE_TOKEN,
    )


def sorts_of(columns: Sequence[str]) -> tuple[str, ...]:
    """Returns the names of the orders by these columns: `size` is ascending, `-size` descending, for example."""
    return tuple(sign + name for name in columns for sign in ("", "-"))


def _sort_key(value: Any, name: str, *, is_descending: bool) -> tuple[Any, ...]:
    if value is None:
        return (True, 0, name)
    if isinstance(value, str):
        return (False, _Reversed(value) if is_descending else value, name)
    return (False, -value if is_descending else value, name)


class _Reversed(str):
    """A string that compares in reverse, for descending order."""

    __slots__ = ()

    def __lt__(self, other: str) -> bool:
        return str.__gt__(self, other)

    def __gt__(self, other: str) -> bool:
        return str.__lt__(self, other)
