"""The operator's pages of a cluster: missing brokers and replicas, and buttons that call services."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from brokers.choices import ProcessState
from brokers.contract.usage import USAGE_TOPIC
from brokers.models import Broker, Cluster, Rebalance, RollingRestart
from brokers.monitoring import broker_log, cluster_overview, observe
from brokers.operations import rolling_restart
from brokers.rebalancing import executor, services
from instances.interfaces import BrokerUnresponsive
from tenants.actors import system_actor
from tests.testkit.api_cases import Api, make_member, make_user
from tests.testkit.fake_cluster import FakeCluster, carry_out, create_instance_on, four_brokers, mark_lost

pytestmark = pytest.mark.django_db


@pytest.fixture()
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with four_brokers(tmp_path) as result:
        yield result


@pytest.fixture()
def admin_client(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    instance = create_instance_on(cluster, 1, 2, 3)
    result = FakeCluster(brokers={1, 2, 3, 4})
    result.add(f"{instance.pk}.orders", (1, 3), (2, 3), (3, 1))
    result.add(USAGE_TOPIC, (1,), (2,), (3,), (4,))
    for module in (executor, services):
        monkeypatch.setattr(module, "ClusterAdminClient", lambda _cluster: result)
    return result


@pytest.fixture(autouse=True)
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Returns the answer of brokers 1 to 3 about the cluster; broker 4 is unresponsive."""
    shares = [
        {"id": number, "live": True, "stopping": False, "leaders": 2, "preferred": 2, "replicas": 4, "out_of_sync": 0}
        for number in (1, 2, 3)
    ]
    known: dict[str, Any] = dict.fromkeys(cluster_overview.COUNTS, 0) | {
        "broker_id": 2, "ready": True, "controller_id": 2, "controller_epoch": 7, "partitions": 1_204,
        "brokers": shares,
    }  # fmt: skip

    def query_all(targets: Any, path: str) -> observe.BrokerAnswers:
        silent = tuple(
            BrokerUnresponsive(broker_id=target.number, reason="") for target in targets if target.number == 4
        )
        return observe.BrokerAnswers(
            bodies={2: known} if known else {}, silent=silent, queried_at=known.get("queried_at")
        )

    monkeypatch.setattr(
        cluster_overview, "_query_brokers", lambda found: query_all(observe.targets_of_cluster(found), "")
    )
    return known


def third(cluster: Cluster) -> Broker:
    return Broker.objects.get(cluster=cluster, number=3)


def shown(panel: Client, name: str, *args: object, query: str = "") -> str:
    answer = panel.get(reverse(f"admin:{name}", args=args) + query)
    assert answer.status_code == 200
    return answer.content.decode()


def post(panel: Client, name: str, *args: object, **body: str) -> str:
    answer = panel.post(reverse(f"admin:{name}", args=args), body, follow=True)
    assert answer.status_code == 200
    return answer.content.decode()


def test_the_map_says_whether_anything_is_missing(panel: Client, cluster: Cluster, answers: dict[str, Any]) -> None:
    page = shown(panel, "brokers_cluster_map", cluster.pk)
    assert "of 1,204 partitions" in page and "Broker 4 does not answer." in page
    assert "Degraded, safe" in page and "controller" in page
    assert cluster.read_control_secret() not in page
    answers["offline"] = 2
    assert "Partitions without a leader" in shown(panel, "brokers_cluster_map", cluster.pk)
    answers.clear()
    assert "Not known" in shown(panel, "brokers_cluster_map", cluster.pk)


def test_the_map_says_when_brokers_run_different_versions(
    panel: Client, cluster: Cluster, answers: dict[str, Any]
) -> None:
    for share, version in zip(answers["brokers"], ("1.1.0", "1.1.0", ""), strict=True):
        share["version"] = version
    page = shown(panel, "brokers_cluster_map", cluster.pk)
    assert "Brokers run different versions: an upgrade is under way." in page
    assert "version 1.1.0" in page
    answers["brokers"][2]["version"] = "1.1.0"
    assert "different versions" not in shown(panel, "brokers_cluster_map", cluster.pk)


