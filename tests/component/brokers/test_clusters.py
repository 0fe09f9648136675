"""Clusters formed, changed and retired by operators, over REST and in the panel."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from kazoo.client import KazooClient

from brokers.choices import ClusterState, ProcessState, WantedState
from brokers.infra import zookeeper
from brokers.models import Broker, Cluster, FleetOperation, Host
from brokers.monitoring import observe
from brokers.operations import forming, interfaces, job_runner, retiring
from brokers.provisioning.forget_cluster import delete_tree
from instances.interfaces import BrokerUnresponsive
from tenants.models import AuditEntry, Member
from tests.testkit.api_cases import Api, assert_problem, make_tenant
from tests.testkit.fake_cluster import FakeCluster
from tests.testkit.fleet import make_fleet, make_running, place, plugged

pytestmark = pytest.mark.django_db

HOST = {"name": "kafka-2", "zone": "east", "advertised_host": "127.0.0.2", "port_first": 26_000, "port_last": 26_099}
STATES = ("pending", "running", "done", "failed")


@pytest.fixture()
def host(operator: Api) -> str:
    return str(operator.post("/operator/hosts", HOST).json()["id"])


def add(operator: Api, *hosts: str, **changes: Any) -> Any:
    body = {"name": "second", "kind": "shared", "host_ids": list(hosts)} | changes
    answer = operator.post("/operator/clusters", body)
    assert answer.status_code == 202, answer.content
    return answer.json()


def steps(operation: FleetOperation | Any) -> dict[str, str]:
    found = operation.steps if isinstance(operation, FleetOperation) else operation["steps"]
    return {step["name"]: step["state"] for step in found}


def fact(operation_id: str, name: str) -> str:
    row = FleetOperation.objects.get(pk=operation_id)
    return next(str(step["fact"]) for step in row.steps if step["name"] == name)


class World:
    """Answers of brokers: on their admin ports, and as a cluster."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answering: set[int] = set()
        self.cluster = FakeCluster(brokers=set())
        monkeypatch.setattr(observe, "query_all", self.query_all)
        for module in (forming, retiring):
            monkeypatch.setattr(module, "ClusterAdminClient", lambda _cluster: self.cluster)

    def query_all(self, targets: Any, _path: str) -> observe.BrokerAnswers:
        silent = [BrokerUnresponsive(broker_id=item.number, reason="") for item in targets]
        return observe.BrokerAnswers(
            bodies={number: {"broker_id": number} for number in self.answering},
            silent=tuple(item for item in silent if item.broker_id not in self.answering),
        )


@pytest.fixture()
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


