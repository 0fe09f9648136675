"""Queries of consumer groups: a page of groups with their lag, and one group with its members and partitions.

Only data that a page shows is requested: a list queries the groups of its page, a group its own partitions. Lag counts
messages between the committed offset and the log's end, including records of transactions and those removed by
compaction.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from django.utils.translation import gettext_noop

from instances import access
from instances.groups import lag_history
from instances.groups.interfaces import (
    DEAD,
    EARLIEST,
    EMPTY_STATES,
    CommittedOffset,
    GroupDescription,
    GroupListing,
    GroupMember,
    GroupSummary,
    Partition,
    group_admin_client,
)
from instances.groups.lag_history import Sample, TimeLag
from instances.interfaces import BrokerUnresponsive
from instances.limits import GROUP_PARTITIONS_SHOWN_MAX, LAG_PARTITIONS_PER_GROUP_MAX, LAG_PARTITIONS_PER_LIST_MAX
from instances.models import Instance
from tenants.api import pages
from tenants.errors import Message, NotFound, Unavailable
from tenants.models import AuditEntry

STATES = ("Stable", "PreparingRebalance", "CompletingRebalance", "Empty", "Dead")
UNDOABLE = ("group.offsets_reset", "group.offsets_deleted", "group.deleted")


@dataclass(frozen=True, slots=True, kw_only=True)
class LargestLag:
    """The partition with the largest lag."""

    topic: str
    partition: int
    lag: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """A group in a list. Fields that are not known (yet) are None; `trouble` is the reason if it is a
    broker that did not answer.
    """

    id: str
    state: str
    protocol_type: str
    coordinator: int
    members: int | None = None
    partitions: int | None = None
    lag: int | None = None
    worst: LargestLag | None = None
    trouble: str = ""
    history: tuple[Sample, ...] = ()
    is_growing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPage:
    """Rows by name, the token of the next page, the number of groups in each state, and the unresponsive brokers."""

    rows: tuple[GroupRow, ...]
    next_token: str | None
    counts: Mapping[str, int]
    silent: tuple[BrokerUnresponsive, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLag:
    """A partition of a group. `committed` None: no offset; `start`, `end` None: not known, or the partition does not
    exist.
    """

    topic: str
    partition: int
    committed: int | None
    metadata: str
    start: int | None
    end: int | None
    member: GroupMember | None
    behind: TimeLag | None = None

    @property
    def topic_partition(self) -> Partition:
        return self.topic, self.partition

    @property
    def lag(self) -> int | None:
        return None if self.committed is None or self.end is None else max(0, self.end - self.committed)

    @property
    def is_lost(self) -> bool:
        """True if the group's offset is before the start of the log: messages in between were deleted unread."""
        return self.committed is not None and self.start is not None and self.committed < self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockingTransaction:
    """A transaction that blocks a group. `id` is empty if no coordinator knows it: only an operator can end it.
    `open_ms` is the least time for which it has been open.
    """

    id: str
    producer_id: int
    topic: str
    partition: int
    offset: int
    open_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDetail:
    """One group. `lag` is the sum over the partitions with known lag; `unknown` is the number of other partitions with
    an offset, `left_out` that of partitions beyond the limit. `held_by` has the transactions that block the group.
    """

    description: GroupDescription
    partitions: tuple[PartitionLag, ...]
    lag: int | None
    unknown: int
    left_out: int
    worst: LargestLag | None
    trouble: str
    history: tuple[Sample, ...]
    is_growing: bool
    held_by: tuple[BlockingTransaction, ...] = ()

    @property
    def id(self) -> str:
        return self.description.id

    @property
    def is_empty(self) -> bool:
        return self.description.state in EMPTY_STATES

    @property
    def etag(self) -> tuple[object, ...]:
        """Value that changes when a member joins, leaves or commits."""
        members = tuple((member.id, member.assignment) for member in self.description.members)
        offsets = tuple((*partition_lag.topic_partition, partition_lag.committed) for partition_lag in self.partitions)
        return self.id, self.description.state, members, offsets


