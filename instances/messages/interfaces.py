"""Reading and sending an instance's messages, as an interface that `brokers` implements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from tenants.errors import DomainError
from tenants.interfaces import Interface

OLDER, NEWER = "older", "newer"
OPEN, COMMITTED, ABORTED = "open", "committed", "aborted"
COMMIT, ABORT, OTHER_MARKER = "commit", "abort", "other"
TOO_LARGE, DAMAGED = "too_large", "damaged"
NEWEST, OLDEST, OFFSET, TIME = "newest", "oldest", "offset", "time"


@dataclass(frozen=True, slots=True)
class Start:
    """Position where reading begins: `kind` is NEWEST, OLDEST, OFFSET or TIME; `at` is an offset, or ms since 1970."""

    kind: str
    at: int = 0


FROM_NEWEST: Final = Start(NEWEST)


@dataclass(frozen=True, slots=True, kw_only=True)
class Positions:
    """Offsets by partition from which the next page is read, and its direction, OLDER (below them) or NEWER."""

    direction: str
    offsets: Mapping[int, int]


@dataclass(slots=True, kw_only=True)
class Transaction:
    """Transaction of a record. `state` is OPEN, COMMITTED or ABORTED; None if its marker was not read."""

    producer_id: int
    state: str | None


@dataclass(slots=True, kw_only=True)
class Record:
    """One record as it is stored. A marker ends a transaction: it has an offset, and no client ever sees it."""

    partition: int
    offset: int
    timestamp_ms: int
    is_append_time: bool
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[bytes, bytes | None]] = ()
    header_count: int = 0
    transaction: Transaction | None = None
    marker: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """Offsets of a batch that is not shown: `reason` is TOO_LARGE or DAMAGED."""

    partition: int
    offset: int
    last_offset: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Records in reading order. `began` and `reached` are the offsets before and after the page, by partition that
    could be read; `unavailable` are the other partitions. `is_end`: there are no more records in its direction.
    """

    direction: str
    records: Sequence[Record]
    scanned: int
    read_bytes: int
    began: Mapping[int, int]
    reached: Mapping[int, int]
    is_end: bool
    unavailable: Sequence[int] = ()
    unreadable: Sequence[Unreadable] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRequest:
    """Request for a page from `positions`, or from `start` if they are None, of one partition or of all (None).

    `accepts` decides which records belong to the page; `shown_bytes` is the size of a record in the response.
    `is_costly`: either may take milliseconds for a record, so the page's time limit is checked after each one.
    `literals`: every accepted record has one of each of these alternatives in its key, in its value, or in the name or
    value of one header. `leaders` has the leader of each partition, -1 for none; None: brokers are queried for them.
    """

    start: Start
    positions: Positions | None
    partition: int | None
    limit: int
    accepts: Callable[[Record], bool]
    is_filtered: bool
    shown_bytes: Callable[[Record], int]
    is_costly: bool = False
    literals: Sequence[Sequence[bytes]] = ()
    leaders: Mapping[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMessage:
    """Message to send. `timestamp_ms` None: now; `partition` None: chosen by the key, as by Kafka's own clients."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SendResult:
    """Position of one sent message. With an `error` it was not stored, or may have been (`OutcomeUnknown`)."""

    partition: int
    offset: int | None = None
    error: DomainError | None = None


class MessageAdminClient(Protocol):
    """Reads and sends messages as the instance's owner; the bytes count against the instance's bandwidth.

    Raises `NotFound` for an unknown topic, and `Unavailable` if no broker answers.
    """

    def read(self, instance_id: str, topic: str, page_request: PageRequest) -> Page:
        """Returns one page, bounded in bytes, records and time (`instances.messages.limits`)."""
        ...

    def send(self, instance_id: str, topic: str, messages: Sequence[NewMessage]) -> Sequence[SendResult]:
        """Stores messages in the order given, each partition's in one batch. Raises `OutcomeUnknown`."""
        ...

    def send_as_demo(self, instance_id: str, topic: str, messages: Sequence[NewMessage]) -> Sequence[SendResult]:
        """Stores messages as `send` does, under the client id of "push the limit", which has a client quota."""
        ...


message_admin_client: Interface[MessageAdminClient] = Interface("instances.messages.interfaces.message_admin_client")