class TestForming:
    def test_a_cluster_is_accepted_with_its_brokers_and_takes_nothing_yet(self, operator: Api, host: str) -> None:
        operation = add(operator, host, host, zones=["east"], max_partitions=1_000, max_storage_gb=70)
        assert steps(operation) == {
            "accepted": "done", "brokers_added": "done", "brokers_answer": "pending", "controller_elected": "pending",
        }  # fmt: skip
        (shown,) = operator.get("/operator/clusters").json()["items"]
        assert (shown["id"], shown["state"], shown["broker_count"]) == (operation["cluster_id"], "forming", 2)
        assert (shown["zones"], shown["max_partitions"], shown["max_storage_gb"]) == (["east"], 1_000, 70)
        assert shown["max_bandwidth_mb_s"] is None
        actions = set(AuditEntry.objects.values_list("action", flat=True))
        assert {"cluster.added", "broker.added"} <= actions

    def test_a_dry_run_says_which_brokers_there_would_be_and_leaves_nothing(self, operator: Api, host: str) -> None:
        body = {"name": "second", "kind": "shared", "host_ids": [host, host]}
        answer = operator.post("/operator/clusters?dry_run=true", body).json()
        assert (answer["id"], answer["cluster_id"]) == (None, None)
        assert answer["steps"][1]["fact"] == "1 on kafka-2, 2 on kafka-2"
        assert not Cluster.objects.exists()
        assert not Broker.objects.exists()

    @pytest.mark.parametrize(
        ("changes", "pointer"),
        [
            ({"name": "Second"}, "/name"),
            ({"name": "x" * 41}, "/name"),
            ({"kind": "own"}, "/kind"),
            ({"zones": ["a b"]}, "/zones/0"),
            ({"zones": ["a"] * 33}, "/zones"),
            ({"brokers_per_instance_min": 0}, "/brokers_per_instance_min"),
            ({"max_partitions": 1_000_001}, "/max_partitions"),
            ({"max_bandwidth_mb_s": 0}, "/max_bandwidth_mb_s"),
            ({"max_storage_gb": 32_000_001}, "/max_storage_gb"),
            ({"host_ids": ["hst-00000000"]}, "/host_ids/0"),
            ({"host_ids": ["hst-00000000"] * 33}, "/host_ids"),
            ({"backend": {"type": "kafka"}}, "/backend/bootstrap_servers"),
        ],
    )
    def test_a_wrong_value_is_named_by_its_pointer(self, operator: Api, changes: dict[str, Any], pointer: str) -> None:
        problem = assert_problem(operator.post("/operator/clusters", {"name": "b", "kind": "shared"} | changes), 400)
        assert pointer in {error["pointer"] for error in problem["errors"]}

    def test_a_name_that_is_taken_and_a_host_elsewhere_leave_nothing(self, operator: Api, host: str) -> None:
        add(operator)
        assert_problem(operator.post("/operator/clusters", {"name": "second", "kind": "shared"}), 409, "name_taken")
        body = {"name": "third", "kind": "shared", "zones": ["west"], "host_ids": [host]}
        assert_problem(operator.post("/operator/clusters", body), 409, "other_zone")
        assert not Cluster.objects.filter(name="third").exists()

    def test_it_is_ready_when_all_brokers_answer_and_one_is_controller(
        self, operator: Api, host: str, world: World
    ) -> None:
        operation = add(operator, host, host)
        cluster = Cluster.objects.get(pk=operation["cluster_id"])
        job_runner.reconcile_clusters()
        assert "run manage.py agent --host kafka-2" in fact(operation["id"], "brokers_answer")
        Host.objects.update(agent_seen_at=timezone.now())
        world.answering = {1}
        job_runner.reconcile_clusters()
        assert fact(operation["id"], "brokers_answer") == "1 of 2. Broker 2 is being started."
        second = cluster.brokers.filter(number=2)
        second.update(process_error="no memory", process_state=ProcessState.BACKING_OFF)
        job_runner.reconcile_clusters()
        assert fact(operation["id"], "brokers_answer") == "1 of 2. Broker 2 ended: no memory"
        second.update(process_state=ProcessState.RUNNING)
        job_runner.reconcile_clusters()
        assert fact(operation["id"], "brokers_answer") == "1 of 2. Broker 2 is being started."
        world.answering = {1, 2}
        world.cluster.brokers = {1}
        job_runner.reconcile_clusters()
        assert "broker 2 to join" in fact(operation["id"], "controller_elected")
        cluster.refresh_from_db()
        assert cluster.state == ClusterState.FORMING
        world.cluster.brokers = {1, 2}
        job_runner.reconcile_clusters()
        cluster.refresh_from_db()
        shown = operator.get(f"/operator/operations/{operation['id']}").json()
        assert (cluster.state, shown["state"], shown["progress"]) == ("ready", "succeeded", 1.0)
        assert AuditEntry.objects.filter(action="cluster.formed", target_id=cluster.pk).count() == 1
        assert job_runner.reconcile_clusters() == 0

    def test_without_brokers_it_waits_for_one(self, operator: Api, host: str, world: World) -> None:
        operation = add(operator)
        job_runner.reconcile_clusters()
        assert fact(operation["id"], "brokers_added") == "Waits for a broker: add one to the cluster."
        body = {"cluster_id": operation["cluster_id"], "host_id": host}
        assert operator.post("/operator/brokers", body).status_code == 201
        world.answering = world.cluster.brokers = {1}
        job_runner.reconcile_clusters()
        assert Cluster.objects.get(pk=operation["cluster_id"]).state == ClusterState.READY


