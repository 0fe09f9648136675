"""The cluster's door kept in dicts: moves begin when asked for and end when the test lets copies catch up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from django.db import transaction
from django.db.models import F

from brokers import work
from brokers.choices import ProcessState, WantedState
from brokers.dataplane.cluster import ClusterView, Ongoing, PartitionView, ReplicaSize
from brokers.models import Broker, Cluster, Rebalance
from brokers.moves import PartitionKey
from brokers.ports import lease
from instances.models import Instance
from tenants.errors import Unavailable
from tests.support.api_cases import make_tenant
from tests.support.fleet import make_running, place

LOOKS_MAX = 200


@dataclass(slots=True)
class FakeCluster:
    """`brokers.dataplane.cluster.ClusterDoor` in memory. `dead` brokers copy nothing and are no target."""

    brokers: set[int]
    replicas: dict[PartitionKey, tuple[int, ...]] = field(default_factory=dict)
    leaders: dict[PartitionKey, int] = field(default_factory=dict)
    moving: dict[PartitionKey, Ongoing] = field(default_factory=dict)
    most_moving: int = 0
    asked: int = 0
    is_down: bool = False

    def add(self, topic: str, *assignment: Sequence[int]) -> None:
        for index, replicas in enumerate(assignment):
            self.replicas[topic, index] = tuple(replicas)
            self.leaders[topic, index] = replicas[0]

    def holds(self, broker: int) -> set[PartitionKey]:
        return {key for key, replicas in self.replicas.items() if broker in replicas}

    def catch_up(self, most: int | None = None) -> None:
        """Copies of so many moves are in sync: the controller ends them (REP-33)."""
        for key in list(self.moving)[:most]:
            move = self.moving.pop(key)
            self.replicas[key] = move.target
            if self.leaders[key] not in move.target:
                self.leaders[key] = move.target[0]

    def view(self, topics: Iterable[str] | None = None) -> ClusterView:
        self._require_up()
        named = None if topics is None else set(topics)
        shown = {key: held for key, held in self.replicas.items() if named is None or key[0] in named}
        return ClusterView(
            brokers=frozenset(self.brokers),
            controller=min(self.brokers),
            partitions={
                key: PartitionView(leader=self.leaders[key], replicas=held, isr=held) for key, held in shown.items()
            },
            gone=frozenset(named or ()) - {topic for topic, _ in self.replicas},
        )

    def reassign(self, targets: Mapping[PartitionKey, Sequence[int] | None]) -> dict[PartitionKey, str]:
        self._require_up()
        refused = {}
        for key, target in targets.items():
            self.asked += 1
            if key not in self.replicas:
                refused[key] = "the partition does not exist"
                continue
            present, move = self.replicas[key], self.moving.pop(key, None)
            original = move.original if move is not None else present
            wanted = original if target is None else tuple(target)
            if not set(wanted) - set(original) <= self.brokers:
                refused[key] = "a broker is not alive"
                continue
            adding = tuple(id for id in wanted if id not in original)
            removing = tuple(id for id in original if id not in wanted)
            self.replicas[key] = (*wanted, *removing)
            if adding or removing:
                self.moving[key] = Ongoing(replicas=self.replicas[key], adding=adding, removing=removing)
        self.most_moving = max(self.most_moving, len(self.moving))
        return refused

    def reassignments(self) -> dict[PartitionKey, Ongoing]:
        self._require_up()
        return dict(self.moving)

    def elect_preferred(self, keys: Iterable[PartitionKey]) -> dict[PartitionKey, str]:
        for key in keys:
            self.leaders[key] = self.replicas[key][0]
        return {}

    def replica_sizes(self, broker: int, keys: Iterable[PartitionKey] | None = None) -> dict[PartitionKey, ReplicaSize]:
        """Every whole replica has 1,000 bytes, every copy under way 400."""
        self._require_up()
        named = self.holds(broker) if keys is None else set(keys) & self.holds(broker)
        sizes = {}
        for key in named:
            is_copy = key in self.moving and broker in self.moving[key].adding
            sizes[key] = ReplicaSize(size_bytes=400 if is_copy else 1_000, lag=7 if is_copy else 0)
        return sizes

    def _require_up(self) -> None:
        if self.is_down:
            raise Unavailable("No broker answers.")


def settled_on(cluster: Cluster, *numbers: int) -> Instance:
    """An instance that runs on these brokers."""
    made = make_running(make_tenant())
    place(made, cluster)
    with transaction.atomic():
        lease(made, Broker.objects.filter(cluster=cluster, number__in=numbers).select_related("host"))
    return made


def brokers_confirm() -> None:
    """As the reconciler would note, had the brokers acknowledged."""
    Instance.objects.update(observed_generation=F("generation"))


def carry_out(door: FakeCluster, row: Rebalance, *, most: int | None = None) -> Rebalance:
    """Look again and again, the world going on between two looks."""
    for _ in range(LOOKS_MAX):
        work.look()
        brokers_confirm()
        door.catch_up(most)
        for stopped in Broker.objects.filter(wanted=WantedState.STOPPED).exclude(process_state=ProcessState.STOPPED):
            Broker.objects.filter(pk=stopped.pk).update(process_state=ProcessState.STOPPED)
            door.brokers.discard(stopped.number)
        row.refresh_from_db()
        if not row.is_under_way:
            return row
    raise AssertionError(f"not done: {row.state} {row.step} {row.trouble}")