NO_RISK = "no acknowledged record is at risk"


def _tell(answers: dict[str, Any], **changes: Any) -> None:
    """Caches the overview with broker 4 unresponsive, and with counts of partitions."""
    known = {"id": 4, "live": True, "stopping": False, "leaders": 2, "preferred": 2, "replicas": 4, "out_of_sync": 0}
    others = [answer for answer in answers["brokers"] if answer["id"] != 4]
    live = changes.pop("live")
    answers.update(changes, brokers=[*others, known | {"live": live}])


def test_the_map_says_checking_until_the_controller_has_acted_on_a_loss(
    panel: Client, cluster: Cluster, operator: Api, answers: dict[str, Any]
) -> None:
    def reconcile_once() -> str:
        return shown(panel, "brokers_cluster_map", cluster.pk)

    stages = {
        "others do not know yet": {"live": True},
        "its partitions have no other leader yet": {"live": False, "offline": 2, "undecided": 2},
        "it was the controller": {"live": False, "offline": 0, "undecided": 0, "controller_id": 4},
    }
    for stage, message in stages.items():
        _tell(answers, **message)
        page = reconcile_once()
        assert "Checking" in page, stage
        assert NO_RISK not in page and "No acknowledged record is lost" not in page, stage
        assert operator.get(f"/operator/clusters/{cluster.pk}").json()["is_checking"], stage
    _tell(answers, live=False, controller_id=2, under_replicated=4)
    page = reconcile_once()
    assert "Checking" not in page and NO_RISK in page
    assert not operator.get(f"/operator/clusters/{cluster.pk}").json()["is_checking"]


def test_a_process_that_ended_is_checked_before_anybody_missed_its_answer(
    panel: Client, cluster: Cluster, answers: dict[str, Any]
) -> None:
    """The agent's report is newer than an answer that is cached for a second."""
    now = timezone.now()
    answers["queried_at"] = now
    third_row = cluster.brokers.filter(number=3)
    third_row.update(process_since=now - timedelta(hours=1))
    assert "Checking" not in shown(panel, "brokers_cluster_map", cluster.pk)
    third_row.update(process_state=ProcessState.BACKING_OFF)
    assert "Checking" in shown(panel, "brokers_cluster_map", cluster.pk)
    third_row.update(process_state=ProcessState.RUNNING, process_since=now + timedelta(milliseconds=1))
    assert "Checking" in shown(panel, "brokers_cluster_map", cluster.pk)


def test_a_plan_starts_from_the_figures_of_the_map(panel: Client, cluster: Cluster, admin_client: FakeCluster) -> None:
    """Current leaders instead of preferred ones, and the bytes of each replica."""
    first = next(key for key in admin_client.replicas if key[0] != USAGE_TOPIC)
    admin_client.leaders[first] = 3
    admin_client.size_bytes[3, first] = 7_000
    post(panel, "brokers_plan_drain", third(cluster).pk)
    before = Rebalance.objects.get().shares["before"]
    for number in (1, 2, 3, 4):
        held = admin_client.replica_sizes(number).values()
        assert before[str(number)] == {
            "replicas": len(admin_client.holds(number)),
            "leaders": sum(leader == number for leader in admin_client.leaders.values()),
            "size_bytes": sum(item.size_bytes for item in held),
        }
    after = Rebalance.objects.get().shares["after"]
    assert sum(item["leaders"] for item in after.values()) == len(admin_client.replicas)


def test_the_map_renews_only_its_part(panel: Client, cluster: Cluster) -> None:
    answer = panel.get(reverse("admin:brokers_cluster_map", args=[cluster.pk]), headers={"HX-Request": "true"})
    assert b"<html" not in answer.content and b"Under-replicated" in answer.content


