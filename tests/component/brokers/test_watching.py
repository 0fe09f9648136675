"""Events for tenants about unresponsive brokers and partitions without a leader: their own only, once for
each change.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import cache
from django.utils import timezone
from structlog.testing import capture_logs

from brokers.limits import OBSERVE_EVERY_S, RESTART_LASTS_S, SILENCE_REPORTED_AFTER_S, WATCH_EVERY_S
from brokers.models import Cluster
from brokers.monitoring import cluster_overview, observe, watching
from instances import interfaces, services
from instances.interfaces import BrokerUnresponsive
from instances.lifecycle.conditions import Condition, Observation
from instances.lifecycle.phases import Phase
from instances.models import Instance
from instances.views.attention import notices_of
from tenants.models import AuditEntry
from tests.testkit.api_cases import Api, make_member, make_token
from tests.testkit.fleet import catalogue, make_fleet, make_running, place, plugged

pytestmark = pytest.mark.django_db


class World:
    """Configurable answers of the brokers of one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.silent: tuple[int, ...] = ()
        self.offline: list[dict[str, Any]] = []
        self.is_mute = False
        # As the controller tells of it; None: it has only been elected.
        self.storage: list[list[Any]] | None = []
        self.shortened: dict[str, Any] = {}

    def ask(self, _cluster: Cluster) -> observe.BrokerAnswers:
        numbers = (1, 2, 3)
        counts = dict.fromkeys(cluster_overview.COUNTS, 0) | {"offline": len(self.offline)}
        body = {"broker_id": 1, "ready": True, "controller_id": 1, "controller_epoch": 1, "brokers": [], **counts}
        body["storage"] = self.storage
        body["storage_shortened"] = self.shortened
        silent = numbers if self.is_mute else self.silent
        return observe.BrokerAnswers(
            bodies={number: body for number in numbers if number not in silent},
            silent=tuple(BrokerUnresponsive(broker_id=number, reason="does not answer") for number in silent),
        )

    def lose(self, instance: Instance, topic: str, *indexes: int) -> None:
        self.offline += [{"instance_id": instance.pk, "user_name": topic, "partition": index} for index in indexes]

    def reconcile_once(self, *, silent_for_s: float = SILENCE_REPORTED_AFTER_S + OBSERVE_EVERY_S) -> int:
        now = timezone.now()
        cache.delete(f"watch:{self.cluster.pk}:answered")
        self.cluster.brokers.update(observed_at=now - timedelta(seconds=silent_for_s))
        return watching.check_clusters(now)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    cache.clear()
    result = World(make_fleet(tmp_path))
    monkeypatch.setattr(cluster_overview, "_query_brokers", result.ask)
    monkeypatch.setattr(cluster_overview, "partition_page", lambda _cluster, **_asked: (result.offline, ""))
    yield result
    cache.clear()


@pytest.fixture
def instance(world: World) -> Instance:
    made = make_running(make_member().tenant)
    place(made, world.cluster)
    return made


def conditions(instance: Instance) -> dict[str, dict[str, Any]]:
    """Returns the conditions from the owner's API by type."""
    api = Api(make_token(instance.tenant.members.get()))
    condition = api.get(f"/instances/{instance.pk}").json()["status"]["conditions"]
    return {item["type"]: item for item in condition}


def events(instance: Instance) -> list[tuple[str, str]]:
    rows = AuditEntry.objects.filter(target_id=instance.pk).order_by("time")
    return [(row.action, row.after["condition"]) for row in rows]


def test_a_silent_broker_is_reported_when_it_begins_and_when_it_ends(world: World, instance: Instance) -> None:
    world.silent = (2,)
    assert (world.reconcile_once(), world.reconcile_once()) == (1, 0)
    condition = conditions(instance)["BrokersAnswer"]
    assert (condition["status"], condition["message"]) == (False, "Silent: broker 2.")
    world.silent = ()
    assert (world.reconcile_once(), world.reconcile_once()) == (1, 0)
    assert conditions(instance)["BrokersAnswer"]["status"] is True
    assert events(instance) == [("instance.degraded", "BrokersAnswer"), ("instance.recovered", "BrokersAnswer")]


def test_partitions_without_a_leader_are_reported_when_a_second_look_finds_them(
    world: World, instance: Instance
) -> None:
    world.lose(instance, "orders", 0, 4)
    assert (world.reconcile_once(), world.reconcile_once(), world.reconcile_once()) == (0, 1, 0)
    condition = conditions(instance)["PartitionsLed"]
    assert (condition["status"], condition["message"]) == (False, "Without a leader: orders/0, orders/4.")
    world.offline.clear()
    world.reconcile_once()
    assert conditions(instance)["PartitionsLed"]["status"] is True
    assert [action for action, _condition in events(instance)] == ["instance.degraded", "instance.recovered"]


