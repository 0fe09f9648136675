"""The replication throttle of a rebalance, and the previous settings after it, with crashes at any point."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from brokers.choices import RebalanceState
from brokers.contract.partitions import PartitionKey
from brokers.contract.usage import USAGE_TOPIC
from brokers.limits import PACED_TOPICS_AT_ONCE
from brokers.models import Broker, Cluster, Rebalance
from brokers.operations import job_runner
from brokers.rebalancing import executor, services, throttle
from brokers.rebalancing.throttle import RATES, REPLICAS
from tenants.actors import Actor
from tenants.errors import Unavailable
from tests.testkit.fake_cluster import FakeCluster, carry_out, confirm_generations, create_instance_on, four_brokers

pytestmark = pytest.mark.django_db

Changes = Mapping[str, str | None]
OLD_RATE, OLD_LIST = {RATES[0]: "777"}, {REPLICAS[1]: "0:2"}


@dataclass
class FakeSettings:
    """In-memory `brokers.dataplane.settings.SettingsAdminClient`. Every `dies_every`-th call fails (0: none), after its
    effect if `is_done_first`.
    """

    shared: dict[str, str] = field(default_factory=dict)
    topics: dict[str, dict[str, str]] = field(default_factory=dict)
    dies_every: int = 0
    is_done_first: bool = False
    calls: int = 0

    def of_all_brokers(self, keys: Collection[str]) -> dict[str, str]:
        self._call()
        return {key: value for key, value in self.shared.items() if key in keys}

    def of_topics(self, topics: Iterable[str], keys: Collection[str]) -> dict[str, dict[str, str]]:
        self._call()
        return {name: dict(self.topics[name]) for name in topics if name in self.topics}

    def set_for_all_brokers(self, changes: Changes) -> None:
        self._call(lambda: _apply(self.shared, changes))

    def set_for_topics(self, changes: Mapping[str, Changes]) -> None:
        assert len(changes) <= PACED_TOPICS_AT_ONCE
        self._call(lambda: [_apply(self.topics[name], item) for name, item in changes.items() if name in self.topics])

    def _call(self, act: object = None) -> None:
        self.calls += 1
        dies = self.dies_every and self.calls % self.dies_every == 0
        if callable(act) and (self.is_done_first or not dies):
            act()
        if dies:
            raise Unavailable("killed here")


def _apply(values: dict[str, str], changes: Changes) -> None:
    for key, value in changes.items():
        if value is None:
            values.pop(key, None)
        else:
            values[key] = value


class Watching(FakeCluster):
    """Records copies that begin without a throttle; `settings` None: none is needed."""

    settings: FakeSettings | None = None
    rates: set[str]
    unpaced: list[PartitionKey]

    def reassign(self, targets: Mapping[PartitionKey, Sequence[int] | None]) -> dict[PartitionKey, str]:
        for (topic, index), target in targets.items():
            copies = target is not None and set(target) - set(self.replicas.get((topic, index), target))
            if copies and self.settings is not None:
                self.rates |= {self.settings.shared.get(key, "") for key in RATES}
                if any(self.settings.topics[topic].get(key) != "*" for key in REPLICAS):
                    self.unpaced.append((topic, index))
        return super().reassign(targets)


@pytest.fixture()
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with four_brokers(tmp_path) as result:
        yield result


@pytest.fixture()
def settings_admin_client(monkeypatch: pytest.MonkeyPatch) -> FakeSettings:
    settings = FakeSettings(shared={**OLD_RATE, "message.max.bytes": "5"})
    monkeypatch.setattr(throttle, "SettingsAdminClient", lambda _cluster: settings)
    return settings


@pytest.fixture()
def admin_client(cluster: Cluster, settings_admin_client: FakeSettings, monkeypatch: pytest.MonkeyPatch) -> Watching:
    instance = create_instance_on(cluster, 1, 2, 3)
    watching = Watching(brokers={1, 2, 3, 4})
    for name in ("orders", "clicks"):
        watching.add(f"{instance.pk}.{name}", *((1 + i % 3, 1 + (i + 1) % 3) for i in range(6)))
    watching.add(USAGE_TOPIC, (1,), (2,), (3,), (4,))
    settings_admin_client.topics = {topic: {"retention.ms": "1"} for topic, _ in watching.replicas}
    settings_admin_client.topics[f"{instance.pk}.clicks"] |= OLD_LIST
    watching.settings, watching.rates, watching.unpaced = settings_admin_client, set(), []
    for module in (executor, services):
        monkeypatch.setattr(module, "ClusterAdminClient", lambda _cluster: watching)
    return watching


def begun(cluster: Cluster, acting: Actor, copy_mb_s: int | None) -> Rebalance:
    third = Broker.objects.get(cluster=cluster, number=3)
    row = services.plan_drain(acting=acting, broker=third, moves_at_once=2, copy_mb_s=copy_mb_s)
    return services.start(acting=acting, rebalance=row)


def all_is_as_it_was(settings_admin_client: FakeSettings, admin_client: FakeCluster) -> bool:
    lists = {
        name: {key: topic[key] for key in REPLICAS if key in topic}
        for name, topic in settings_admin_client.topics.items()
    }
    wanted = {name: OLD_LIST if name.endswith(".clicks") else {} for name in lists}
    untouched = all(topic["retention.ms"] == "1" for topic in settings_admin_client.topics.values())
    return untouched and lists == wanted and settings_admin_client.shared == {**OLD_RATE, "message.max.bytes": "5"}


@pytest.mark.parametrize("is_done_first", [False, True])
@pytest.mark.parametrize("dies_every", [2, 3])
def test_wherever_it_dies_nothing_is_copied_unpaced_and_all_is_given_back(
    cluster: Cluster,
    admin_client: Watching,
    settings_admin_client: FakeSettings,
    acting: Actor,
    dies_every: int,
    is_done_first: bool,
) -> None:
    settings_admin_client.dies_every, settings_admin_client.is_done_first = dies_every, is_done_first
    row = carry_out(admin_client, begun(cluster, acting, 20), moves_max=2)

    assert row.state == RebalanceState.DONE and row.pace == {}
    assert (admin_client.unpaced, admin_client.rates) == ([], {"20000000"})
    assert all_is_as_it_was(settings_admin_client, admin_client)
    assert settings_admin_client.calls > 8, "it died more than once"


def test_a_rebalance_without_a_pace_sets_nothing(
    cluster: Cluster, admin_client: Watching, settings_admin_client: FakeSettings, acting: Actor
) -> None:
    admin_client.settings = None
    carry_out(admin_client, begun(cluster, acting, None))

    assert settings_admin_client.calls == 0


def test_the_pace_is_changed_and_taken_off_while_copies_run(
    cluster: Cluster, admin_client: Watching, settings_admin_client: FakeSettings, acting: Actor
) -> None:
    row = begun(cluster, acting, 20)
    while not admin_client.moving:
        job_runner.reconcile_once()
        confirm_generations()
    assert settings_admin_client.shared[RATES[0]] == settings_admin_client.shared[RATES[1]] == "20000000"
    services.limit_copies(acting=acting, rebalance=row, copy_mb_s=50)
    job_runner.reconcile_once()
    assert settings_admin_client.shared[RATES[1]] == "50000000"
    services.pause(acting=acting, rebalance=row)
    services.limit_copies(acting=acting, rebalance=row, copy_mb_s=None)
    job_runner.reconcile_once()
    assert all_is_as_it_was(settings_admin_client, admin_client), "also while it is paused"
    services.limit_copies(acting=acting, rebalance=row, copy_mb_s=10)
    job_runner.reconcile_once()
    assert settings_admin_client.shared[RATES[0]] == "10000000"
    services.resume(acting=acting, rebalance=row)
    carry_out(admin_client, row)
    assert all_is_as_it_was(settings_admin_client, admin_client)


def test_an_undo_copies_at_the_planned_rate(
    cluster: Cluster, admin_client: Watching, settings_admin_client: FakeSettings, acting: Actor
) -> None:
    row = begun(cluster, acting, 20)
    before = dict(admin_client.replicas)
    while not admin_client.moving:
        job_runner.reconcile_once()
        confirm_generations()
    admin_client.catch_up(2)
    job_runner.reconcile_once()
    services.undo(acting=acting, rebalance=row)
    assert carry_out(admin_client, row, moves_max=2).state == RebalanceState.UNDONE
    assert admin_client.replicas == before
    assert (admin_client.unpaced, admin_client.rates) == ([], {"20000000"})
    assert all_is_as_it_was(settings_admin_client, admin_client)


def test_a_topic_that_is_deleted_on_the_way_keeps_nothing_from_its_end(
    cluster: Cluster, admin_client: Watching, settings_admin_client: FakeSettings, acting: Actor
) -> None:
    row = begun(cluster, acting, 20)
    while not admin_client.moving:
        job_runner.reconcile_once()
        confirm_generations()
    gone = next(topic for topic, _ in admin_client.moving)
    admin_client.replicas = {key: held for key, held in admin_client.replicas.items() if key[0] != gone}
    admin_client.moving = {key: item for key, item in admin_client.moving.items() if key[0] != gone}
    del settings_admin_client.topics[gone]
    admin_client.settings = None

    assert carry_out(admin_client, row).state == RebalanceState.DONE
    assert all_is_as_it_was(settings_admin_client, admin_client)