def test_partitions_are_shown_a_page_at_a_time(
    panel: Client, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}

    def page(_cluster: Cluster, **wanted: Any) -> tuple[list[Mapping[str, Any]], str]:
        asked.update(wanted)
        line = {
            "topic": "ins-00000000.orders", "partition": 7, "instance_id": "ins-00000000", "leader": -1,
            "leader_epoch": 3, "replicas": [1, 2], "isr": [1], "adding": [], "removing": [],
        }  # fmt: skip
        return [line], "ins-00000000.orders/7"

    monkeypatch.setattr(cluster_overview, "partition_page", page)
    shown_page = shown(panel, "brokers_cluster_partitions", cluster.pk, query="?state=offline&broker=2&after=a%2F1")
    assert (asked["state"], asked["broker"], asked["after"], asked["limit"]) == ("offline", 2, "a/1", 50)
    assert "ins-00000000.orders / 7" in shown_page and "none" in shown_page
    assert "after=ins-00000000.orders%2F7" in shown_page
    for odd in ("x", "\u00b2", "9" * 5_000):
        shown(panel, "brokers_cluster_partitions", cluster.pk, query=f"?state=odd&broker={odd}")
        assert (asked["state"], asked["broker"]) == ("all", None)


def test_a_broker_is_added_by_its_form(panel: Client, cluster: Cluster) -> None:
    host = third(cluster).host
    cluster.brokers.update(rack="a")
    assert "Data directories" in shown(panel, "brokers_broker_add_to", cluster.pk)
    body = {"host": host.pk, "rack": "b", "data_dirs": "", "bandwidth_mb_s": "900", "storage_gb": "100"}
    page = post(panel, "brokers_broker_add_to", cluster.pk, **body)
    assert "Broker 5 is being started" in page
    assert cluster.brokers.get(number=5).rack == "b"
    post(panel, "brokers_broker_add_to", cluster.pk, **{**body, "data_dirs": "/data/first disk/a\r\n\r\n /data/b/"})
    assert cluster.brokers.order_by("-number").first().data_dirs == ["/data/first disk/a", "/data/b"]
    page = post(panel, "brokers_broker_add_to", cluster.pk, **{**body, "data_dirs": "relative/path"})
    assert "An absolute path." in page
    page = post(panel, "brokers_broker_add_to", cluster.pk, **{**body, "storage_gb": "9" * 20})
    assert "less than or equal to 1000000" in page
    assert cluster.brokers.count() == 6


def test_a_drain_is_looked_at_started_paused_and_undone(
    panel: Client, cluster: Cluster, admin_client: FakeCluster
) -> None:
    page = post(panel, "brokers_plan_drain", third(cluster).pk)
    row = Rebalance.objects.get()
    assert "Nothing moves yet" in page and "orders / 0" in page and not row.removes
    assert "Running" in post(panel, "brokers_rebalance_act", row.pk, "start")
    assert "Paused" in post(panel, "brokers_rebalance_act", row.pk, "pause")
    assert "Draining" not in post(panel, "brokers_rebalance_act", row.pk, "resume")
    assert "Draining" in shown(panel, "brokers_cluster_map", cluster.pk)
    assert "Being undone" in post(panel, "brokers_rebalance_act", row.pk, "undo")
    carry_out(admin_client, row)
    assert "Undone" in shown(panel, "brokers_rebalance_change", row.pk, query="?state=undone")
    assert "The rebalance is undone." in post(panel, "brokers_rebalance_act", row.pk, "pause")


def test_a_rebalance_is_let_copy_faster_and_slower(panel: Client, cluster: Cluster, admin_client: FakeCluster) -> None:
    post(panel, "brokers_plan_drain", third(cluster).pk)
    row = Rebalance.objects.get()
    assert 'name="copy_mb_s"' in shown(panel, "brokers_rebalance_change", row.pk)
    page = post(panel, "brokers_rebalance_pace", row.pk, copy_mb_s="1500")
    assert "at most 1,500 MB/s" in page and "each broker 1,500 MB/s" in page and 'value="1500"' in page
    assert "whole MB/s from 1 to 10,000" in post(panel, "brokers_rebalance_pace", row.pk, copy_mb_s="0")
    row.refresh_from_db()
    assert row.copy_mb_s == 1_500
    assert "as fast as they can" in post(panel, "brokers_rebalance_pace", row.pk, copy_mb_s="")
    post(panel, "brokers_rebalance_act", row.pk, "discard")
    assert "The rebalance is discarded." in post(panel, "brokers_rebalance_pace", row.pk, copy_mb_s="5")
    assert 'name="copy_mb_s"' not in shown(panel, "brokers_rebalance_change", row.pk)


