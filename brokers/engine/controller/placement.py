"""Assignment of replicas to brokers (ASG-1…9). Pure: randomness is passed in as `start` and `shift`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from brokers.engine.cluster.errors import InvalidReplicationFactor
from brokers.engine.config import STRATEGIES, STRATEGY_DEFAULT, STRATEGY_KEY, Strategy
from brokers.engine.errors import SettingsWrong

Assignment = dict[int, tuple[int, ...]]


def strategy_from(overrides: Mapping[str, str]) -> Strategy:
    """Returns the strategy that a broker's settings contain (ASG-4). Raises SettingsWrong for an unknown one."""
    value = overrides.get(STRATEGY_KEY, STRATEGY_DEFAULT)
    if value not in STRATEGIES:
        raise SettingsWrong(f"{STRATEGY_KEY} is one of {', '.join(sorted(STRATEGIES))}, not {value!r}")
    return cast(Strategy, value)


def random_shift(
    brokers: Sequence[int], *, partitions: int, replication_factor: int, start: int, shift: int, first_id: int = 0
) -> Assignment:
    """Assigns replicas round-robin with a random start and shift (ASG-1).

    `brokers` are sorted; `start` and `shift` are in `[0, len(brokers))`.
    """
    _check_factor(replication_factor, len(brokers))
    count = len(brokers)
    assignment: Assignment = {}
    for partition in range(first_id, first_id + partitions):
        if partition > 0 and partition % count == 0:
            shift += 1
        first = (partition + start) % count
        followers = (
            brokers[(first + 1 + (shift + follower) % (count - 1)) % count]
            for follower in range(replication_factor - 1)
        )
        assignment[partition] = (brokers[first], *followers)
    return assignment


def round_robin(
    brokers: Sequence[int], *, partitions: int, replication_factor: int, start: int = 0, first_id: int = 0
) -> Assignment:
    """Assigns replicas round-robin: partition i begins at broker (i + `start`) mod n, its replicas follow (ASG-3)."""
    _check_factor(replication_factor, len(brokers))
    count = len(brokers)
    return {
        partition: tuple(brokers[(partition + start + replica) % count] for replica in range(replication_factor))
        for partition in range(first_id, first_id + partitions)
    }


def rack_round_robin(
    racks: Mapping[int, str], *, partitions: int, replication_factor: int, start: int = 0, first_id: int = 0
) -> Assignment:
    """Assigns replicas like `round_robin` over brokers interleaved by rack.

    A rack gets a second replica of a partition only after every rack has one: brokers of such a rack are passed over.
    """
    _check_factor(replication_factor, len(racks))
    order = interleave_racks(racks)
    count = len(order)
    assignment: Assignment = {}
    for partition in range(first_id, first_id + partitions):
        first = (partition + start) % count
        candidates = order[first:] + order[:first]
        assignment[partition] = _one_of_each_rack_first(candidates, racks)[:replication_factor]
    return assignment


def _one_of_each_rack_first(brokers: Sequence[int], racks: Mapping[int, str]) -> tuple[int, ...]:
    """Returns the first broker of each rack, then the others, both in their order."""
    firsts: list[int] = []
    others: list[int] = []
    used_racks: set[str] = set()
    for broker in brokers:
        (others if racks[broker] in used_racks else firsts).append(broker)
        used_racks.add(racks[broker])
    return (*firsts, *others)


def rack_aware(
    racks: Mapping[int, str],
    *,
    partitions: int,
    replication_factor: int,
    start: int,
    shift: int,
    first_id: int = 0,
) -> Assignment:
    """Assigns replicas like `random_shift` over brokers interleaved by rack (ASG-6).

    A rack gets a second replica of a partition only after every rack has one.
    """
    _check_factor(replication_factor, len(racks))
    order = interleave_racks(racks)
    count, rack_count = len(order), len(set(racks.values()))
    assignment: Assignment = {}
    for partition in range(first_id, first_id + partitions):
        if partition > 0 and partition % count == 0:
            shift += 1
        first = (partition + start) % count
        chosen = [order[first]]
        used_racks = {racks[order[first]]}
        offset = 0
        while len(chosen) < replication_factor:
            candidate = order[(first + 1 + (shift * rack_count + offset) % (count - 1)) % count]
            offset += 1
            rack = racks[candidate]
            rack_must_wait = rack in used_racks and len(used_racks) < rack_count
            if rack_must_wait or candidate in chosen:
                continue
            chosen.append(candidate)
            used_racks.add(rack)
        assignment[partition] = tuple(chosen)
    return assignment


def interleave_racks(racks: Mapping[int, str]) -> list[int]:
    """Returns the brokers with their racks alternating; racks and ids are in order."""
    queues = {
        rack: sorted(id for id, own_rack in racks.items() if own_rack == rack) for rack in sorted(set(racks.values()))
    }
    order: list[int] = []
    while len(order) < len(racks):
        order.extend(queue.pop(0) for queue in queues.values() if queue)
    return order


@dataclass(frozen=True)
class Placer:
    """Callable that assigns replicas in a cluster; implements `cluster.topic_plans.AssignReplicas`.

    `random_below(n)` returns an integer in `[0, n)`.
    """

    random_below: Callable[[int], int]
    strategy: Strategy = STRATEGY_DEFAULT

    def __call__(
        self,
        brokers: Mapping[int, str | None],
        *,
        partitions: int,
        replication_factor: int,
        first_id: int = 0,
        first_broker: int | None = None,
    ) -> Assignment:
        ids = sorted(brokers)
        _check_factor(replication_factor, len(ids))
        racks = {id: rack for id, rack in brokers.items() if rack is not None}
        if racks and len(racks) < len(ids):
            raise InvalidReplicationFactor("Not all brokers have rack information for replica rack aware assignment.")
        order = interleave_racks(racks) if racks else ids
        start, shift = self._offsets(order, first_id, first_broker)
        sizes = {"partitions": partitions, "replication_factor": replication_factor, "first_id": first_id}
        if self.strategy == "round_robin":
            return rack_round_robin(racks, start=start, **sizes) if racks else round_robin(ids, start=start, **sizes)
        if racks:
            return rack_aware(racks, start=start, shift=shift, **sizes)
        return random_shift(ids, start=start, shift=shift, **sizes)

    def _offsets(self, order: Sequence[int], first_id: int, first_broker: int | None) -> tuple[int, int]:
        """Returns start and shift (ASG-5).

        Added partitions start from the first replica of partition 0, or from the first broker if that replica is gone.
        """
        if first_id > 0:
            start = order.index(first_broker) if first_broker in order else 0
            return start, start
        if self.strategy == "round_robin":
            return 0, 0
        return self.random_below(len(order)), self.random_below(len(order))


def _check_factor(replication_factor: int, brokers: int) -> None:
    if replication_factor <= 0:
        raise InvalidReplicationFactor("Replication factor must be larger than 0.")
    if replication_factor > brokers:
        raise InvalidReplicationFactor(
            f"Replication factor: {replication_factor} larger than available brokers: {brokers}."
        )
