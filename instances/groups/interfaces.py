"""Consumer groups and transactions of an instance as interfaces that `brokers` implements.

Reads return a partial result instead of failing: brokers that did not answer in time are named in `silent` or in a
group's `trouble`. Writes raise the error that corresponds to the Kafka error (`tenants.errors`).
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

# Positions in a partition, besides an instant in milliseconds since 1970 (ListOffsets).
LATEST = -1
EARLIEST = -2

EMPTY_STATES = frozenset({"Empty", "Dead"})
DEAD = "Dead"


# --- groups -----------------------------------------------------------------------------------------------------------


@cacheable
@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    """A group as in ListGroups, with the broker that coordinates it."""

    id: str
    protocol_type: str
    state: str
    coordinator: int


@cacheable
@dataclass(frozen=True, slots=True, kw_only=True)
class GroupList:
    """Every group of an instance; those of an unresponsive broker are missing."""

    groups: tuple[GroupListing, ...]
    silent: tuple[BrokerUnresponsive, ...]


@cacheable
@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """A consumer in a group. `assignment` is None when its bytes are not those of the consumer protocol."""

    id: str
    client_id: str
    host: str
    instance_id: str | None
    assignment: tuple[Partition, ...] | None


@cacheable
@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """A group as in DescribeGroups. `protocol` is the assignor that the members agreed on."""

    id: str
    state: str
    protocol_type: str
    protocol: str
    coordinator: int
    members: tuple[GroupMember, ...]


@cacheable
@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    """The committed offset of a group in a partition: the offset of the next message."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""

    @property
    def topic_partition(self) -> Partition:
        return self.topic, self.partition


@cacheable
@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSummary:
    """Members and offsets of one group. A part that is not known is None, and `trouble` gives the reason."""

    description: GroupDescription | None
    offsets: tuple[CommittedOffset, ...] | None
    trouble: str = ""


class GroupAdminClient(Protocol):
    """The admin client for consumer groups, acting as the instance's owner."""

    def groups(self, instance_id: str) -> GroupList:
        """Returns all groups; the list is cached for two seconds."""
        ...

    def describe(self, instance_id: str, ids: Sequence[str], *, fresh: bool = False) -> Mapping[str, GroupSummary]:
        """Returns the named groups; `fresh` bypasses the cache. An unknown group is Dead."""
        ...

    def bounds(
        self,
        instance_id: str,
        partitions: Iterable[Partition],
        at_ms_or_position: int = LATEST,
        *,
        fresh: bool = False,
    ) -> Mapping[Partition, int]:
        """Returns the offset at an instant (ms since 1970), `EARLIEST` or `LATEST`, by partition.

        Missing if it is not known or the partition does not exist; -1 if no message has this timestamp or a later one.
        """
        ...

    def commit(
        self, instance_id: str, group: str, offsets: Sequence[CommittedOffset]
    ) -> Mapping[Partition, DomainError]:
        """Commits offsets of a group without members; returns the refused partitions, with the error of each.

        Raises `Conflict(group_not_empty)` if the group has members.
        """
        ...

    def delete_group(self, instance_id: str, group: str) -> None:
        """Deletes a group. Raises `NotFound`, or `Conflict(group_not_empty)`."""
        ...

    def delete_offsets(
        self, instance_id: str, group: str, partitions: Sequence[Partition]
    ) -> Mapping[Partition, DomainError]:
        """Deletes offsets; returns the refused partitions, with the error of each. Raises the errors of
        `delete_group`.
        """
        ...


# --- transactions -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionListing:
    """A transactional id as in ListTransactions."""

    id: str
    producer_id: int
    state: str
    coordinator: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionList:
    """Transactional ids of an instance; those of an unresponsive broker are missing."""

    transactions: tuple[TransactionListing, ...]
    silent: tuple[BrokerUnresponsive, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDescription:
    """A transactional id as in DescribeTransactions. `started_ms` is None if no transaction is open."""

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
    """The state of a producer at a partition's leader. `transaction_start_offset` is the first offset of its open
    transaction, or None.
    """

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start_offset: int | None


class TransactionAdminClient(Protocol):
    """The admin client for transactions, acting as the instance's owner."""

    def transactions(self, instance_id: str) -> TransactionList: ...

    def describe(self, instance_id: str, ids: Sequence[str]) -> Mapping[str, TransactionDescription | None]:
        """Returns the named ids whose coordinator answers; None if the id does not exist."""
        ...

    def producers(
        self, instance_id: str, partitions: Iterable[Partition]
    ) -> Mapping[Partition, Sequence[ProducerState]]:
        """Returns the producers of partitions; partitions whose leader does not answer are missing."""
        ...

    def abort(self, instance_id: str, transactional_id: str) -> None:
        """Aborts the open transaction of an id: its producer is fenced. Raises `OutcomeUnknown` if the result is
        unknown.
        """
        ...


group_admin_client: Interface[GroupAdminClient] = Interface("instances.groups.interfaces.group_admin_client")
transaction_admin_client: Interface[TransactionAdminClient] = Interface(
    "instances.groups.interfaces.transaction_admin_client"
)