def test_removing_a_broker_asks_for_its_number(panel: Client, cluster: Cluster, admin_client: FakeCluster) -> None:
    post(panel, "brokers_plan_drain", third(cluster).pk, removes="yes")
    row = Rebalance.objects.get()
    page = post(panel, "brokers_rebalance_act", row.pk, "start", typed="4")
    assert "Type the number" in page
    post(panel, "brokers_rebalance_act", row.pk, "start", typed="3")
    carry_out(admin_client, row)
    assert third(cluster).removed_at is not None
    assert "Broker 3<" not in shown(panel, "brokers_cluster_map", cluster.pk)


def test_levelling_is_planned_and_discarded(panel: Client, cluster: Cluster, admin_client: FakeCluster) -> None:
    post(panel, "brokers_plan_balance", cluster.pk)
    row = Rebalance.objects.get()
    assert "Discarded" in post(panel, "brokers_rebalance_act", row.pk, "discard")
    carry_out(admin_client, services.start(acting=system_actor("test"), rebalance=_balance(cluster)))
    assert "nothing to move" in post(panel, "brokers_plan_balance", cluster.pk)


def _balance(cluster: Cluster) -> Rebalance:
    return services.plan_balance(acting=system_actor("test"), cluster=cluster)


def test_a_rolling_restart_is_followed_on_the_map(panel: Client, cluster: Cluster) -> None:
    asks = shown(panel, "brokers_rolling_restart", cluster.pk)
    assert "Restart them in turn" in asks and "1, 2, 3, 4" in asks and not RollingRestart.objects.exists()
    assert "restarted one after the other" in post(panel, "brokers_rolling_restart", cluster.pk)
    row = RollingRestart.objects.get()
    assert "Now: broker 1." in shown(panel, "brokers_cluster_map", cluster.pk)
    post(panel, "brokers_restart_act", row.pk, "pause")
    post(panel, "brokers_restart_act", row.pk, "cancel")
    row.refresh_from_db()
    assert row.state == "cancelled"
    assert "Now: broker" not in shown(panel, "brokers_cluster_map", cluster.pk)


@pytest.mark.parametrize("name", ["rebalance", "rollingrestart"])
def test_the_lists_open(panel: Client, cluster: Cluster, admin_client: FakeCluster, name: str) -> None:
    _balance(cluster)
    rolling_restart.start(acting=system_actor("test"), cluster=cluster)
    assert cluster.name in shown(panel, f"brokers_{name}_changelist")


def test_an_operator_who_may_only_look_cannot_act_and_a_tenant_sees_nothing(
    cluster: Cluster, admin_client: FakeCluster
) -> None:
    looker = make_user(is_staff=True)
    looker.user_permissions.add(Permission.objects.get(codename="view_cluster"))
    client = Client()
    client.force_login(looker)
    assert "Plan to empty" not in shown(client, "brokers_cluster_map", cluster.pk)
    assert client.post(reverse("admin:brokers_plan_drain", args=[third(cluster).pk])).status_code == 403
    assert client.post(reverse("admin:brokers_rolling_restart", args=[cluster.pk])).status_code == 403
    assert "Restart them in turn" not in shown(client, "brokers_rolling_restart", cluster.pk)
    for name in ("brokers_start_broker", "brokers_accept_instances"):
        assert client.post(reverse(f"admin:{name}", args=[third(cluster).pk])).status_code == 403
    assert not Rebalance.objects.exists() and not RollingRestart.objects.exists()
    tenant = Client()
    tenant.force_login(make_member().user)
    for name in (
        "brokers_cluster_map", "brokers_cluster_partitions", "brokers_broker_add_to", "brokers_rolling_restart",
    ):  # fmt: skip
        assert tenant.get(reverse(f"admin:{name}", args=[cluster.pk])).status_code == 302


