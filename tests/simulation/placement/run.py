"""One run: 50 clusters of six brokers in three zones, filled with about 20 instances each, and its promises.

Nothing is sold twice, a refusal is never wrong, a tenant's instances and an instance's brokers are spread, and no
partition has two replicas in a zone while another zone has a broker without one.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Final, TypeVar

from brokers.engine.controller.placement import Placer
from brokers.placement import placement
from brokers.placement.placement import BrokerHeadroom, ClusterChoice, ClusterHeadroom

T = TypeVar("T")
CLUSTERS: Final = 50
ZONES: Final = ("east", "middle", "west")
BROKERS_PER_ZONE: Final = 2
INSTANCES_PER_CLUSTER: Final = 20
TENANTS: Final = 40
BROKERS_MIN: Final = 3
BROKER_MB_S, BROKER_GB = 500, 1_200
# Sizes with their weights; the largest need four and six brokers.
SIZES_MB_S: Final = {1: 30, 5: 30, 20: 20, 50: 10, 100: 4, 1_800: 6}
SIZES_GB: Final = {1: 40, 20: 30, 200: 20, 1_000: 8, 7_000: 2}
PARTITIONS, FACTOR = 12, 3
# Chances of the steps: most instances stay.
CHANCES: Final = {"create": 70, "delete": 14, "silence": 6, "answer": 6, "topic": 4}
SILENT_MAX: Final = 30


@dataclass(slots=True)
class PlacedInstance:
    """Place and size of an instance."""

    tenant: int
    cluster: str
    brokers: tuple[str, ...]
    mb_s: int
    gb: int


@dataclass(slots=True)
class SimulatedBroker:
    id: str
    number: int
    zone: str
    is_healthy: bool = True
    sold_mb_s: Fraction = field(default_factory=Fraction)
    sold_gb: Fraction = field(default_factory=Fraction)

    def sell(self, mb_s: Fraction, gb: Fraction) -> None:
        self.sold_mb_s += mb_s
        self.sold_gb += gb
        assert self.sold_mb_s <= BROKER_MB_S, f"{self.id} has sold {self.sold_mb_s} MB/s"
        assert self.sold_gb <= BROKER_GB, f"{self.id} has sold {self.sold_gb} GB"


class PlacementRun:
    """Random steps on the fleet; a refused instance is given up."""

    def __init__(self, seed: int, _home: Path | None = None) -> None:
        self._random = random.Random(seed)
        self._placer = Placer(self._random.randrange)
        self._clusters = {
            f"cl-{number:02}": [
                SimulatedBroker(f"cl-{number:02}/{index}", index, ZONES[index % len(ZONES)])
                for index in range(len(ZONES) * BROKERS_PER_ZONE)
            ]
            for number in range(CLUSTERS)
        }
        self._brokers = {broker.id: broker for brokers in self._clusters.values() for broker in brokers}
        # Rooms of the brokers of each cluster, until one of them changes.
        self._headroom_by_cluster: dict[str, tuple[BrokerHeadroom, ...]] = {}
        self._placed: list[PlacedInstance] = []
        self.history: list[str] = []

    def step(self) -> None:
        name = self._draw(CHANCES)
        if name == "create":
            self._create()
        elif name == "delete" or len(self._placed) > CLUSTERS * INSTANCES_PER_CLUSTER:
            self._delete()
        elif name == "topic":
            self._make_topic()
        else:
            self._change_health(is_healthy=name == "answer")

    def _draw(self, weights: Mapping[T, int]) -> T:
        return self._random.choices(list(weights), weights=list(weights.values()))[0]

    def check(self) -> None:
        """Compares what brokers have sold with the sizes of the instances on them."""
        sold: dict[str, list[Fraction]] = {id: [Fraction(), Fraction()] for id in self._brokers}
        for placed in self._placed:
            for id in placed.brokers:
                sold[id][0] += Fraction(placed.mb_s, len(placed.brokers))
                sold[id][1] += Fraction(placed.gb, len(placed.brokers))
        assert sold == {id: [broker.sold_mb_s, broker.sold_gb] for id, broker in self._brokers.items()}

    def finish(self) -> None:
        """Deletes everything: all of what was sold is free again."""
        while self._placed:
            self._delete()
        assert not any(broker.sold_mb_s or broker.sold_gb for broker in self._brokers.values())

    def close(self) -> None:
        """Has nothing to release."""

    def _create(self) -> None:
        tenant, mb_s, gb = self._random.randrange(TENANTS), self._draw(SIZES_MB_S), self._draw(SIZES_GB)
        rooms = self._rooms(tenant)
        choice = placement.choose_cluster(rooms, bandwidth_mb_s=mb_s, storage_gb=gb)
        self.history.append(f"create {mb_s} MB/s {gb} GB for {tenant}: {choice and choice.broker_ids}")
        chosen = next((room for room in rooms if choice is not None and room.id == choice.cluster_id), None)
        better = [room for room in rooms if chosen is None or room.own_instances < chosen.own_instances]
        passed_over = next((room for room in better if _sizes_that_fit(room, mb_s, gb)), None)
        assert passed_over is None, f"{passed_over} had room for {mb_s} MB/s and {gb} GB"
        if choice is None or chosen is None:
            return
        _check_brokers(chosen, choice, mb_s, gb)
        placed = PlacedInstance(tenant, choice.cluster_id, choice.broker_ids, mb_s, gb)
        self._placed.append(placed)
        self._sell(placed, 1)

    def _delete(self) -> None:
        if self._placed:
            placed = self._placed.pop(self._random.randrange(len(self._placed)))
            self.history.append(f"delete from {placed.brokers}")
            self._sell(placed, -1)

    def _sell(self, placed: PlacedInstance, sign: int) -> None:
        count = len(placed.brokers)
        self._headroom_by_cluster.pop(placed.cluster, None)
        for id in placed.brokers:
            self._brokers[id].sell(Fraction(sign * placed.mb_s, count), Fraction(sign * placed.gb, count))

    def _change_health(self, *, is_healthy: bool) -> None:
        others = [broker for broker in self._brokers.values() if broker.is_healthy != is_healthy]
        silent = len(others) if is_healthy else len(self._brokers) - len(others)
        if others and (is_healthy or silent < SILENT_MAX):
            broker = self._random.choice(others)
            broker.is_healthy = is_healthy
            self._headroom_by_cluster.clear()
            self.history.append(f"{broker.id} {'answers' if is_healthy else 'is silent'}")

    def _make_topic(self) -> None:
        """Places a topic on the brokers of an instance, as the brokers of its cluster do."""
        if not self._placed:
            return
        placed = self._random.choice(self._placed)
        zones: dict[int, str | None] = {self._brokers[id].number: self._brokers[id].zone for id in placed.brokers}
        self.history.append(f"topic on {placed.brokers}")
        factor = min(FACTOR, len(zones))
        assigned = self._placer(zones, partitions=PARTITIONS, replication_factor=factor)
        for replicas in assigned.values():
            assert len(set(replicas)) == factor
            assert len({zones[number] for number in replicas}) == min(factor, len(set(zones.values()))), replicas

    def _rooms(self, tenant: int) -> list[ClusterHeadroom]:
        own = Counter(placed.cluster for placed in self._placed if placed.tenant == tenant)
        return [
            ClusterHeadroom(id=id, brokers_min=BROKERS_MIN, own_instances=own[id], brokers=self._brokers_of(id))
            for id in self._clusters
        ]

    def _brokers_of(self, cluster: str) -> tuple[BrokerHeadroom, ...]:
        if cluster not in self._headroom_by_cluster:
            self._headroom_by_cluster[cluster] = tuple(
                BrokerHeadroom(
                    id=broker.id,
                    number=broker.number,
                    free_bandwidth_mb_s=BROKER_MB_S - broker.sold_mb_s,
                    free_storage_gb=BROKER_GB - broker.sold_gb,
                    is_healthy=broker.is_healthy,
                    zone=broker.zone,
                )
                for broker in self._clusters[cluster]
            )
        return self._headroom_by_cluster[cluster]


def _with_room(room: ClusterHeadroom, count: int, mb_s: int, gb: int) -> list[BrokerHeadroom]:
    """Returns the brokers with room for an equal share of `count`."""
    share_mb_s, share_gb = Fraction(mb_s, count), Fraction(gb, count)
    return [
        broker
        for broker in room.brokers
        if broker.free_bandwidth_mb_s >= share_mb_s and broker.free_storage_gb >= share_gb
    ]


def _sizes_that_fit(room: ClusterHeadroom, mb_s: int, gb: int) -> list[int]:
    """Returns every number of brokers on which the instance would fit; none in a cluster where no broker answers."""
    if not any(broker.is_healthy for broker in room.brokers):
        return []
    counts = range(min(BROKERS_MIN, len(room.brokers)), len(room.brokers) + 1)
    return [count for count in counts if len(_with_room(room, count, mb_s, gb)) >= count]


def _check_brokers(room: ClusterHeadroom, choice: ClusterChoice, mb_s: int, gb: int) -> None:
    """Checks that the brokers have room and are in as many zones as such brokers are; silent ones only in need."""
    count = len(choice.broker_ids)
    able = _with_room(room, count, mb_s, gb)
    chosen = [broker for broker in able if broker.id in choice.broker_ids]
    assert len(chosen) == count >= min(BROKERS_MIN, len(room.brokers)), choice
    answering = [broker for broker in able if broker.is_healthy]
    if all(broker.is_healthy for broker in chosen):
        able = answering
    else:
        assert len(answering) < count, f"{choice} has silent brokers, and {len(answering)} answer"
    assert len({broker.zone for broker in chosen}) == min(count, len({broker.zone for broker in able})), choice
