"""Consumer groups and transactions as instances needs them of the app above, as ports `brokers` plugs.

Reads answer in part rather than not at all: what a broker did not say within the deadline is named in `silent` or in
a group's `trouble`, and everything else is there. Writes raise what the Kafka error means (`tenants.errors`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from instances.interfaces import BrokerUnresponsive
from tenants.cached_values import cacheable
from tenants.errors import DomainError
from tenants.interfaces import Interface

# A topic under the tenant's name, and a partition of it.
Partition = tuple[str, int]

# Where in a partition to look, beside an instant in milliseconds since 1970 (ListOffsets).
LATEST = -1
EARLIEST = -2

EMPTY_STATES = frozenset({"Empty", "Dead"})
DEAD = "Dead"


# --- groups -----------------------------------------------------------------------------------------------------------


@cacheable
@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    """A group as ListGroups tells it, with the broker that coordinates it."""

    id: str
    protocol_type: str
    state: str
    coordinator: int


@cacheable
@dataclass(frozen=True, slots=True, kw_only=True)
class GroupList:
    """Every group of an instance; those of a silent broker are missing."""

    groups: tuple[GroupListing, ...]
    silent: tuple[BrokerUnresponsive, ...]


@cacheable
@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A consumer in a group. `assignment` is None when its bytes are not those of the consumer protocol."""

    id: str
    client_id: str
    host: str
    instance_id: str | None
    assignment: tuple[Partition, ...] | None


@cacheable
@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """A group as DescribeGroups tells it. `protocol` is the assignor that the members agreed on."""

    id: str
    state: str
    protocol_type: str
    protocol: str
    coordinator: int
    members: tuple[Member, ...]


@cacheable
@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """How far a group has read a partition: the offset of the next message."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""

    @property
    def place(self) -> Partition:
        return self.topic, self.partition


@cacheable
@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSummary:
    """One group: who is in it and how far it is. A part that is not known is None, and `trouble` says why."""

    description: GroupDescription | None
    offsets: tuple[Committed, ...] | None
    trouble: str = ""


class GroupAdminClient(Protocol):
    """The admin client to consumer groups, as the instance's owner."""

    def groups(self, instance_id: str) -> GroupList:
        """All groups, as of at most a moment ago."""
        ...

    def describe(self, instance_id: str, ids: Sequence[str], *, fresh: bool = False) -> Mapping[str, GroupSummary]:
        """The named groups; `fresh` asks the brokers even if somebody asked a moment ago. An unknown one is Dead."""
        ...

    def bounds(
        self, instance_id: str, places: Iterable[Partition], at: int = LATEST, *, fresh: bool = False
    ) -> Mapping[Partition, int]:
        """The offset at an instant (ms since 1970), `EARLIEST` or `LATEST`, by partition.

        Missing where it is not known or there is no such partition; -1 where no message is as young as the instant.
        """
        ...

    def commit(self, instance_id: str, group: str, offsets: Sequence[Committed]) -> Mapping[Partition, DomainError]:
        """Write offsets of a group without members; returns the partitions refused, with what each refusal means.

        Raises `Conflict(group_not_empty)` when the group has members.
        """
        ...

    def delete_group(self, instance_id: str, group: str) -> None:
        """Raises `NotFound`, or `Conflict(group_not_empty)`."""
        ...

    def delete_offsets(
        self, instance_id: str, group: str, places: Sequence[Partition]
    ) -> Mapping[Partition, DomainError]:
        """Forget offsets; returns the partitions refused, with what each refusal means. Raises as `delete_group`."""
        ...


# --- transactions -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionListing:
    """A transactional id as ListTransactions tells it."""

    id: str
    producer_id: int
    state: str
    coordinator: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionList:
    """Transactional ids of an instance; those of a silent broker are missing."""

    transactions: tuple[TransactionListing, ...]
    silent: tuple[BrokerUnresponsive, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDescription:
    """A transactional id as DescribeTransactions tells it. `started_ms` is None where no transaction is open."""

    id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int | None
    coordinator: int
    partitions: tuple[Partition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerState:
    """A producer as a partition's leader knows it. `started_at` is its open transaction's first offset, or None."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    started_at: int | None


class TransactionAdminClient(Protocol):
    """The admin client to transactions, as the instance's owner."""

    def transactions(self, instance_id: str) -> TransactionList: ...

    def describe(self, instance_id: str, ids: Sequence[str]) -> Mapping[str, TransactionDescription | None]:
        """The named ones whose coordinator answers; None where it says that there is no such id."""
        ...

    def producers(self, instance_id: str, places: Iterable[Partition]) -> Mapping[Partition, Sequence[ProducerState]]:
        """Who writes to partitions; missing where a leader does not answer."""
        ...

    def abort(self, instance_id: str, transactional_id: str) -> None:
        """Abort the open transaction of an id: its producer is fenced. Raises `OutcomeUnknown` where nobody says."""
        ...


group_admin_client: Interface[GroupAdminClient] = Interface("instances.groups.interfaces.group_door")
transaction_admin_client: Interface[TransactionAdminClient] = Interface("instances.groups.interfaces.transaction_door")