def test_an_end_that_comes_near_is_no_warning(panel: Client, cluster: Cluster, admin_client: FakeCluster) -> None:
    post(panel, "brokers_plan_drain", third(cluster).pk)
    row = Rebalance.objects.get()
    post(panel, "brokers_rebalance_act", row.pk, "start")
    row.moves.update(state="done")
    for page in (shown(panel, "brokers_cluster_map", cluster.pk), shown(panel, "brokers_rebalance_change", row.pk)):
        assert 'role="progressbar" aria-valuenow="100"' in page
        assert "meter hot" not in page and "meter full" not in page
    assert "keeps the partitions of its own usage counters" in shown(panel, "brokers_rebalance_change", row.pk)


def test_a_broker_that_is_starting_has_no_epoch_yet_and_one_is_one(
    panel: Client, cluster: Cluster, answers: dict[str, Any]
) -> None:
    answers["brokers"][0] |= {"leaders": 1, "replicas": 1}
    cluster.brokers.update(observed={"epoch": -1})
    page = shown(panel, "brokers_cluster_map", cluster.pk)
    assert "epoch -1" not in page
    assert "<b>1</b> leader<" in page and "<b>1</b> replica<" in page


def test_a_part_of_the_panel_without_a_session_is_never_the_login(client: Client, cluster: Cluster) -> None:
    at = reverse("admin:brokers_cluster_map", args=[cluster.pk])
    part = client.get(at, headers={"HX-Request": "true"})
    assert (part.status_code, part["HX-Refresh"], part.content) == (401, "true", b"")
    assert client.get(at).status_code == 302


def test_a_lost_broker_is_removed_by_typing_its_number(
    panel: Client, cluster: Cluster, admin_client: FakeCluster, answers: dict[str, Any]
) -> None:
    instance_id = next(topic for topic, _ in admin_client.replicas if topic != USAGE_TOPIC).partition(".")[0]
    admin_client.add(f"{instance_id}.solo", (3,))
    page = post(panel, "brokers_plan_drain", third(cluster).pk, lost="yes")
    assert "Broker 3 does not count as lost" in page and not Rebalance.objects.exists()
    mark_lost(admin_client, cluster)
    before = shown(panel, "brokers_cluster_map", cluster.pk).count("Plan to remove as lost")
    answers["brokers"][2]["live"] = False
    assert shown(panel, "brokers_cluster_map", cluster.pk).count("Plan to remove as lost") == before + 1
    page = post(panel, "brokers_plan_drain", third(cluster).pk, lost="yes")
    row = Rebalance.objects.get()
    assert "What is lost" in page and "Everything: made anew, empty" in page and "solo" in page
    assert "Remove broker 3 and give up what is lost" in page
    assert "Type the number" in post(panel, "brokers_rebalance_act", row.pk, "start", typed="4")
    page = post(panel, "brokers_rebalance_act", row.pk, "start", typed="3")
    assert "Running" in page and ">Undo<" not in page
    carry_out(admin_client, row)
    assert third(cluster).removed_at is not None


def test_a_loss_that_takes_nothing_with_it_says_so(panel: Client, cluster: Cluster, admin_client: FakeCluster) -> None:
    del admin_client.replicas[USAGE_TOPIC, 2], admin_client.leaders[USAGE_TOPIC, 2]
    mark_lost(admin_client, cluster)
    page = post(panel, "brokers_plan_drain", third(cluster).pk, lost="yes")
    assert "Nothing: other brokers have all of it." in page and "give up what is lost" not in page


