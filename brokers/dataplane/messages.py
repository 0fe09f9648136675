"""Implementation of `instances.messages.interfaces.message_admin_client`: reads and sends messages as the owner."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Sequence

from django.utils.translation import gettext_noop

from brokers.dataplane.message_cursor import PARTITION_BYTES_MAX, READ_UNCOMMITTED, Ask, PartitionCursor, markers_of
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


class Messages:
    """Implements `instances.messages.interfaces.MessageAdminClient`."""

    def read(self, instance_id: str, topic: str, wanted: PageRequest) -> Page:
        source = TopicSource(instance_id, topic)
        partitions = _chosen(source, wanted)
        bounds = source.all_bounds(index for index in partitions if source.leaders[index] != NO_LEADER)
        silent = [index for index in partitions if index not in bounds]
        if not bounds:
            raise _no_leader(silent)
        direction = _direction(wanted)
        cursors = _cursors(source, wanted, direction, bounds)
        reader = PageReader(source, cursors, wanted, direction, time.monotonic, time.sleep)
        page = reader.read()
        if not page.is_end and not page.records and not reader.has_progress:
            raise _nothing_read(reader, page)
        _resolve_transactions(source, cursors, page.records)
        unavailable = tuple(sorted({*silent, *page.unavailable}))
        return Page(
            direction=page.direction, records=page.records, scanned=page.scanned, read_bytes=page.read_bytes,
            began=page.began, reached=page.reached, is_end=page.is_end and not silent, unavailable=unavailable,
            unreadable=page.unreadable,
        )  # fmt: skip

    def send(self, instance_id: str, topic: str, messages: Sequence[NewMessage]) -> Sequence[SendResult]:
        return send(TopicSource(instance_id, topic), messages)

    def send_as_demo(self, instance_id: str, topic: str, messages: Sequence[NewMessage]) -> Sequence[SendResult]:
        return send(TopicSource(instance_id, topic, DEMO_CLIENT_ID), messages)


def _chosen(source: TopicSource, wanted: PageRequest) -> list[int]:
    count = len(source.leaders)
    if wanted.partition is not None:
        if wanted.partition not in source.leaders:
            detail = Message(gettext_noop("The topic has %(n)s partitions, from 0 on."), n=count)
            raise _wrong_partition(detail, "no_such_partition")
        return [wanted.partition]
    if count > limits.PAGE_PARTITIONS_MAX:
        detail = Message(
            gettext_noop("The topic has %(n)s partitions, and a page reads at most %(most)s: name one."),
            n=count,
            most=limits.PAGE_PARTITIONS_MAX,
        )
        raise _wrong_partition(detail, "too_many_partitions")
    return sorted(source.leaders)


def _wrong_partition(detail: str, code: str) -> Invalid:
    return Invalid(detail, code=code, errors=[FieldError(parameter="partition", detail=detail, code=code)])


def _no_leader(silent: Sequence[int]) -> Unavailable:
    shown = ", ".join(map(str, silent[:PARTITIONS_NAMED_MAX])) + (" …" if len(silent) > PARTITIONS_NAMED_MAX else "")
    detail = Message(gettext_noop("No broker leads partition %(list)s at the moment. Nothing is lost."), list=shown)
    return Unavailable(detail, code="partition_without_leader", retry_after_s=2)


def _nothing_read(reader: PageReader, page: Page) -> Unavailable:
    if reader.throttled:
        return Unavailable(
            "The clients of the instance use all of its bandwidth at the moment, and this page has to wait.",
            code="throttled",
            retry_after_s=1,
        )
    if page.unavailable:
        return _no_leader(page.unavailable)
    return Unavailable("The brokers of the instance take too long to answer. Nothing is lost.", retry_after_s=1)


def _direction(wanted: PageRequest) -> str:
    if wanted.positions is not None:
        return wanted.positions.direction
    return OLDER if wanted.start.kind == NEWEST else NEWER


def _cursors(
    source: TopicSource, wanted: PageRequest, direction: str, bounds: dict[int, Bounds]
) -> list[PartitionCursor]:
    begins = _begins(source, wanted, direction, bounds)
    window = window_of(wanted.limit, len(bounds), wanted.is_filtered)
    return [
        PartitionCursor(
            index, start=found.start, end=found.end, stable=found.stable, position=begins[index], direction=direction,
            window=window, literals=wanted.literals,
        )
        for index, found in sorted(bounds.items())
    ]  # fmt: skip


def _begins(source: TopicSource, wanted: PageRequest, direction: str, bounds: dict[int, Bounds]) -> dict[int, int]:
    """Returns positions by partition. Partitions unknown to the token (new, or without leader before) start anew."""
    known = {} if wanted.positions is None else wanted.positions.offsets
    result = {index: known[index] for index in bounds if index in known}
    missing = {index: found for index, found in bounds.items() if index not in known}
    if not missing:
        return result
    kind, at = wanted.start.kind, wanted.start.at
    if kind == OFFSET:
        return result | dict.fromkeys(missing, at)
    if kind == TIME:
        found = source.offsets(missing, at)
        return result | {
            index: found[index] if found.get(index, NO_OFFSET) != NO_OFFSET else limit.end
            for index, limit in missing.items()
        }
    return result | {index: limit.end if kind == NEWEST else limit.start for index, limit in missing.items()}


def _resolve_transactions(source: TopicSource, cursors: Iterable[PartitionCursor], records: Sequence[Record]) -> None:
    """Determines the state of transactions after an open one, which no list of aborted transactions covers yet.

    Those that the leader reports as open are open; for the others the producer's next marker decides.
    """
    undecided: dict[int, list[Record]] = defaultdict(list)
    for record in records:
        if record.transaction is not None and record.transaction.state is None:
            undecided[record.partition].append(record)
    if not undecided:
        return
    open_since = source.open_since(undecided)
    by_index = {cursor.index: cursor for cursor in cursors}
    for index, waiting in undecided.items():
        opened = open_since.get(index)
        if opened is None:
            continue
        for record in waiting:
            assert record.transaction is not None
            if record.offset >= opened.get(record.transaction.producer_id, record.offset + 1):
                record.transaction.state = OPEN
        _decide_by_markers(source, by_index[index], [record for record in waiting if record.transaction.state is None])  # type: ignore[union-attr]


def _decide_by_markers(source: TopicSource, cursor: PartitionCursor, waiting: Sequence[Record]) -> None:
    if not waiting:
        return
    first = min(record.offset for record in waiting)
    markers = _markers_from(source, cursor.index, first + 1)
    for record in waiting:
        assert record.transaction is not None
        ends = [
            (offset, kind)
            for producer_id, offset, kind in markers
            if producer_id == record.transaction.producer_id and offset > record.offset
        ]
        if ends:
            record.transaction.state = ABORTED if min(ends)[1] == ABORT else COMMITTED


def _markers_from(source: TopicSource, index: int, offset: int) -> list[tuple[int, int, str]]:
    """Returns the markers of a partition from an offset on, within `MARKER_SCAN_BYTES_MAX`."""
    result: list[tuple[int, int, str]] = []
    left = limits.MARKER_SCAN_BYTES_MAX
    while left > 0:
        ask = Ask(offset, offset, READ_UNCOMMITTED, min(left, PARTITION_BYTES_MAX))
        fetched = source.fetch({index: ask}, left, limits.READ_S_MAX).partitions.get(index)
        if fetched is None or not fetched.batches:
            break
        result += markers_of(index, fetched.batches)
        offset = fetched.batches[-1].last_offset + 1
        left -= max(fetched.size_bytes, 1)
    return result
