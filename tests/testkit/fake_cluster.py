"""In-memory admin client of the cluster: moves begin on request and end when the test completes replicas."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from brokers.choices import ProcessState, WantedState
from brokers.contract.partitions import PartitionKey
from brokers.dataplane.cluster import ClusterView, OngoingReassignment, PartitionView, ReplicaSize
from brokers.limits import BROKER_LOST_AFTER_S
from brokers.models import Broker, Cluster, Host, PortLease, Rebalance
from brokers.operations import job_runner
from brokers.placement.port_leases import lease
from instances import interfaces
from instances.models import Instance
from tenants.errors import Unavailable
from tests.testkit.api_cases import make_tenant
from tests.testkit.fleet import make_fleet, make_running, place, plugged

LOOKS_MAX = 200


@contextmanager
def four_brokers(tmp_path: Path) -> Iterator[Cluster]:
    """Creates rows of a cluster whose brokers run; reconciliation does nothing."""
    fleet = make_fleet(tmp_path, brokers=4)
    fleet.brokers.update(process_state=ProcessState.RUNNING)
    with plugged(interfaces.reconcile, lambda _instance_id: None):
        yield fleet


@dataclass(slots=True)
class FakeCluster:
    """In-memory `brokers.dataplane.cluster.ClusterAdminClient`. `dead` brokers copy nothing and cannot be targets."""

    brokers: set[int]
    replicas: dict[PartitionKey, tuple[int, ...]] = field(default_factory=dict)
    leaders: dict[PartitionKey, int] = field(default_factory=dict)
    moving: dict[PartitionKey, OngoingReassignment] = field(default_factory=dict)
    isr: dict[PartitionKey, tuple[int, ...]] = field(default_factory=dict)
    elected: dict[PartitionKey, int] = field(default_factory=dict)
    topic_ids: dict[str, str] = field(default_factory=dict)
    size_bytes: dict[tuple[int, PartitionKey], int] = field(default_factory=dict)
    most_moving: int = 0
    asked: int = 0
    is_down: bool = False

    def add(self, topic: str, *assignment: Sequence[int]) -> None:
        self.topic_ids.setdefault(topic, f"id {len(self.topic_ids)}")
        for index, replicas in enumerate(assignment):
            self.replicas[topic, index] = tuple(replicas)
            self.leaders[topic, index] = replicas[0]

    def delete(self, topic: str) -> None:
        for key in [key for key in self.replicas if key[0] == topic]:
            del self.replicas[key], self.leaders[key]
            self.moving.pop(key, None)
        self.topic_ids[f"deleted {topic} {len(self.topic_ids)}"] = self.topic_ids.pop(topic)

    def holds(self, broker: int) -> set[PartitionKey]:
        return {key for key, replicas in self.replicas.items() if broker in replicas}

    def kill(self, broker: int) -> None:
        """Stops a broker: it leaves the ISR, unless it is the last one in it, and leads nothing (CTL-9, REP-30)."""
        self.brokers.discard(broker)
        for key, held in self.replicas.items():
            isr = self.isr.get(key, held)
            left = tuple(id for id in isr if id != broker)
            self.isr[key] = left or isr
            if self.leaders[key] == broker:
                self.leaders[key] = next(iter(left), -1)

    def revive(self, broker: int) -> None:
        """Starts a broker: it leads again if it was the last one in sync."""
        self.brokers.add(broker)
        for key, isr in self.isr.items():
            if self.leaders[key] == -1 and broker in isr:
                self.leaders[key] = broker

    def elect_unclean(self, keys: Iterable[PartitionKey]) -> dict[PartitionKey, str]:
        """Elects a live replica of the ISR, else the first live one of the assignment (REP-28)."""
        self._require_up()
        refused = {}
        for key in keys:
            live = [id for id in self.replicas[key] if id in self.brokers]
            if self.leaders[key] != -1 or not live:
                refused[key] = "No replica of the partition is alive."
                continue
            leader = next((id for id in live if id in self.isr.get(key, ())), live[0])
            self.leaders[key], self.isr[key], self.elected[key] = leader, (leader,), leader
        return refused

    def catch_up(self, most: int | None = None) -> None:
        """Brings the replicas of a number of moves in sync, so that the controller completes them (REP-33)."""
        able = [
            key
            for key, reassignment in self.moving.items()
            if self.leaders[key] != -1 and {*reassignment.target_replicas} <= self.brokers
        ]
        for key in able[:most]:
            reassignment = self.moving.pop(key)
            self.replicas[key] = self.isr[key] = reassignment.target_replicas
            if self.leaders[key] not in reassignment.target_replicas:
                self.leaders[key] = reassignment.target_replicas[0]

    def view(self, topics: Iterable[str] | None = None) -> ClusterView:
        self._require_up()
        named = None if topics is None else set(topics)
        shown = {key: held for key, held in self.replicas.items() if named is None or key[0] in named}
        return ClusterView(
            brokers=frozenset(self.brokers),
            controller=min(self.brokers, default=-1),
            partitions={
                key: PartitionView(leader=self.leaders[key], replicas=held, isr=self.isr.get(key, held))
                for key, held in shown.items()
            },
            missing_topics=frozenset(named or ()) - {topic for topic, _ in self.replicas},
            topic_ids={topic: self.topic_ids[topic] for topic, _ in shown},
        )

    def reassign(self, targets: Mapping[PartitionKey, Sequence[int] | None]) -> dict[PartitionKey, str]:
        self._require_up()
        refused = {}
        for key, target in targets.items():
            self.asked += 1
            if key not in self.replicas:
                refused[key] = "the partition does not exist"
                continue
            present, reassignment = self.replicas[key], self.moving.pop(key, None)
            original = reassignment.original_replicas if reassignment is not None else present
            wanted = original if target is None else tuple(target)
            if not set(wanted) - set(original) <= self.brokers:
                refused[key] = "a broker is not alive"
                continue
            adding = tuple(id for id in wanted if id not in original)
            removing = tuple(id for id in original if id not in wanted)
            self.replicas[key] = (*wanted, *removing)
            gone = set(reassignment.adding) - set(wanted) if reassignment is not None else set()
            self.isr[key] = tuple(id for id in self.isr.get(key, original) if id not in gone) or original
            if adding or removing:
                self.moving[key] = OngoingReassignment(replicas=self.replicas[key], adding=adding, removing=removing)
        self.most_moving = max(self.most_moving, len(self.moving))
        return refused

    def reassignments(self) -> dict[PartitionKey, OngoingReassignment]:
        self._require_up()
        return dict(self.moving)

    def elect_preferred(self, keys: Iterable[PartitionKey]) -> dict[PartitionKey, str]:
        for key in keys:
            self.leaders[key] = self.replicas[key][0]
        return {}

    def replica_sizes(self, broker: int, keys: Iterable[PartitionKey] | None = None) -> dict[PartitionKey, ReplicaSize]:
        """Returns 1,000 bytes for every complete replica, unless a test sets another size, and 400 for a
        running copy.
        """
        self._require_up()
        named = self.holds(broker) if keys is None else set(keys) & self.holds(broker)
        sizes = {}
        for key in named:
            is_copy = key in self.moving and broker in self.moving[key].adding
            whole = self.size_bytes.get((broker, key), 1_000)
            sizes[key] = ReplicaSize(size_bytes=400 if is_copy else whole, lag=7 if is_copy else 0)
        return sizes

    def _require_up(self) -> None:
        if self.is_down:
            raise Unavailable("No broker answers.")


def lose(admin_client: FakeCluster, cluster: Cluster, number: int = 3) -> Broker:
    """Marks a broker's host as unheard of for long. The other brokers have other hosts."""
    broker = Broker.objects.select_related("host").get(cluster=cluster, number=number)
    host = broker.host
    gone = Host.objects.create(name=f"gone-{number}", port_first=host.port_first, port_last=host.port_last)
    gone.agent_seen_at = timezone.now() - timedelta(seconds=BROKER_LOST_AFTER_S + 1)
    gone.save()
    Host.objects.filter(pk=host.pk).update(agent_seen_at=timezone.now())
    PortLease.objects.filter(broker=broker).update(host=gone)
    Broker.objects.filter(pk=broker.pk).update(host=gone)
    admin_client.kill(number)
    return Broker.objects.select_related("host").get(cluster=cluster, number=number)


def complete_on(cluster: Cluster, *numbers: int) -> Instance:
    """Creates an instance that runs on these brokers."""
    made = make_running(make_tenant())
    place(made, cluster)
    with transaction.atomic():
        lease(made, Broker.objects.filter(cluster=cluster, number__in=numbers).select_related("host"))
    return made


def brokers_confirm() -> None:
    """Confirms all generations, as the reconciler does after the brokers' acknowledgements."""
    Instance.objects.update(observed_generation=F("generation"))


def carry_out(admin_client: FakeCluster, row: Rebalance, *, most: int | None = None) -> Rebalance:
    """Reconciles again and again, with events between two rounds."""
    for _ in range(LOOKS_MAX):
        job_runner.reconcile_once()
        brokers_confirm()
        admin_client.catch_up(most)
        for stopped in Broker.objects.filter(wanted=WantedState.STOPPED).exclude(process_state=ProcessState.STOPPED):
            Broker.objects.filter(pk=stopped.pk).update(process_state=ProcessState.STOPPED)
            admin_client.brokers.discard(stopped.number)
        row.refresh_from_db()
        if not row.is_under_way:
            return row
    raise AssertionError(f"not done: {row.state} {row.step} {row.trouble}")