def test_storage_near_its_end_is_reported_at_each_level_once(world: World, instance: Instance) -> None:
    for used_percent, is_full in ((81, False), (85, False), (99, True), (99, True), (70, False)):
        world.storage = [[instance.pk, instance.storage_bytes * used_percent // 100, is_full]]
        world.reconcile_once()
        condition = conditions(instance)["StorageAvailable"]
        assert condition["status"] is (used_percent == 70)
        if is_full:
            assert "produce is refused" in condition["message"]
    assert [action for action, _condition in events(instance)] == [
        "instance.degraded",
        "instance.degraded",
        "instance.recovered",
    ]


def test_controller_that_knows_nothing_yet_takes_no_warning_back(world: World, instance: Instance) -> None:
    world.storage = [[instance.pk, instance.storage_bytes, True]]
    world.reconcile_once()
    world.storage = None
    assert world.reconcile_once() == 0
    assert conditions(instance)["StorageAvailable"]["status"] is False


def test_shortened_retention_is_reported_with_the_oldest_record_kept(world: World, instance: Instance) -> None:
    oldest_ms = 1_790_000_012_345
    world.shortened = {instance.pk: {"at_ms": 0, "topics": [["orders", oldest_ms]]}}
    assert (world.reconcile_once(), world.reconcile_once()) == (1, 0)
    condition = conditions(instance)["RetentionKept"]
    assert condition["status"] is False
    assert condition["message"] == "Retention was shortened. Oldest record kept: orders from 2026-09-21 14:13."
    world.shortened = {}
    world.reconcile_once()
    assert conditions(instance)["RetentionKept"]["status"] is True
    assert events(instance) == [("instance.degraded", "RetentionKept"), ("instance.recovered", "RetentionKept")]


def test_instance_that_may_grow_is_resized_once(world: World, instance: Instance) -> None:
    instance.settings |= {"storage_grow_step_gb": 5, "storage_grow_max_gb": instance.storage_gb + 5}
    instance.save_changes(["settings"])
    world.storage = [[instance.pk, instance.storage_bytes * 91 // 100, False]]
    before_gb = instance.storage_gb
    with plugged(interfaces.plan_catalogue, catalogue):
        world.reconcile_once()
        world.reconcile_once()
    instance.refresh_from_db()
    assert instance.storage_gb == before_gb + 5
    assert AuditEntry.objects.filter(target_id=instance.pk, action="instance.resized").count() == 1


def test_nobody_reads_of_the_topics_of_others(world: World, instance: Instance) -> None:
    other = make_running(make_member().tenant)
    place(other, world.cluster)
    world.lose(other, "secret-plans", 0)
    world.reconcile_once()
    world.reconcile_once()
    assert "PartitionsLed" not in conditions(instance)
    assert "secret-plans/0" in conditions(other)["PartitionsLed"]["message"]


def test_a_broker_the_instance_has_no_address_on_does_not_concern_it(world: World, instance: Instance) -> None:
    world.silent = (3,)
    assert world.reconcile_once() == 0
    assert conditions(instance) == {}


def test_a_broker_that_is_merely_slow_is_not_reported(world: World, instance: Instance) -> None:
    world.silent = (2,)
    assert world.reconcile_once(silent_for_s=SILENCE_REPORTED_AFTER_S + OBSERVE_EVERY_S - 0.1) == 0


@pytest.mark.parametrize(
    "changes", [{"process_state": "stopping"}, {"restart_generation": 7}, {"process_since": timedelta(seconds=-2)}]
)
def test_a_broker_under_restart_is_reported_when_that_lasts_too_long(
    world: World, instance: Instance, changes: dict[str, Any]
) -> None:
    since = changes.get("process_since")
    given = {"process_state": "running", **changes} | ({"process_since": timezone.now() + since} if since else {})
    world.cluster.brokers.update(**given)
    world.silent = (2,)
    assert world.reconcile_once() == 0
    assert world.reconcile_once(silent_for_s=RESTART_LASTS_S + OBSERVE_EVERY_S) == 1


def test_a_killed_broker_is_reported_at_the_second_look(world: World, instance: Instance) -> None:
    """It answered an observation and died right afterwards; older reports of others do not count for it."""
    began = timezone.now()
    assert watching.check_clusters(began) == 0
    world.silent = (2,)
    changed = [watching.check_clusters(began + timedelta(seconds=WATCH_EVERY_S * number)) for number in (1, 2)]
    assert changed == [0, 1]


def test_where_no_broker_answers_what_was_said_of_leaders_stays(world: World, instance: Instance) -> None:
    world.lose(instance, "orders", 0)
    world.reconcile_once()
    world.reconcile_once()
    since = conditions(instance)["PartitionsLed"]["since"]
    world.is_mute = True
    world.reconcile_once()
    condition = conditions(instance)
    assert (condition["PartitionsLed"]["status"], condition["PartitionsLed"]["since"]) == (False, since)
    assert condition["BrokersAnswer"]["message"] == "Silent: broker 1, 2."


def test_an_instance_that_does_not_run_gets_no_report(world: World, instance: Instance) -> None:
    Instance.objects.filter(pk=instance.pk).update(phase=Phase.DELETING.value)
    world.silent = (2,)
    assert world.reconcile_once() == 0


def test_a_report_leaves_the_version_of_the_instance_as_it_is(world: World, instance: Instance) -> None:
    world.silent = (2,)
    world.reconcile_once()
    assert Instance.objects.get(pk=instance.pk).version == instance.version


def test_many_partitions_are_counted_and_five_are_named(world: World, instance: Instance) -> None:
    world.lose(instance, "orders", *range(12))
    world.reconcile_once()
    world.reconcile_once()
    assert conditions(instance)["PartitionsLed"]["message"].endswith("orders/4 and 7 more.")


def test_an_outage_that_lasts_costs_no_query_for_each_instance(
    world: World, instance: Instance, django_assert_max_num_queries: Any
) -> None:
    """It may last for hours, is observed every two seconds, and affects all instances of a cluster."""
    for number in range(20):
        place(make_running(instance.tenant, name=f"more-{number}"), world.cluster)
    world.silent = (2,)
    assert world.reconcile_once() == 21
    with django_assert_max_num_queries(8):
        assert world.reconcile_once() == 0


def test_a_broker_that_never_answered_is_not_reported(world: World, instance: Instance) -> None:
    world.silent = (2,)
    world.cluster.brokers.update(observed_at=None)
    assert watching.check_clusters(timezone.now()) == 0


@pytest.mark.parametrize("oldest_ms", [1_790_000_000_000_000, -1, 2**63 - 1, -(2**63)])
def test_a_time_that_no_calendar_has_holds_no_other_report_up(world: World, instance: Instance, oldest_ms: int) -> None:
    """Clients may write microseconds, nothing, or any number as a timestamp."""
    neighbour = make_running(make_member().tenant)
    place(neighbour, world.cluster)
    world.shortened = {instance.pk: {"at_ms": 0, "topics": [["orders", oldest_ms]]}}
    world.storage = [[neighbour.pk, neighbour.storage_bytes, True]]
    assert world.reconcile_once() == 2
    assert conditions(instance)["RetentionKept"]["message"].endswith("orders from an unknown time.")
    assert conditions(neighbour)["StorageAvailable"]["status"] is False
    needs = notices_of(Instance.objects.get(pk=instance.pk))
    assert any("orders from —" in need.meaning for need in needs)


def test_an_instance_that_cannot_be_looked_at_is_logged_and_keeps_no_other_waiting(
    world: World, instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    neighbours = [make_running(make_member().tenant) for _ in range(2)]
    for neighbour in neighbours:
        place(neighbour, world.cluster)
    original = services.observed_conditions

    def poisoned(row: Instance, seen: Observation) -> list[Condition]:
        if row.pk == instance.pk:
            raise ValueError("year 58880 is out of range")
        return original(row, seen)

    monkeypatch.setattr(services, "observed_conditions", poisoned)
    world.silent = (2,)
    with capture_logs() as written:
        assert world.reconcile_once() == 2
    failed = [line["instance_id"] for line in written if line["event"] == "watch.instance_failed"]
    assert failed == [instance.pk]
    for neighbour in neighbours:
        assert conditions(neighbour)["BrokersAnswer"]["status"] is False


def test_a_cluster_that_cannot_be_looked_at_keeps_no_other_waiting(
    world: World, instance: Instance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = make_fleet(tmp_path)
    original = cluster_overview.cluster_map

    def draw(cluster: Cluster) -> cluster_overview.ClusterMap:
        if cluster.pk == broken.pk:
            raise KeyError("ready")
        return original(cluster)

    monkeypatch.setattr(cluster_overview, "cluster_map", draw)
    world.silent = (2,)
    with capture_logs() as written:
        assert world.reconcile_once() == 1
    assert [line["cluster_id"] for line in written if line["event"] == "watch.cluster_failed"] == [broken.pk]