def group_page(
    instance: Instance,
    *,
    contains: str = "",
    states: Sequence[str] = (),
    page_token: str | None = None,
    page_size: int = 50,
) -> GroupPage:
    """Returns a page of groups by name (in some states, or all), without the fields that `with_lags` fills in."""
    access.require_reachable(instance)
    result = group_admin_client.implementation.groups(instance.pk)
    matching = [group for group in result.groups if contains.lower() in group.id.lower()]
    rows, next_token = pages.page_of_items(
        [group for group in matching if not states or group.state in states],
        key=lambda group: group.id,
        page_size=page_size,
        page_token=page_token,
        binding=f"groups {instance.pk} {contains} {sorted(states)}",
    )
    return GroupPage(
        rows=tuple(_row_without_lag(group) for group in rows),
        next_token=next_token,
        counts=Counter(group.state for group in matching),
        silent=result.silent,
    )


def group_names(instance: Instance) -> list[str]:
    """Returns all names known to the coordinators that answer; raises `Unavailable` if none does."""
    access.require_reachable(instance)
    return [group.id for group in group_admin_client.implementation.groups(instance.pk).groups]


def with_lags(instance: Instance, rows: Sequence[GroupRow], *, now_ms: int | None = None) -> tuple[GroupRow, ...]:
    """Returns the same rows with members, lag, its trend and its worst partition."""
    summaries = group_admin_client.implementation.describe(instance.pk, [row.id for row in rows])
    offsets = {row.id: summaries[row.id].offsets or () for row in rows if row.id in summaries}
    ends = group_admin_client.implementation.bounds(instance.pk, _partitions_within_limits(offsets))
    rows_with_lag = [_with_lag(row, summaries.get(row.id), offsets.get(row.id, ()), ends) for row in rows]
    lags = {row.id: row.lag for row in rows_with_lag if row.lag is not None}
    histories = lag_history.record_lags(instance.pk, lags, _now_ms() if now_ms is None else now_ms)
    return tuple(
        replace(row, history=histories[row.id], is_growing=lag_history.has_grown(histories[row.id]))
        if row.id in histories
        else row
        for row in rows_with_lag
    )


def largest_sampled_lags(instance: Instance, groups: Sequence[GroupRow], count: int, *, now_ms: int) -> list[GroupRow]:
    """Returns the `count` groups with the largest last sampled lag."""
    lags = {
        name: sum(by_topic.values())
        for name, (_at_ms, by_topic) in lag_history.latest_lags(instance.pk, now_ms).items()
    }
    sampled = [row for row in groups if row.id in lags]
    return sorted(sampled, key=lambda row: (-lags[row.id], row.id))[:count]


def group_detail(
    instance: Instance, group: str, *, topic: str = "", fresh: bool = False, now_ms: int | None = None
) -> GroupDetail:
    """Returns one group with its members and all its partitions with an offset or an owner, of one topic or all.

    Raises `NotFound`, `Conflict` while there are no brokers, and `Unavailable` if its coordinator does not answer.
    """
    access.require_reachable(instance)
    summary = group_admin_client.implementation.describe(instance.pk, [group], fresh=fresh)[group]
    description = require_known_group(group, summary)
    owners = {partition: member for member in description.members for partition in member.assignment or ()}
    committed = {offset.topic_partition: offset for offset in summary.offsets or ()}
    selected = sorted(partition for partition in {*committed, *owners} if not topic or partition[0] == topic)
    partitions = selected[:GROUP_PARTITIONS_SHOWN_MAX]
    ends = group_admin_client.implementation.bounds(instance.pk, partitions, fresh=fresh)
    starts = group_admin_client.implementation.bounds(instance.pk, partitions, EARLIEST, fresh=fresh)
    partition_lags = [
        _partition_lag(partition, committed.get(partition), starts, ends, owners) for partition in partitions
    ]
    at_ms = _now_ms() if now_ms is None else now_ms
    samples = lag_history.record_log_ends(instance.pk, group, ends, at_ms)
    partition_lags = [
        replace(
            partition_lag, behind=lag_history.time_lag(partition_lag.topic_partition, partition_lag.committed, samples)
        )
        if partition_lag.committed is not None
        else partition_lag
        for partition_lag in partition_lags
    ]
    lag, unknown, worst = _lag_sums(partition_lags)
    unknown += sum(partition in committed for partition in selected[len(partitions) :])
    is_complete = lag is not None and not topic and not unknown
    history = lag_history.record_lags(instance.pk, {group: lag or 0}, at_ms)[group] if is_complete else ()
    return GroupDetail(
        description=description,
        partitions=tuple(partition_lags),
        lag=lag,
        unknown=unknown,
        left_out=len(selected) - len(partitions),
        worst=worst,
        trouble=summary.trouble,
        history=history,
        is_growing=lag_history.has_grown(history),
    )


