"""Implementation of `instances.messages.interfaces.message_admin_client`: reads and sends messages as the owner."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Sequence

from django.utils.translation import gettext_noop

from brokers.dataplane.message_cursor import (
    PARTITION_BYTES_MAX,
    READ_UNCOMMITTED,
    FetchRange,
    PartitionCursor,
    markers_of,
)
from brokers.dataplane.message_pages import PageReader, window_of
from brokers.dataplane.message_sender import send
from brokers.dataplane.message_source import NO_LEADER, NO_OFFSET, Bounds, TopicSource
from instances.messages import limits
from instances.messages.interfaces import (
    ABORT,
    ABORTED,
    COMMITTED,
    NEWER,
    NEWEST,
    OFFSET,
    OLDER,
    OPEN,
    TIME,
    NewMessage,
    Page,
    PageRequest,
    Record,
    SendResult,
)
from instances.naming import DEMO_CLIENT_ID
from tenants.errors import FieldError, Invalid, Message, Unavailable

PARTITIONS_NAMED_MAX = 10


class KafkaMessageAdminClient:
    """Implements `instances.messages.interfaces.MessageAdminClient`."""

    def read(self, instance_id: str, topic: str, page_request: PageRequest) -> Page:
        source = TopicSource(instance_id, topic, leaders=page_request.leaders)
        partitions = _requested_partitions(source, page_request)
        bounds = _query_bounds(source, partitions)
        if len(bounds) < len(partitions) and page_request.leaders is not None:
            source.refresh_leaders()  # others may lead, or the topic may be deleted, since the caller learned of them
            partitions = _requested_partitions(source, page_request)
            bounds = _query_bounds(source, partitions)
        leaderless = [index for index in partitions if index not in bounds]
        if not bounds:
            raise _no_leader(leaderless)
        direction = _direction(page_request)
        cursors = _new_cursors(source, page_request, direction, bounds)
        reader = PageReader(source, cursors, page_request, direction, time.monotonic, time.sleep)
        page = reader.read()
        if not page.is_end and not page.records and not reader.has_progress:
            raise _nothing_read(reader, page)
        _resolve_transactions(source, cursors, page.records)
        unavailable = tuple(sorted({*leaderless, *page.unavailable}))
        return Page(
            direction=page.direction, records=page.records, scanned=page.scanned, read_bytes=page.read_bytes,
            began=page.began, reached=page.reached, is_end=page.is_end and not leaderless, unavailable=unavailable,
            unreadable=page.unreadable,
        )  # fmt: skip

    def send(self, instance_id: str, topic: str, messages: Sequence[NewMessage]) -> Sequence[SendResult]:
        return send(TopicSource(instance_id, topic), messages)

    def send_as_demo(self, instance_id: str, topic: str, messages: Sequence[NewMessage]) -> Sequence[SendResult]:
        return send(TopicSource(instance_id, topic, DEMO_CLIENT_ID), messages)


def _requested_partitions(source: TopicSource, page_request: PageRequest) -> list[int]:
    count = len(source.leaders)
    if page_request.partition is not None:
        if page_request.partition not in source.leaders:
            detail = Message(gettext_noop("The topic has %(n)s partitions, from 0 on."), n=count)
            raise _wrong_partition(detail, "no_such_partition")
        return [page_request.partition]
    if count > limits.PAGE_PARTITIONS_MAX:
        detail = Message(
            gettext_noop("The topic has %(n)s partitions, and a page reads at most %(most)s: name one."),
            n=count,
            most=limits.PAGE_PARTITIONS_MAX,
        )
        raise _wrong_partition(detail, "too_many_partitions")
    return sorted(source.leaders)


def _query_bounds(source: TopicSource, partitions: Iterable[int]) -> dict[int, Bounds]:
    return source.all_bounds(index for index in partitions if source.leaders[index] != NO_LEADER)


def _wrong_partition(detail: str, code: str) -> Invalid:
    return Invalid(detail, code=code, errors=[FieldError(parameter="partition", detail=detail, code=code)])


def _no_leader(partitions: Sequence[int]) -> Unavailable:
    listed = ", ".join(map(str, partitions[:PARTITIONS_NAMED_MAX])) + (
        " …" if len(partitions) > PARTITIONS_NAMED_MAX else ""
    )
    detail = Message(gettext_noop("No broker leads partition %(list)s at the moment. Nothing is lost."), list=listed)
    return Unavailable(detail, code="partition_without_leader", retry_after_s=2)


def _nothing_read(reader: PageReader, page: Page) -> Unavailable:
    if reader.was_throttled:
        return Unavailable(
            "The clients of the instance use all of its bandwidth at the moment, and this page has to wait.",
            code="throttled",
            retry_after_s=1,
        )
    if page.unavailable:
        return _no_leader(page.unavailable)
    return Unavailable("The brokers of the instance take too long to answer. Nothing is lost.", retry_after_s=1)


def _direction(page_request: PageRequest) -> str:
    if page_request.positions is not None:
        return page_request.positions.direction
    return OLDER if page_request.start.kind == NEWEST else NEWER


def _new_cursors(
    source: TopicSource, page_request: PageRequest, direction: str, bounds: dict[int, Bounds]
) -> list[PartitionCursor]:
    positions = _start_positions(source, page_request, direction, bounds)
    window = window_of(page_request.limit, len(bounds), page_request.is_filtered)
    return [
        PartitionCursor(
            index,
            start=partition_bounds.start,
            end=partition_bounds.end,
            stable=partition_bounds.stable,
            position=positions[index],
            direction=direction,
            window=window,
            literals=page_request.literals,
        )
        for index, partition_bounds in sorted(bounds.items())
    ]


def _start_positions(
    source: TopicSource, page_request: PageRequest, direction: str, bounds: dict[int, Bounds]
) -> dict[int, int]:
    """Returns the start position by partition: from the page token, or the requested start for partitions without one
    (new partitions, and those without a leader at the previous page).
    """
    token_offsets = {} if page_request.positions is None else page_request.positions.offsets
    result = {index: token_offsets[index] for index in bounds if index in token_offsets}
    missing = {index: partition_bounds for index, partition_bounds in bounds.items() if index not in token_offsets}
    if not missing:
        return result
    kind, at_ms_or_offset = page_request.start.kind, page_request.start.at
    if kind == OFFSET:
        return result | dict.fromkeys(missing, at_ms_or_offset)
    if kind == TIME:
        offsets_at_time = source.offsets(missing, at_ms_or_offset)
        return result | {
            index: offsets_at_time[index]
            if offsets_at_time.get(index, NO_OFFSET) != NO_OFFSET
            else partition_bounds.end
            for index, partition_bounds in missing.items()
        }
    return result | {
        index: partition_bounds.end if kind == NEWEST else partition_bounds.start
        for index, partition_bounds in missing.items()
    }


def _resolve_transactions(source: TopicSource, cursors: Iterable[PartitionCursor], records: Sequence[Record]) -> None:
    """Determines the state of transactions after an open one, which no list of aborted transactions covers yet.

    Those that the leader reports as open are open; for the others the producer's next marker decides.
    """
    undecided_by_partition: dict[int, list[Record]] = defaultdict(list)
    for record in records:
        if record.transaction is not None and record.transaction.state is None:
            undecided_by_partition[record.partition].append(record)
    if not undecided_by_partition:
        return
    first_offsets_by_partition = source.open_transaction_starts(undecided_by_partition)
    cursors_by_index = {cursor.index: cursor for cursor in cursors}
    for index, undecided_records in undecided_by_partition.items():
        first_offsets = first_offsets_by_partition.get(index)
        if first_offsets is None:
            continue
        for record in undecided_records:
            assert record.transaction is not None
            if record.offset >= first_offsets.get(record.transaction.producer_id, record.offset + 1):
                record.transaction.state = OPEN
        still_undecided = [record for record in undecided_records if record.transaction.state is None]  # type: ignore[union-attr]
        _decide_by_markers(source, cursors_by_index[index], still_undecided)


def _decide_by_markers(source: TopicSource, cursor: PartitionCursor, records: Sequence[Record]) -> None:
    if not records:
        return
    first = min(record.offset for record in records)
    markers = _fetch_markers(source, cursor.index, first + 1)
    for record in records:
        assert record.transaction is not None
        later_markers = [
            (offset, kind)
            for producer_id, offset, kind in markers
            if producer_id == record.transaction.producer_id and offset > record.offset
        ]
        if later_markers:
            record.transaction.state = ABORTED if min(later_markers)[1] == ABORT else COMMITTED


def _fetch_markers(source: TopicSource, index: int, offset: int) -> list[tuple[int, int, str]]:
    """Returns the markers of a partition from an offset on, within `MARKER_SCAN_BYTES_MAX`."""
    result: list[tuple[int, int, str]] = []
    remaining_bytes = limits.MARKER_SCAN_BYTES_MAX
    while remaining_bytes > 0:
        fetch_range = FetchRange(offset, offset, READ_UNCOMMITTED, min(remaining_bytes, PARTITION_BYTES_MAX))
        fetched = source.fetch({index: fetch_range}, remaining_bytes, limits.READ_S_MAX).partitions.get(index)
        if fetched is None or not fetched.batches:
            break
        result += markers_of(index, fetched.batches)
        offset = fetched.batches[-1].last_offset + 1
        remaining_bytes -= max(fetched.size_bytes, 1)
    return result
