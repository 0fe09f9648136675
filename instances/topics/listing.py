"""Pages of an instance's topics: filtered and sorted by any column, with totals and links to adjacent pages."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from instances.choices import TopicState
from instances.models import Instance, TopicAllowList
from instances.sorted_pages import FIRST_PAGE_TOKEN, sorted_page, sorts_of
from instances.topics.pending import PendingTopic, pending_topics
from instances.topics.table import TopicRow, TopicTable, topic_table

UNLIMITED = -1
LONG_MAX = 2**63 - 1
# Sort key of each column. A sort is the name of a column, with `-` before it for descending order.
COLUMNS: Mapping[str, Callable[[TopicRow], Any]] = {
    "name": lambda row: row.name,
    "partitions": lambda row: row.partition_count,
    "replicas": lambda row: row.replication_factor,
    "messages": lambda row: row.message_count,
    "size": lambda row: row.size_bytes,
    "produce": lambda row: row.produce_bps,
    "consume": lambda row: row.consume_bps,
    "retention": lambda row: _retention(row),
    "groups": lambda row: row.groups,
    "lag": lambda row: row.lag,
}
SORTS = sorts_of(tuple(COLUMNS))
DEFAULT_SORT = "name"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTopic:
    """A row with its address lists, as the list and REST show it."""

    row: TopicRow
    state: str = TopicState.READY.value
    produce_ips: Sequence[str] = ()
    consume_ips: Sequence[str] = ()
    administer_ips: Sequence[str] = ()

    @property
    def topic_id(self) -> str:
        return str(uuid.UUID(hex=self.row.topic_id)) if self.row.topic_id else ""

    @property
    def is_ready(self) -> bool:
        return self.state == TopicState.READY

    @property
    def has_lists(self) -> bool:
        return bool(self.produce_ips or self.consume_ips or self.administer_ips)


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Sums over all topics that match, not only those of the page. A sum is None if a part of it is unknown."""

    topics: int
    partitions: int
    message_count: int | None
    size_bytes: int | None
    produce_bps: float | None
    consume_bps: float | None
    lag: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPage:
    """Rows of one page. `next_token` is None on the last page, `previous_token` on the first one; `here_token` is the
    token of this page. `first` and `last` are the positions of its first and last row, counted from 1.
    """

    items: Sequence[ListedTopic]
    totals: Totals
    table: TopicTable
    first: int
    next_token: str | None
    previous_token: str | None
    here_token: str = FIRST_PAGE_TOKEN

    @property
    def last(self) -> int:
        return self.first - 1 + len(self.items)

    @property
    def is_shown_whole(self) -> bool:
        """True if brokers show all topics of the page."""
        return all(topic.is_ready for topic in self.items)


def topic_page(
    instance: Instance, *, contains: str = "", sort: str = DEFAULT_SORT, page_token: str = "", page_size: int = 50
) -> TopicPage:
    """Returns one page.

    Raises `DomainError(invalid_page_token)`, and `Unavailable` if no broker answers.
    """
    table = topic_table(instance)
    search_text = contains.lower()
    pending = _unlisted_pending_topics(instance, table)
    rows = [row for row in (*table.rows, *map(_pending_row, pending.values())) if search_text in row.name.lower()]
    totals = _totals(rows)
    page = sorted_page(
        rows, column=COLUMNS[sort.removeprefix("-")], name=lambda row: row.name, is_descending=sort.startswith("-"),
        page_token=page_token, page_size=page_size, binding=f"topics {instance.pk} {contains} {sort}",
    )  # fmt: skip
    return TopicPage(
        items=_with_lists(instance, page.rows, pending), totals=totals, table=table, first=page.first,
        next_token=page.next_token, previous_token=page.previous_token, here_token=page_token,
    )  # fmt: skip


def _unlisted_pending_topics(instance: Instance, table: TopicTable) -> Mapping[str, PendingTopic]:
    pending = pending_topics(instance)
    if not pending:
        return {}
    listed = {row.name for row in table.rows}
    return {name: topic for name, topic in pending.items() if name not in listed}


def _pending_row(topic: PendingTopic) -> TopicRow:
    """Returns the row of a topic that brokers do not report yet."""
    empty_count = 0 if topic.state == TopicState.BEING_CREATED else None
    return TopicRow(
        name=topic.name, topic_id="", partition_count=topic.partition_count,
        replication_factor=topic.replication_factor, message_count=empty_count, size_bytes=empty_count,
        produce_bps=empty_count, consume_bps=empty_count, retention_ms=None, groups=0, lag=None,
    )  # fmt: skip


def _retention(row: TopicRow) -> int | None:
    """Returns the retention as a sort key: without a limit it is longer than any other."""
    return LONG_MAX if row.retention_ms == UNLIMITED else row.retention_ms


def _totals(rows: Sequence[TopicRow]) -> Totals:
    def total(column: str) -> Any:
        values = [getattr(row, column) for row in rows]
        return None if None in values else sum(values)

    lags = [row.lag for row in rows if row.lag is not None]
    return Totals(
        topics=len(rows),
        partitions=total("partition_count"),
        message_count=total("message_count"),
        size_bytes=total("size_bytes"),
        produce_bps=total("produce_bps"),
        consume_bps=total("consume_bps"),
        lag=sum(lags) if lags else None,
    )


def _with_lists(instance: Instance, rows: Sequence[TopicRow], pending: Mapping[str, PendingTopic]) -> list[ListedTopic]:
    names = [row.name for row in rows]
    lists = {
        allow_list.topic: allow_list for allow_list in TopicAllowList.objects.filter(instance=instance, topic__in=names)
    }
    result = []
    for row in rows:
        allow_list = lists.get(row.name)
        state = pending[row.name].state if row.name in pending else TopicState.READY.value
        if allow_list is None:
            result.append(ListedTopic(row=row, state=state))
        else:
            result.append(
                ListedTopic(
                    row=row,
                    state=state,
                    produce_ips=allow_list.produce_ips,
                    consume_ips=allow_list.consume_ips,
                    administer_ips=allow_list.administer_ips,
                )
            )
    return result