def test_a_rebalance_is_abandoned_after_a_page_that_says_what_that_means(
    panel: Client, cluster: Cluster, admin_client: FakeCluster
) -> None:
    mark_lost(admin_client, cluster)
    post(panel, "brokers_plan_drain", third(cluster).pk, lost="yes")
    row = Rebalance.objects.get()
    assert reverse("admin:brokers_rebalance_abandon", args=[row.pk]) not in shown(
        panel, "brokers_rebalance_change", row.pk
    )
    page = post(panel, "brokers_rebalance_act", row.pk, "start", typed="3")
    assert reverse("admin:brokers_rebalance_abandon", args=[row.pk]) in page
    assert "What was moved stays where it is" in shown(panel, "brokers_rebalance_abandon", row.pk)
    row.refresh_from_db()
    assert row.state == "running"
    assert "Being abandoned" in post(panel, "brokers_rebalance_act", row.pk, "abandon")
    assert "Being abandoned" in shown(panel, "brokers_cluster_map", cluster.pk)
    carry_out(admin_client, row)
    assert "Left as it is" in shown(panel, "brokers_rebalance_change", row.pk)
    assert "Start the broker" in shown(panel, "brokers_cluster_map", cluster.pk)
    assert "Broker 3 is being started." in post(panel, "brokers_start_broker", third(cluster).pk)
    assert third(cluster).wanted == "running"
    assert "The broker is not stopped." in post(panel, "brokers_start_broker", third(cluster).pk)


def test_an_emptied_broker_is_returned_to_service(panel: Client, cluster: Cluster, admin_client: FakeCluster) -> None:
    assert "Take instances again" not in shown(panel, "brokers_cluster_map", cluster.pk)
    Broker.objects.filter(pk=third(cluster).pk).update(accepts_instances=False)
    page = shown(panel, "brokers_cluster_map", cluster.pk)
    assert "takes no further instances" in page and "Take instances again" in page
    assert "Broker 3 takes further instances." in post(panel, "brokers_accept_instances", third(cluster).pk)
    assert third(cluster).accepts_instances
    assert "takes further instances already" in post(panel, "brokers_accept_instances", third(cluster).pk)


@pytest.fixture()
def logged(cluster: Cluster, tmp_path: Path, settings: Any) -> tuple[Broker, Path]:
    """A broker of this machine, and its log file."""
    settings.STATE_DIR = tmp_path
    broker = Broker.objects.filter(cluster=cluster).order_by("number").first()
    assert broker is not None
    file = tmp_path / "agent" / cluster.pk / str(broker.number) / "broker.log"
    file.parent.mkdir(parents=True)
    return broker, file


def log_page(panel: Client, broker: Broker) -> str:
    return panel.get(reverse("admin:brokers_broker_change", args=[broker.pk])).content.decode()


def test_a_brokers_page_shows_the_end_of_its_log(panel: Client, logged: tuple[Broker, Path]) -> None:
    broker, file = logged
    file.write_text("".join(f"line {number}\n" for number in range(1_000)) + "<script>alert(1)</script>\x1b[31m\n")
    page = log_page(panel, broker)
    assert "line 999" in page
    assert "line 951" in page
    assert "line 950\n" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "<script>alert(1)" not in page
    assert "\x1b" not in page


@pytest.mark.parametrize("content", [b"x" * 10**7, b"\xff\x00" * 10**6, b"\n" * 10**6, b"", b"y\n" * 10**6])
def test_a_log_of_any_shape_is_read_within_bounds(logged: tuple[Broker, Path], content: bytes) -> None:
    broker, file = logged
    file.write_bytes(content)
    lines = broker_log.last_lines(broker)
    assert lines is not None
    assert len(lines) <= broker_log.LINES_MAX
    assert all(len(line) <= broker_log.LINE_CHARS_MAX + 2 for line in lines)
    assert all(line.isprintable() for line in lines)


def test_a_log_that_is_on_another_machine_is_named(panel: Client, logged: tuple[Broker, Path]) -> None:
    broker, file = logged
    page = log_page(panel, broker)
    assert f"On host {broker.host.name} it is agent/{broker.cluster_id}/{broker.number}/broker.log" in page
    file.mkdir()
    assert "It is not on this machine." in log_page(panel, broker)