class TestChanging:
    def test_it_is_renamed_closed_and_bounded(self, operator: Api, tmp_path: Path) -> None:
        cluster = make_fleet(tmp_path)
        at = f"/operator/clusters/{cluster.pk}"
        changes = {"name": "renamed", "accepts_instances": False, "max_partitions": 400, "max_bandwidth_mb_s": 50}
        changed = operator.patch(at, changes)
        assert changed.status_code == 200
        assert {key: changed.json()[key] for key in changes} == changes
        assert_problem(operator.patch(at, {"name": "again"}, If_Match='"1"'), 412)
        row = AuditEntry.objects.get(action="cluster.changed")
        assert row.before["accepts_instances"] is True
        assert_problem(operator.patch(at, {"zones": ["east"]}), 409, "other_zone")
        assert_problem(operator.patch(at, {"kind": "dedicated"}), 400)


class TestRetiring:
    @pytest.fixture()
    def read(self) -> Iterator[dict[int, int]]:
        read: dict[int, int] = {}
        with plugged(interfaces.next_usage_offsets, lambda _cluster_id: read):
            yield read

    def test_one_with_instances_is_not_retired(self, operator: Api, tmp_path: Path) -> None:
        cluster = make_fleet(tmp_path)
        place(make_running(make_tenant()), cluster)
        assert_problem(operator.delete(f"/operator/clusters/{cluster.pk}"), 409, "has_instances")
        assert Cluster.objects.get(pk=cluster.pk).state == ClusterState.READY

    def test_counted_records_are_read_before_brokers_stop(
        self,
        operator: Api,
        cluster: Cluster,
        world: World,
        read: dict[int, int],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(retiring, "_query_end_offsets", lambda _cluster: {"__usage": {"0": 7}, "__audit": {}})
        operation = operator.delete(f"/operator/clusters/{cluster.pk}").json()
        cluster.brokers.update(process_state=ProcessState.RUNNING)
        job_runner.reconcile_clusters()
        assert fact(operation["id"], "usage_read") == "Brokers write down the last counters."
        FleetOperation.objects.update(created_at=timezone.now() - retiring.WRITTEN_AFTER)
        job_runner.reconcile_clusters()
        assert fact(operation["id"], "usage_read") == "7 records of __usage are not read yet."
        assert not cluster.brokers.exclude(wanted=WantedState.RUNNING).exists()
        read[0] = 7
        job_runner.reconcile_clusters()
        assert not cluster.brokers.exclude(wanted=WantedState.STOPPED).exists()
        assert "the agent of host" in fact(operation["id"], "brokers_stopped")
        cluster.brokers.update(process_state=ProcessState.STOPPED)
        job_runner.reconcile_clusters()
        cluster.refresh_from_db()
        shown = operator.get(f"/operator/operations/{operation['id']}").json()
        assert (cluster.state, shown["state"]) == ("retired", "succeeded")
        assert_problem(operator.get(f"/operator/clusters/{cluster.pk}"), 404)
        assert operator.get("/operator/brokers").json()["items"] == []
        actions = set(AuditEntry.objects.values_list("action", flat=True))
        assert {"cluster.retirement_begun", "broker.removed", "cluster.retired"} <= actions

    def test_one_that_never_formed_ends_at_once_and_its_name_and_host_are_free(
        self, operator: Api, host: str, zookeeper_address: str, settings: Any
    ) -> None:
        settings.ZOOKEEPER_URL = zookeeper_address
        formed = add(operator, host)
        operation = operator.delete(f"/operator/clusters/{formed['cluster_id']}").json()
        assert FleetOperation.objects.get(pk=formed["id"]).error["code"] == "superseded"
        job_runner.reconcile_clusters()
        assert operator.get(f"/operator/operations/{operation['id']}").json()["state"] == "succeeded"
        assert add(operator, host)["cluster_id"] != formed["cluster_id"]
        assert_problem(operator.delete(f"/operator/hosts/{host}"), 409, "has_brokers")
        zookeeper.close_all()

    def test_a_retired_cluster_takes_no_act(self, operator: Api, tmp_path: Path) -> None:
        cluster = make_fleet(tmp_path)
        assert operator.delete(f"/operator/clusters/{cluster.pk}").status_code == 202
        assert_problem(operator.patch(f"/operator/clusters/{cluster.pk}", {"accepts_instances": True}), 409, "retired")
        assert_problem(operator.delete(f"/operator/clusters/{cluster.pk}"), 409, "retired")
        body = {"cluster_id": cluster.pk, "host_id": Host.objects.get().pk}
        assert_problem(operator.post("/operator/brokers", body), 409, "retired")

    def test_its_documents_are_deleted_and_those_of_others_stay(self, zookeeper_address: str) -> None:
        client = KazooClient(hosts=zookeeper_address)
        client.start()
        client.ensure_path("/penstock/cl-gone/a/b")
        client.ensure_path("/penstock/cl-stays/a")
        assert delete_tree(client, "/penstock/cl-gone") == (2, 0)
        assert delete_tree(client, "/penstock/cl-gone") == (0, 0)
        assert delete_tree(client, "/penstock/cl-never") == (0, 0)
        assert client.get_children("/penstock/cl-gone") == []
        assert client.get_children("/penstock/cl-stays") == ["a"]
        client.stop()
        client.close()


@pytest.mark.parametrize(
    ("ends", "read", "missing"),
    [
        ({"__usage": {"0": 3, "1": 0}}, {"__usage": {0: 3}}, {}),
        ({"__usage": {"0": 3, "1": 2}}, {"__usage": {0: 5}}, {"__usage": 2}),
        ({"__usage": {"0": 3}, "__audit": {"0": 1}}, {}, {"__usage": 3, "__audit": 1}),
    ],
)
def test_unread_records_are_counted_by_topic(
    ends: dict[str, dict[str, int]], read: dict[str, dict[int, int]], missing: dict[str, int]
) -> None:
    assert retiring.unread_records(ends, read) == missing


@pytest.mark.parametrize("method", ["PATCH", "DELETE"])
def test_tenants_and_strangers_are_refused_on_every_route(outsider: Member, tmp_path: Path, method: str) -> None:
    at = f"/operator/clusters/{make_fleet(tmp_path).pk}"
    body = {"accepts_instances": False} if method == "PATCH" else None
    assert_problem(Api.of(outsider).call(method, at, body), 403, "permission_denied")
    assert_problem(Api().call(method, at, body), 401)
    assert_problem(Api.of(outsider).post("/operator/clusters", {"name": "mine", "kind": "shared"}), 403)
    for path in ("/operator/operations", "/operator/operations/fop-00000000"):
        assert_problem(Api.of(outsider).get(path), 403, "permission_denied")
    assert Cluster.objects.get().state == ClusterState.READY


class TestPanel:
    def test_a_cluster_is_formed_changed_and_retired_by_forms(self, panel: Client, operator: Api, host: str) -> None:
        form = {
            "name": "second", "kind": "dedicated", "hosts": [host], "brokers_per_host": "2", "accepts_instances": "on",
            "brokers_per_instance_min": "2", "zones": "east",
        }  # fmt: skip
        page = panel.post("/operator/brokers/cluster/add/", form, follow=True).content.decode()
        assert "Brokers answer" in page
        assert "Being formed" in page
        cluster = Cluster.objects.get(name="second")
        assert (cluster.kind, cluster.zones, cluster.brokers.count()) == ("dedicated", ["east"], 2)
        edit = f"/operator/brokers/cluster/{cluster.pk}/edit/"
        panel.post(edit, {"name": "renamed", "brokers_per_instance_min": "1", "zones": ""})
        cluster.refresh_from_db()
        assert (cluster.name, cluster.accepts_instances, cluster.zones) == ("renamed", False, [])
        retire = f"/operator/brokers/cluster/{cluster.pk}/retire/"
        assert "There is no way back" in panel.get(retire).content.decode()
        assert "is being retired" in panel.post(retire, follow=True).content.decode()
        assert Cluster.objects.get(pk=cluster.pk).state == ClusterState.RETIRING
        assert cluster.pk in panel.get("/operator/brokers/fleetoperation/").content.decode()

    def test_a_refusal_stands_at_its_field(self, panel: Client, tmp_path: Path) -> None:
        taken = make_fleet(tmp_path)
        form = {"name": taken.name, "kind": "shared", "brokers_per_host": "1", "brokers_per_instance_min": "3"}
        assert "Another cluster has this name" in panel.post("/operator/brokers/cluster/add/", form).content.decode()
