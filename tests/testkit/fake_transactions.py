"""In-memory transactions of a cluster for operators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from instances.groups.interfaces import (
    Partition,
    ProducerState,
    TransactionDescription,
    TransactionList,
    TransactionListing,
)
from instances.interfaces import BrokerUnresponsive
from tenants.errors import OutcomeUnknown


@dataclass(slots=True)
class FakeClusterTransactions:
    """In-memory `brokers.dataplane.transactions.ClusterTransactions`. `unresponsive_ids` are listed, but not
    described.

    `is_lost`: writes take effect, and their outcome is unknown to the caller.
    """

    descriptions: dict[str, TransactionDescription] = field(default_factory=dict)
    producer_states: dict[Partition, list[ProducerState]] = field(default_factory=dict)
    silent: tuple[BrokerUnresponsive, ...] = ()
    unresponsive_ids: set[str] = field(default_factory=set)
    unresponsive_partitions: set[Partition] = field(default_factory=set)
    fenced: list[str] = field(default_factory=list)
    aborted: list[ProducerState] = field(default_factory=list)
    is_lost: bool = False

    def add(self, name: str, *partitions: Partition, producer_id: int, state: str = "Ongoing", started_ms: int) -> None:
        self.descriptions[name] = TransactionDescription(
            id=name, state=state, producer_id=producer_id, producer_epoch=2, timeout_ms=60_000, started_ms=started_ms,
            coordinator=1, partitions=partitions,
        )  # fmt: skip

    def write(self, place: Partition, *, producer_id: int, at_ms: int, first_offset: int | None = 7) -> None:
        """Adds a producer that last wrote to a partition at an instant."""
        look = ProducerState(
            topic=place[0], partition=place[1], producer_id=producer_id, producer_epoch=2, last_sequence=9,
            last_timestamp_ms=at_ms, coordinator_epoch=0, transaction_start_offset=first_offset,
        )  # fmt: skip
        self.producer_states.setdefault(place, []).append(look)

    def transactions(self, *, producer_ids: Sequence[int] = (), open_for_ms: int = -1) -> TransactionList:
        return TransactionList(
            transactions=tuple(
                TransactionListing(id=name, producer_id=item.producer_id, state=item.state, coordinator=1)
                for name, item in sorted(self.descriptions.items())
                if not producer_ids or item.producer_id in producer_ids
            ),
            silent=self.silent,
        )

    def describe(self, ids: Sequence[str]) -> Mapping[str, TransactionDescription | None]:
        return {item: self.descriptions.get(item) for item in ids if item not in self.unresponsive_ids}

    def producers(self, partitions: Iterable[Partition]) -> Mapping[Partition, Sequence[ProducerState]]:
        return {
            place: self.producer_states.get(place, [])
            for place in partitions
            if place not in self.unresponsive_partitions
        }

    def abort(self, producer: ProducerState) -> None:
        self.aborted.append(producer)
        self.producer_states[producer.topic, producer.partition].remove(producer)
        self._answer()

    def fence(self, transactional_id: str) -> None:
        self.fenced.append(transactional_id)
        del self.descriptions[transactional_id]
        self._answer()

    def _answer(self) -> None:
        if self.is_lost:
            raise OutcomeUnknown
