"""In-memory messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from instances.messages.interfaces import (
    NEWER,
    NEWEST,
    OLDER,
    NewMessage,
    Page,
    PageRequest,
    Record,
    SendResult,
    Unreadable,
)
from tenants.errors import DomainError, NotFound

BEGAN_MS = 1_790_000_000_000


@dataclass(slots=True)
class FakeMessages:
    """In-memory `instances.messages.interfaces.MessageAdminClient` of topics with one partition. `has_every_topic`:
    unknown topics are empty. A page looks at `scanned_max` messages at most.
    """

    records: dict[tuple[str, str], list[Record]] = field(default_factory=dict)
    has_every_topic: bool = False
    scanned_max: int | None = None
    trouble: DomainError | None = None
    refused: DomainError | None = None
    unavailable: tuple[int, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()
    requests: list[PageRequest] = field(default_factory=list)

    def add(self, instance_id: str, topic: str, *values: bytes | None, key: bytes | None = b"k") -> list[Record]:
        """Adds messages, a second apart."""
        stored = self.records.setdefault((instance_id, topic), [])
        for value in values:
            offset = len(stored)
            stored.append(
                Record(
                    partition=0,
                    offset=offset,
                    timestamp_ms=BEGAN_MS + offset * 1_000,
                    is_append_time=False,
                    key=key,
                    value=value,
                )
            )
        return stored

    def read(self, instance_id: str, topic: str, page_request: PageRequest) -> Page:
        self.requests.append(page_request)
        stored = self._records_of(instance_id, topic)
        is_newest = page_request.start.kind == NEWEST
        direction = page_request.positions.direction if page_request.positions else OLDER if is_newest else NEWER
        begin = (
            page_request.positions.offsets[0]
            if page_request.positions
            else len(stored)
            if is_newest
            else page_request.start.at
        )
        candidates = list(reversed(stored[:begin])) if direction == OLDER else stored[begin:]
        records, end = [], begin
        for record in candidates:
            if len(records) == page_request.limit or abs(end - begin) == self.scanned_max:
                break
            end = record.offset if direction == OLDER else record.offset + 1
            if page_request.accepts(record):
                parts = _parts(record)
                assert all(any(text in part for text in texts for part in parts) for texts in page_request.literals)
                page_request.shown_bytes(record)
                records.append(record)
        return Page(
            direction=direction, records=records, scanned=abs(end - begin), read_bytes=100, began={0: begin},
            reached={0: end}, is_end=(end in (0, len(stored)) and end != begin) or not candidates,
            unavailable=self.unavailable, unreadable=self.unreadable,
        )  # fmt: skip

    def send_as_demo(self, instance_id: str, topic: str, messages: Sequence[NewMessage]) -> Sequence[SendResult]:
        return self.send(instance_id, topic, messages)

    def send(self, instance_id: str, topic: str, messages: Sequence[NewMessage]) -> Sequence[SendResult]:
        stored = self._records_of(instance_id, topic)
        results = []
        for number, message in enumerate(messages):
            if self.refused is not None and number:
                results.append(SendResult(partition=message.partition or 0, error=self.refused))
                continue
            record = Record(
                partition=message.partition or 0, offset=len(stored), timestamp_ms=message.timestamp_ms or BEGAN_MS,
                is_append_time=False, key=message.key, value=message.value,
                headers=[(name.encode(), value) for name, value in message.headers],
                header_count=len(message.headers),
            )  # fmt: skip
            stored.append(record)
            results.append(SendResult(partition=record.partition, offset=record.offset))
        return results

    def _records_of(self, instance_id: str, topic: str) -> list[Record]:
        if self.trouble is not None:
            raise self.trouble
        if self.has_every_topic:
            self.records.setdefault((instance_id, topic), [])
        if (instance_id, topic) not in self.records:
            raise NotFound(f'There is no topic "{topic}".')
        return self.records[instance_id, topic]


def _parts(record: Record) -> list[bytes]:
    """Returns what the brokers' side searches for the bytes of a filter."""
    return [part or b"" for part in (record.key, record.value, *(part for header in record.headers for part in header))]
