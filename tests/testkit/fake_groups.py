"""In-memory consumer groups and transactions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from instances.groups.interfaces import (
    DEAD,
    EARLIEST,
    EMPTY_STATES,
    LATEST,
    CommittedOffset,
    GroupDescription,
    GroupList,
    GroupListing,
    GroupMember,
    GroupSummary,
    Partition,
    ProducerState,
    TransactionDescription,
    TransactionList,
    TransactionListing,
)
from instances.interfaces import BrokerUnresponsive
from tenants.errors import Conflict, DomainError, NotFound, OutcomeUnknown, Unavailable

COORDINATOR = 1


def member(name: str, *assigned: Partition, instance_id: str | None = None) -> GroupMember:
    """Returns a consumer called `name` on its own host."""
    return GroupMember(
        id=f"{name}-id", client_id=name, host="10.0.0.7", instance_id=instance_id, assignment=tuple(sorted(assigned))
    )


@dataclass(slots=True)
class FakeGroups:
    """In-memory `instances.groups.interfaces.GroupAdminClient`, by (instance id, group). `logs` are (start, end) of
    partitions.

    `unresponsive_groups` have a coordinator that does not answer, `unresponsive_partitions` such a leader. Commits for
    `refused_partitions` are refused, and deletions of offsets in `deletion_errors`, with that error.
    """

    descriptions: dict[tuple[str, str], GroupDescription] = field(default_factory=dict)
    offsets: dict[tuple[str, str], dict[Partition, CommittedOffset]] = field(default_factory=dict)
    logs: dict[Partition, tuple[int, int]] = field(default_factory=dict)
    # Offset that each look-up by time returns, whatever the time.
    offset_by_time: dict[Partition, int] = field(default_factory=dict)
    silent: tuple[BrokerUnresponsive, ...] = ()
    unresponsive_groups: set[str] = field(default_factory=set)
    unresponsive_partitions: set[Partition] = field(default_factory=set)
    refused_partitions: set[Partition] = field(default_factory=set)
    deletion_errors: dict[Partition, DomainError] = field(default_factory=dict)
    is_down: bool = False
    # Changes take effect, and their outcome is unknown to the caller.
    is_lost: bool = False
    described_ids: list[tuple[str, ...]] = field(default_factory=list)

    def add(
        self, instance_id: str, name: str, offsets: Mapping[Partition, int], *members: GroupMember, state: str = ""
    ) -> None:
        """Adds a group with offsets; it is Stable if it has members."""
        self.descriptions[instance_id, name] = GroupDescription(
            id=name,
            state=state or ("Stable" if members else "Empty"),
            protocol_type="consumer",
            protocol="range" if members else "",
            coordinator=COORDINATOR,
            members=members,
        )
        self.offsets[instance_id, name] = {}
        self._set(instance_id, name, [CommittedOffset(topic=t, partition=p, offset=o) for (t, p), o in offsets.items()])

    def committed(self, instance_id: str, name: str) -> dict[Partition, int]:
        """Returns the committed offsets, for comparisons."""
        return {place: item.offset for place, item in self.offsets.get((instance_id, name), {}).items()}

    def groups(self, instance_id: str) -> GroupList:
        self._require_up()
        return GroupList(
            groups=tuple(
                GroupListing(id=name, protocol_type="consumer", state=result.state, coordinator=COORDINATOR)
                for (owner, name), result in sorted(self.descriptions.items())
                if owner == instance_id
            ),
            silent=self.silent,
        )

    def describe(self, instance_id: str, ids: Sequence[str], *, fresh: bool = False) -> Mapping[str, GroupSummary]:
        self._require_up()
        self.described_ids.append(tuple(ids))
        return {item: self._look(instance_id, item) for item in ids}

    def _look(self, instance_id: str, name: str) -> GroupSummary:
        if name in self.unresponsive_groups:
            return GroupSummary(description=None, offsets=None, trouble="broker 1 does not answer")
        dead = GroupDescription(id=name, state=DEAD, protocol_type="", protocol="", coordinator=COORDINATOR, members=())
        offsets = self.offsets.get((instance_id, name), {})
        return GroupSummary(
            description=self.descriptions.get((instance_id, name), dead),
            offsets=tuple(offsets[place] for place in sorted(offsets)),
        )

    def bounds(
        self, instance_id: str, partitions: Iterable[Partition], at_ms_or_position: int = LATEST, *, fresh: bool = False
    ) -> Mapping[Partition, int]:
        self._require_up()
        result = {
            place: self.logs[place]
            for place in partitions
            if place in self.logs and place not in self.unresponsive_partitions
        }
        if at_ms_or_position in (EARLIEST, LATEST):
            return {place: log[0] if at_ms_or_position == EARLIEST else log[1] for place, log in result.items()}
        return {place: self.offset_by_time.get(place, -1) for place in result}

    def delete_records(self, instance_id: str, topic: str, offsets: Mapping[int, int]) -> Mapping[int, DomainError]:
        """Moves log starts like `instances.interfaces.delete_records`; partitions in `refuses` refuse."""
        self._require_up()
        refusal = Unavailable("No broker leads the partition.", retry_after_s=1)
        if self.is_lost:
            return dict.fromkeys(offsets, OutcomeUnknown())
        for index, offset in offsets.items():
            if (topic, index) not in self.refused_partitions:
                self.logs[topic, index] = (offset, self.logs[topic, index][1])
        return {index: refusal for index in offsets if (topic, index) in self.refused_partitions}

    def commit(
        self, instance_id: str, group: str, offsets: Sequence[CommittedOffset]
    ) -> Mapping[Partition, DomainError]:
        self._require_empty(instance_id, group)
        if (instance_id, group) not in self.descriptions:
            self.add(instance_id, group, {})
        self._set(
            instance_id, group, [offset for offset in offsets if offset.topic_partition not in self.refused_partitions]
        )
        self._lose()
        refusal = Unavailable("The brokers answered: Refused by a test.", retry_after_s=1)
        return {
            offset.topic_partition: refusal for offset in offsets if offset.topic_partition in self.refused_partitions
        }

    def delete_group(self, instance_id: str, group: str) -> None:
        self._require_empty(instance_id, group)
        if self.descriptions.pop((instance_id, group), None) is None:
            raise NotFound
        self.offsets.pop((instance_id, group), None)
        self._lose()

    def delete_offsets(
        self, instance_id: str, group: str, partitions: Sequence[Partition]
    ) -> Mapping[Partition, DomainError]:
        self._require_up()
        for place in partitions:
            if place not in self.deletion_errors:
                self.offsets[instance_id, group].pop(place, None)
        description = self.descriptions.get((instance_id, group))
        if description is not None and description.state in EMPTY_STATES and not self.offsets[instance_id, group]:
            del self.descriptions[instance_id, group]  # a group with neither members nor offsets is gone
        self._lose()
        return {place: self.deletion_errors[place] for place in partitions if place in self.deletion_errors}

    def _set(self, instance_id: str, name: str, offsets: Iterable[CommittedOffset]) -> None:
        self.offsets[instance_id, name] |= {offset.topic_partition: offset for offset in offsets}

    def _require_empty(self, instance_id: str, group: str) -> None:
        self._require_up()
        description = self.descriptions.get((instance_id, group))
        if description is not None and description.state not in EMPTY_STATES:
            raise Conflict("The group has running members.", code="group_not_empty")

    def _lose(self) -> None:
        if self.is_lost:
            raise OutcomeUnknown

    def _require_up(self) -> None:
        if self.is_down:
            raise Unavailable("No broker of the instance answers.", retry_after_s=1)


@dataclass(slots=True)
class FakeTransactions:
    """In-memory `instances.groups.interfaces.TransactionAdminClient`, by (instance id, transactional id)."""

    descriptions: dict[tuple[str, str], TransactionDescription] = field(default_factory=dict)
    producer_states: dict[Partition, list[ProducerState]] = field(default_factory=dict)
    silent: tuple[BrokerUnresponsive, ...] = ()
    unresponsive_ids: set[str] = field(default_factory=set)
    # Ids that a list leaves out, as if their coordinator were down.
    unlisted: set[str] = field(default_factory=set)

    def add(self, instance_id: str, name: str, *partitions: Partition, state: str = "Ongoing", started_ms: int) -> None:
        producer_id = 1_000 + len(self.descriptions)
        self.descriptions[instance_id, name] = TransactionDescription(
            id=name,
            state=state,
            producer_id=producer_id,
            producer_epoch=3,
            timeout_ms=60_000,
            started_ms=started_ms,
            coordinator=COORDINATOR,
            partitions=partitions,
        )
        for topic, index in partitions:
            describe = ProducerState(
                topic=topic, partition=index, producer_id=producer_id, producer_epoch=3, last_sequence=4,
                last_timestamp_ms=started_ms, coordinator_epoch=0, transaction_start_offset=120,
            )  # fmt: skip
            self.producer_states.setdefault((topic, index), []).append(describe)

    def transactions(self, instance_id: str) -> TransactionList:
        return TransactionList(
            transactions=tuple(
                TransactionListing(id=name, producer_id=item.producer_id, state=item.state, coordinator=COORDINATOR)
                for (owner, name), item in sorted(self.descriptions.items())
                if owner == instance_id and name not in self.unlisted
            ),
            silent=self.silent,
        )

    def describe(self, instance_id: str, ids: Sequence[str]) -> Mapping[str, TransactionDescription | None]:
        return {item: self.descriptions.get((instance_id, item)) for item in ids if item not in self.unresponsive_ids}

    def producers(
        self, instance_id: str, partitions: Iterable[Partition]
    ) -> Mapping[Partition, Sequence[ProducerState]]:
        return {place: self.producer_states[place] for place in partitions if place in self.producer_states}

    def abort(self, instance_id: str, transactional_id: str) -> None:
        known = self.descriptions[instance_id, transactional_id]
        self.descriptions[instance_id, transactional_id] = replace(known, state="CompleteAbort", started_ms=None)
