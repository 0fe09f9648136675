"""Columns of lists that are sorted by a click: their words, and the links that sort by them."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlencode

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

ASCENDING, DESCENDING = "ascending", "descending"


@dataclass(frozen=True, slots=True)
class Column:
    """A column with the name that the list sorts it by. `is_second`: left out on a small screen. `is_text`: A comes
    first.
    """

    name: str
    words: str | Promise
    is_second: bool = True
    is_text: bool = False


@dataclass(frozen=True, slots=True)
class ColumnLink:
    """Head of a column: where a click leads, and the order it is in now (as `aria-sort` says it)."""

    column: Column
    href: str
    order: str


SHOWN_COLUMNS = (
    Column("name", _("Topic"), is_second=False, is_text=True),
    Column("partitions", _("Partitions")),
    Column("messages", _("Messages")),
    Column("size", _("Size"), is_second=False),
    Column("produce", pgettext_lazy("traffic", "In")),
    Column("consume", pgettext_lazy("traffic", "Out")),
    Column("retention", _("Retention")),
    Column("groups", _("Groups")),
    Column("lag", _("Lag"), is_second=False),
)


def column_link(column: Column, words: str, sort: str) -> ColumnLink:
    """Text begins with A, figures with the largest; a second click turns the order round."""
    first = column.name if column.is_text else f"-{column.name}"
    other = f"-{column.name}" if column.is_text else column.name
    wanted = other if sort == first else first
    order = ""
    if sort.removeprefix("-") == column.name:
        order = DESCENDING if sort.startswith("-") else ASCENDING
    query = {name: value for name, value in (("q", words), ("sort", wanted)) if value}
    return ColumnLink(column, f"?{urlencode(query)}", order)