def require_known_group(group: str, summary: GroupSummary) -> GroupDescription:
    """Returns the description of a group that exists. A group that only has offsets exists, too.

    Raises `NotFound`, and `Unavailable` if its coordinator does not answer.
    """
    if summary.description is None:
        raise Unavailable(
            Message(gettext_noop("Nothing is known of the group at the moment: %(why)s."), why=summary.trouble),
            retry_after_s=1,
        )
    if summary.description.state == DEAD and not summary.offsets:
        raise NotFound
    return summary.description


def last_undoable_change(instance: Instance, group_ref: tuple[str, str]) -> AuditEntry | None:
    """Returns the latest reset or deletion of a group's offsets that was not undone since."""
    rows = AuditEntry.objects.filter(
        tenant_id=instance.tenant_id, target_type=group_ref[0], target_id=group_ref[1], action__startswith="group."
    )
    latest = rows.first()
    return latest if latest is not None and latest.action in UNDOABLE else None


def _row_without_lag(group: GroupListing) -> GroupRow:
    return GroupRow(id=group.id, state=group.state, protocol_type=group.protocol_type, coordinator=group.coordinator)


def _partitions_within_limits(offsets: Mapping[str, tuple[CommittedOffset, ...]]) -> set[Partition]:
    """Returns the partitions whose ends a list requests, group by group within its limits."""
    partitions: set[Partition] = set()
    for committed in offsets.values():
        if len(committed) <= LAG_PARTITIONS_PER_GROUP_MAX:
            selected = partitions | {offset.topic_partition for offset in committed}
            if len(selected) <= LAG_PARTITIONS_PER_LIST_MAX:
                partitions = selected
    return partitions


def _with_lag(
    row: GroupRow, summary: GroupSummary | None, offsets: tuple[CommittedOffset, ...], ends: Mapping[Partition, int]
) -> GroupRow:
    if summary is None:
        return row
    lags = [
        (offset, max(0, ends[offset.topic_partition] - offset.offset))
        for offset in offsets
        if offset.topic_partition in ends
    ]
    worst = max(lags, key=lambda pair: pair[1], default=None)
    description = summary.description
    return replace(
        row,
        state=description.state if description else row.state,
        members=len(description.members) if description else None,
        partitions=len(offsets) if summary.offsets is not None else None,
        lag=sum(lag for _, lag in lags) if len(lags) == len(offsets) and summary.offsets else None,
        worst=LargestLag(topic=worst[0].topic, partition=worst[0].partition, lag=worst[1]) if worst else None,
        trouble=summary.trouble,
    )


def _partition_lag(
    partition: Partition,
    committed: CommittedOffset | None,
    starts: Mapping[Partition, int],
    ends: Mapping[Partition, int],
    owners: Mapping[Partition, GroupMember],
) -> PartitionLag:
    return PartitionLag(
        topic=partition[0],
        partition=partition[1],
        committed=committed.offset if committed else None,
        metadata=committed.metadata if committed else "",
        start=starts.get(partition),
        end=ends.get(partition),
        member=owners.get(partition),
    )


def _lag_sums(partition_lags: Iterable[PartitionLag]) -> tuple[int | None, int, LargestLag | None]:
    """Returns the total lag, the number of partitions with an offset that it leaves out, and the worst partition."""
    with_offset = [partition_lag for partition_lag in partition_lags if partition_lag.committed is not None]
    lags = [(partition_lag, partition_lag.lag) for partition_lag in with_offset if partition_lag.lag is not None]
    worst = max(lags, key=lambda pair: pair[1], default=None)
    return (
        sum(lag for _, lag in lags) if lags else None,
        len(with_offset) - len(lags),
        LargestLag(topic=worst[0].topic, partition=worst[0].partition, lag=worst[1]) if worst else None,
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
