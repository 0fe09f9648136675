"""Columns of sortable lists: their labels, and the links that sort by them."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlencode

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

ASCENDING, DESCENDING = "ascending", "descending"


@dataclass(frozen=True, slots=True)
class SortableColumn:
    """A column with its sort name. A column with `is_text` sorts ascending at first."""

    name: str
    label: str | Promise
    hidden_on_small_screens: bool = True
    is_text: bool = False


@dataclass(frozen=True, slots=True)
class ColumnLink:
    """Header of a column: the target of a click, and the current order (value of `aria-sort`); empty if the list is not
    sorted by it.
    """

    column: SortableColumn
    href: str
    order: str


TOPIC_COLUMNS = (
    SortableColumn("name", _("Topic"), hidden_on_small_screens=False, is_text=True),
    SortableColumn("partitions", _("Partitions")),
    SortableColumn("messages", _("Messages")),
    SortableColumn("size", _("Size"), hidden_on_small_screens=False),
    SortableColumn("produce", pgettext_lazy("traffic", "In")),
    SortableColumn("consume", pgettext_lazy("traffic", "Out")),
    SortableColumn("retention", _("Retention")),
    SortableColumn("groups", _("Groups")),
    SortableColumn("lag", _("Lag"), hidden_on_small_screens=False),
)


def column_link(column: SortableColumn, search_text: str, sort: str) -> ColumnLink:
    """Returns the header of a column: text sorts ascending at first, numbers descending; a second click reverses."""
    first = column.name if column.is_text else f"-{column.name}"
    second = f"-{column.name}" if column.is_text else column.name
    next_sort = second if sort == first else first
    order = ""
    if sort.removeprefix("-") == column.name:
        order = DESCENDING if sort.startswith("-") else ASCENDING
    query = {name: value for name, value in (("q", search_text), ("sort", next_sort)) if value}
    return ColumnLink(column, f"?{urlencode(query)}", order)
