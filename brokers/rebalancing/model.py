"""Data classes of reassignment plans, loads of brokers, and the choice of the moves that may begin. Pure.

`planner` makes the plans. A move changes one partition from one list of replicas to another; the first of a list is
the preferred leader.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from django.utils.translation import gettext_noop

from brokers.contract.partitions import PartitionKey
from tenants.errors import Message

# Reason that concerns one of many partitions.
AT_PARTITION = gettext_noop("%(partition)s: %(why)s")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerCapacity:
    """A broker. `accepts_replicas`: it is live and may get replicas. `can_sell`: MB/s and GB; None is no limit."""

    id: int
    rack: str = ""
    accepts_replicas: bool = True
    can_sell: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReplicas:
    """The current replicas of a partition. `owner` is the instance, None for internal topics of the cluster; `topic_id`
    distinguishes a topic from later ones of the same name.

    `pinned`: it belongs to its first replica and leaves it only when that broker has stopped (`__usage`, `__audit`).
    `is_led`: it has a leader; `isr` are the in-sync replicas. `leader` -1 is no leader, None the first replica. `sizes`
    holds the reported sizes of its replicas by broker, and `size_bytes` is the largest of them.
    """

    topic: str
    index: int
    replicas: tuple[int, ...]
    owner: str | None = None
    size_bytes: int = 0
    pinned: bool = False
    topic_id: str = ""
    is_led: bool = True
    isr: tuple[int, ...] = ()
    leader: int | None = None
    sizes: Mapping[int, int] = field(default_factory=dict)

    @property
    def key(self) -> PartitionKey:
        return self.topic, self.index


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """The input of a plan. `placements` names the brokers on which each instance has a port: its replicas may only be
    there.

    `placements_min` is the minimum number of brokers of an instance, as far as the cluster has them. `sold` is the size
    of each instance, MB/s and GB, divided equally among its brokers.
    """

    brokers: Mapping[int, BrokerCapacity]
    partitions: Sequence[PartitionReplicas]
    placements: Mapping[str, frozenset[int]]
    placements_min: int = 1
    sold: Mapping[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reassignment:
    """The change of one partition from `before` to `target`. `loses` is a value of `brokers.choices.DataLoss`."""

    topic: str
    index: int
    before: tuple[int, ...]
    target: tuple[int, ...]
    size_bytes: int = 0
    topic_id: str = ""
    loses: str = ""

    @property
    def key(self) -> PartitionKey:
        return self.topic, self.index

    @property
    def adding(self) -> tuple[int, ...]:
        """The brokers that have to copy the partition."""
        return tuple(broker for broker in self.target if broker not in self.before)

    @property
    def removing(self) -> tuple[int, ...]:
        return tuple(broker for broker in self.before if broker not in self.target)

    @property
    def copied_bytes(self) -> int:
        """The bytes that the move sends over the network."""
        return self.size_bytes * len(self.adding)

    def reversed(self) -> Reassignment:
        """Returns the reassignment that undoes this one."""
        return replace(self, before=self.target, target=self.before)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementChange:
    """An instance gets a port on the brokers `arriving`, and releases those on `leaving` when all moves are done."""

    owner: str
    arriving: tuple[int, ...] = ()
    leaving: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """The reason why a plan cannot be executed: a topic, or an instance (`topic` is empty), has no possible target."""

    owner: str | None
    topic: str
    detail: str

    @property
    def sentence(self) -> Message:
        """The reason, after the name of the topic or the id of the instance."""
        return Message(AT_PARTITION, partition=self.topic or self.owner, why=self.detail)


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalancePlan:
    """Moves in the order they begin. A plan with obstacles has no moves."""

    moves: tuple[Reassignment, ...] = ()
    placement_changes: tuple[PlacementChange, ...] = ()
    obstacles: tuple[Obstacle, ...] = ()

    @property
    def copied_bytes(self) -> int:
        return sum(reassignment.copied_bytes for reassignment in self.moves)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The load of one broker, counted as on the map of the cluster: replicas, partitions it leads, and
    bytes on disk.
    """

    replicas: int = 0
    leaders: int = 0
    size_bytes: int = 0


def shares(
    brokers: Iterable[int], partitions: Iterable[PartitionReplicas], moves: Iterable[Reassignment] = ()
) -> dict[int, Share]:
    """Returns the load of each broker once `moves` are done, for a table of before and after.

    The leader of a partition stays leader; a moved partition is led by the first replica of its target in the end.
    """
    targets = {reassignment.key: reassignment.target for reassignment in moves}
    replicas: Counter[int] = Counter()
    leaders: Counter[int] = Counter()
    sizes: Counter[int] = Counter()
    for partition in partitions:
        broker_ids_of_partition = targets.get(partition.key, partition.replicas)
        replicas.update(broker_ids_of_partition)
        leader = None if partition.key in targets else partition.leader
        leaders.update(broker_ids_of_partition[:1] if leader is None else (leader,))
        for broker in broker_ids_of_partition:
            sizes[broker] += partition.sizes.get(broker, partition.size_bytes)
    broker_ids = sorted({*brokers, *replicas})
    return {id: Share(replicas=replicas[id], leaders=leaders[id], size_bytes=sizes[id]) for id in broker_ids}


def next_reassignments(
    waiting: Sequence[Reassignment], running: Iterable[Reassignment], *, per_broker_max: int, begin_max: int
) -> tuple[Reassignment, ...]:
    """Returns the waiting moves that may begin, in their order.

    A broker receives at most `per_broker_max` partitions at a time and sends at most as many (the sender is assumed to
    be the first replica), so that clients keep most of its disk and network. A move that copies nothing begins
    immediately; at most `begin_max` begin together, which bounds the size of a request to the brokers.
    """
    receiving_by_broker: Counter[int] = Counter()
    sending_by_broker: Counter[int] = Counter()
    for reassignment in running:
        receiving_by_broker.update(reassignment.adding)
        sending_by_broker.update(reassignment.before[:1] if reassignment.adding else ())
    startable: list[Reassignment] = []
    for reassignment in waiting:
        if len(startable) >= begin_max:
            break
        if reassignment.adding:
            if any(receiving_by_broker[broker] >= per_broker_max for broker in reassignment.adding):
                continue
            if any(sending_by_broker[broker] >= per_broker_max for broker in reassignment.before[:1]):
                continue
            receiving_by_broker.update(reassignment.adding)
            sending_by_broker.update(reassignment.before[:1])
        startable.append(reassignment)
    return tuple(startable)
