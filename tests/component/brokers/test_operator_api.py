"""The fleet over REST: visible to operators only, without secrets, and restarts of brokers."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from billing.selectors import usage_sources
from brokers.choices import ProcessState, WantedState
from brokers.contract.upstream import UPSTREAM_LOST
from brokers.models import Broker, Cluster, Placement
from brokers.monitoring import health
from brokers.operations.seed import seed_fleet
from instances.models import Instance
from tenants.models import Member
from tests.testkit.api_cases import Api, assert_problem, make_tenant
from tests.testkit.fleet import make_fleet, make_running, place

pytestmark = pytest.mark.django_db

LISTS = ("clusters", "hosts", "brokers", "placements")


@pytest.fixture()
def cluster(tmp_path: Path) -> Cluster:
    return make_fleet(tmp_path)


@pytest.mark.parametrize("what", LISTS)
def test_tenants_may_not_look_at_the_fleet(cluster: Cluster, outsider: Member, what: str) -> None:
    assert_problem(Api.of(outsider).get(f"/operator/{what}"), 403, "permission_denied")
    assert_problem(Api().get(f"/operator/{what}"), 401)


@pytest.mark.parametrize("what", LISTS)
def test_operators_see_the_fleet_and_no_secret(cluster: Cluster, operator: Api, what: str) -> None:
    place(make_running(make_tenant()), cluster)
    answer = operator.get(f"/operator/{what}")
    assert answer.status_code == 200
    assert answer.json()["items"]
    text = answer.content.decode()
    assert cluster.read_control_secret() not in text
    assert cluster.control_secret_file not in text


def test_a_cluster_tells_what_it_sold(cluster: Cluster, operator: Api) -> None:
    place(make_running(make_tenant(), bandwidth_mb_s=40, storage_gb=30), cluster)
    (shown,) = operator.get("/operator/clusters").json()["items"]
    assert shown["room"] == {
        "bandwidth_mb_s": 3_000, "storage_gb": 3_000, "sold_bandwidth_mb_s": 40, "sold_storage_gb": 30, "instances": 1,
        "sold_partitions": 50,
    }  # fmt: skip


def test_one_broker_at_a_time_is_restarted(cluster: Cluster, operator: Api) -> None:
    first, second = list(cluster.brokers.order_by("number"))[:2]
    cluster.brokers.update(process_state=ProcessState.RUNNING)
    assert operator.post(f"/operator/brokers/{first.pk}/restart").status_code == 202
    assert_problem(operator.post(f"/operator/brokers/{second.pk}/restart"), 409, "restart_in_progress")
    Broker.objects.filter(pk=first.pk).update(process_restart_generation=1)
    assert operator.post(f"/operator/brokers/{second.pk}/restart").status_code == 202
    assert_problem(operator.post("/operator/brokers/brk-00000000/restart"), 404)


BROKEN_DISK = {
    "log_directories": [
        {"path": "/data/1", "partitions": 4, "size_bytes": 9, "offline_reason": None},
        {"path": "/data/2", "partitions": 0, "size_bytes": 0, "offline_reason": "Input/output error"},
    ]
}


LOST_UPSTREAM = {"not_ready_since_ms": {UPSTREAM_LOST: 1_780_000_000_000}}


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"process_state": ProcessState.RUNNING, "age_s": 1}, "healthy"),
        ({"process_state": ProcessState.RUNNING, "age_s": 1, "observed": LOST_UPSTREAM}, "upstream_lost"),
        ({"process_state": ProcessState.RUNNING, "age_s": 60, "observed": LOST_UPSTREAM}, "late"),
        ({"process_state": ProcessState.RUNNING, "age_s": 1, "observed": BROKEN_DISK}, "disk_offline"),
        ({"process_state": ProcessState.RUNNING, "age_s": 60}, "late"),
        ({"process_state": ProcessState.STARTING, "age_s": None}, "starting"),
        ({"process_state": ProcessState.BACKING_OFF, "age_s": 1}, "down"),
        ({"process_state": ProcessState.UNKNOWN, "age_s": None}, "down"),
        ({"process_state": ProcessState.STOPPED, "age_s": None, "wanted": WantedState.STOPPED}, "stopped"),
    ],
)
def test_health_is_one_word_from_both_looks(cluster: Cluster, fields: dict[str, Any], word: str) -> None:
    now = timezone.now()
    broker = cluster.brokers.first()
    assert broker is not None
    age_s = fields.pop("age_s")
    broker.observed_at = None if age_s is None else now - timedelta(seconds=age_s)
    for name, value in fields.items():
        setattr(broker, name, value)
    assert health.health(broker, now).value == word


def test_seeding_again_keeps_rows_and_adds_brokers(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    kept = {"data_root": tmp_path, "control_secret_file": secret}
    seed_fleet(brokers=2, **kept)
    before = list(Broker.objects.order_by("number").values_list("pk", "data_dirs"))
    cluster = seed_fleet(brokers=3, internal_port_base=18_501, **kept)
    after = list(Broker.objects.order_by("number").values_list("pk", "data_dirs"))
    assert after[:2] == before
    assert list(cluster.brokers.values_list("internal_port", flat=True)) == [18_501, 18_502, 18_503]
    with pytest.raises(ValueError, match="1 to"):
        seed_fleet(brokers=0, **kept)


def test_the_pipeline_gets_the_internal_listeners_and_a_password_that_is_not_printed(cluster: Cluster) -> None:
    (source,) = usage_sources()
    assert source.cluster_id == cluster.pk
    assert len(source.bootstrap.split(",")) == 3
    assert source.password == cluster.read_control_secret()
    assert source.password not in repr(source)


class TestPanel:
    """The operator's pages, and their actions."""

    @pytest.mark.parametrize(
        "page",
        [
            "brokers/cluster", "brokers/host", "brokers/broker", "brokers/placement", "brokers/portlease",
            "instances/instance", "instances/operation", "instances/topicallowlist",
        ],
    )  # fmt: skip
    def test_every_page_opens_and_shows_no_secret(self, panel: Client, cluster: Cluster, page: str) -> None:
        place(make_running(make_tenant()), cluster)
        answer = panel.get(f"/operator/{page}/")
        assert answer.status_code == 200
        assert cluster.control_secret_file not in answer.content.decode()

    def test_the_form_of_a_cluster_shows_no_secret(self, panel: Client, cluster: Cluster) -> None:
        answer = panel.get(f"/operator/brokers/cluster/{cluster.pk}/change/", follow=True)
        assert answer.status_code == 200
        assert cluster.control_secret_file not in answer.content.decode()

    def test_the_operator_reads_which_disk_is_offline_and_why(self, panel: Client, cluster: Cluster) -> None:
        broker = cluster.brokers.first()
        assert broker is not None
        Broker.objects.filter(pk=broker.pk).update(
            observed=BROKEN_DISK, observed_at=timezone.now(), process_state=ProcessState.RUNNING
        )
        listed = panel.get("/operator/brokers/broker/").content.decode()
        assert "A disk is offline" in listed
        shown = panel.get(f"/operator/brokers/broker/{broker.pk}/change/").content.decode()
        assert "/data/2: Input/output error" in shown

    def test_instances_are_suspended_and_resumed(self, panel: Client, cluster: Cluster) -> None:
        instance = make_running(make_tenant())
        place(instance, cluster)
        for action, phase in (("suspend", "suspended"), ("resume", "updating")):
            body = {"action": action, "_selected_action": [instance.pk]}
            if action == "suspend":
                page = panel.post("/operator/instances/instance/", body).content.decode()
                assert "Produce is refused, consume goes on." in page
                assert Instance.objects.get(pk=instance.pk).phase == "running"
                body |= {"note": "Your disk test slows others down.", "typed": instance.name}
            assert panel.post("/operator/instances/instance/", body, follow=True).status_code == 200
            assert Instance.objects.get(pk=instance.pk).phase == phase

    def test_a_broker_is_restarted(self, panel: Client, cluster: Cluster) -> None:
        broker = cluster.brokers.first()
        assert broker is not None
        body = {"action": "restart", "_selected_action": [broker.pk]}
        assert panel.post("/operator/brokers/broker/", body, follow=True).status_code == 200
        assert Broker.objects.get(pk=broker.pk).restart_generation == 1
        assert Placement.objects.count() == 0
