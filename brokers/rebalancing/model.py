"""Moving replicas between brokers: the values that plans are made of, and how many moves run at a time. Pure.

`move_plans` makes the plans. A move is one partition's change from one list of replicas to another; the first of a list
is the preferred leader.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from brokers.contract.partitions import PartitionKey


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerCapacity:
    """A broker. `accepts_replicas`: it lives and may be given replicas. `can_sell`: MB/s and GB; None is no limit."""

    id: int
    rack: str = ""
    accepts_replicas: bool = True
    can_sell: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReplicas:
    """A partition as it stands. `owner` is the instance, None for topics of the cluster's own; `topic_id` tells a topic
    from the next one of its name.

    `pinned`: it belongs to its first replica and leaves it only when that broker has stopped (`__usage`, `__audit`).
    `is_led`: it has a leader; `isr` are those who have all of it. `leader` -1 is nobody, None the first replica.
    `sizes` is what the replicas take on their brokers, where these have said so, and `size_bytes` the largest of them.
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
    """What a plan is made from. `placements` names the brokers each instance has a port on: its replicas live only
    there.

    `placements_min` is the fewest brokers an instance shall live on where the cluster has so many. `sold` is what each
    instance has bought, MB/s and GB, in equal shares of the brokers it lives on.
    """

    brokers: Mapping[int, BrokerCapacity]
    partitions: Sequence[PartitionReplicas]
    placements: Mapping[str, frozenset[int]]
    placements_min: int = 1
    sold: Mapping[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reassignment:
    """One partition's way from `before` to `target`. `loses` is a word of `brokers.choices.DataLoss`."""

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
        """The brokers that have to copy it."""
        return tuple(broker for broker in self.target if broker not in self.before)

    @property
    def removing(self) -> tuple[int, ...]:
        return tuple(broker for broker in self.before if broker not in self.target)

    @property
    def copied_bytes(self) -> int:
        """What the move sends over the network."""
        return self.size_bytes * len(self.adding)

    def reversed(self) -> Reassignment:
        """The way back."""
        return replace(self, before=self.target, target=self.before)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementChange:
    """An instance gets a port on the brokers `arriving`, and gives back those on `leaving` when all moves are done."""

    owner: str
    arriving: tuple[int, ...] = ()
    leaving: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """Why a plan cannot be carried out: what has no place to go to."""

    owner: str | None
    topic: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Moves in the order they begin. With obstacles there is nothing to run."""

    moves: tuple[Reassignment, ...] = ()
    placement_changes: tuple[PlacementChange, ...] = ()
    obstacles: tuple[Obstacle, ...] = ()

    @property
    def copied_bytes(self) -> int:
        return sum(reassignment.copied_bytes for reassignment in self.moves)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one broker holds, counted as on the map of the cluster: replicas, partitions it leads, and bytes on disk."""

    replicas: int = 0
    leaders: int = 0
    size_bytes: int = 0


def shares(
    brokers: Iterable[int], partitions: Iterable[PartitionReplicas], moves: Iterable[Reassignment] = ()
) -> dict[int, Share]:
    """What each broker holds once `moves` are done, for a table of before and after.

    Who leads a partition goes on doing so; one that is moved is led by the first of its target in the end.
    """
    targets = {reassignment.key: reassignment.target for reassignment in moves}
    replicas: Counter[int] = Counter()
    leaders: Counter[int] = Counter()
    sizes: Counter[int] = Counter()
    for partition in partitions:
        held_by = targets.get(partition.key, partition.replicas)
        replicas.update(held_by)
        leader = None if partition.key in targets else partition.leader
        leaders.update(held_by[:1] if leader is None else (leader,))
        for broker in held_by:
            sizes[broker] += partition.sizes.get(broker, partition.size_bytes)
    named = sorted({*brokers, *replicas})
    return {id: Share(replicas=replicas[id], leaders=leaders[id], size_bytes=sizes[id]) for id in named}


def next_reassignments(
    waiting: Sequence[Reassignment], running: Iterable[Reassignment], *, per_broker_max: int, begin_max: int
) -> tuple[Reassignment, ...]:
    """Which of the waiting moves may begin, in their order.

    A broker receives at most `per_broker_max` partitions at a time and sends at most as many (the sender is taken to be
    the first replica), so that clients keep most of its disk and network. A move that copies nothing begins at once; at
    most `begin_max` begin together, so that one request to the brokers stays small.
    """
    receives: Counter[int] = Counter()
    sends: Counter[int] = Counter()
    for reassignment in running:
        receives.update(reassignment.adding)
        sends.update(reassignment.before[:1] if reassignment.adding else ())
    chosen: list[Reassignment] = []
    for reassignment in waiting:
        if len(chosen) >= begin_max:
            break
        if reassignment.adding:
            if any(receives[broker] >= per_broker_max for broker in reassignment.adding):
                continue
            if any(sends[broker] >= per_broker_max for broker in reassignment.before[:1]):
                continue
            receives.update(reassignment.adding)
            sends.update(reassignment.before[:1])
        chosen.append(reassignment)
    return tuple(chosen)
