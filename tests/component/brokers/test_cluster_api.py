"""Map, moves and restarts over REST: for operators only, and invisible to all others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from brokers import services as broker_services
from brokers.choices import RebalanceKind, WantedState
from brokers.contract.usage import USAGE_TOPIC
from brokers.models import Broker, Cluster, PartitionReassignment, Rebalance, RollingRestart
from brokers.monitoring import cluster_overview, observe
from brokers.operations import job_runner
from brokers.rebalancing import executor, services
from instances.interfaces import BrokerUnresponsive
from tenants.actors import system_actor
from tenants.choices import Role
from tenants.models import AuditEntry, Member
from tests.testkit.api_cases import Api, assert_problem, make_member
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


def third(cluster: Cluster) -> Broker:
    return Broker.objects.get(cluster=cluster, number=3)


def shares(*numbers: int, **more: Any) -> list[dict[str, Any]]:
    known = {"live": True, "stopping": False, "leaders": 2, "preferred": 2, "replicas": 4, "out_of_sync": 0}
    return [{"id": number, **known, **more} for number in numbers]


def snapshot(asked: int, **more: Any) -> dict[str, Any]:
    counts = dict.fromkeys(cluster_overview.COUNTS, 0) | {"partitions": 9}
    known = {"broker_id": asked, "ready": True, "controller_id": 2, "controller_epoch": 7}
    return {**known, **counts, "brokers": shares(1, 2, 3), **more}


@pytest.fixture()
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[int, Mapping[str, Any]]:
    """Returns the snapshot that each broker answers; a broker without one is unresponsive."""
    result: dict[int, Mapping[str, Any]] = {number: snapshot(number) for number in (1, 2, 3)}

    def query_all(targets: Any, path: str) -> observe.BrokerAnswers:
        silent = tuple(
            BrokerUnresponsive(broker_id=target.number, reason="") for target in targets if target.number not in result
        )
        return observe.BrokerAnswers(bodies=result, silent=silent)

    monkeypatch.setattr(observe, "query_all", query_all)
    return result


CALLS = (
    ("GET", "/operator/clusters/{cluster}", None),
    ("GET", "/operator/clusters/{cluster}/partitions", None),
    ("GET", "/operator/clusters/{cluster}/settings", None),
    ("PATCH", "/operator/clusters/{cluster}/settings", {"settings": {"log.cleaner.threads": "2"}}),
    ("GET", "/operator/brokers/{broker}/settings", None),
    ("PATCH", "/operator/brokers/{broker}/settings", {"settings": {"log.cleaner.threads": "2"}}),
    ("POST", "/operator/brokers", {"cluster_id": "{cluster}", "host_id": "{host}"}),
    ("GET", "/operator/rebalances", None),
    ("POST", "/operator/rebalances", {"kind": "drain", "broker_id": "{broker}"}),
    ("POST", "/operator/brokers/{broker}/drain", {}),
    ("POST", "/operator/rebalances", {"kind": "loss", "broker_id": "{broker}"}),
    ("GET", "/operator/rebalances/{rebalance}", None),
    ("GET", "/operator/rebalances/{rebalance}/moves", None),
    *(("POST", f"/operator/rebalances/{{rebalance}}/{act}", None) for act in ("start", "pause", "resume", "undo")),
    ("POST", "/operator/rebalances/{rebalance}/abandon", None),
    ("PATCH", "/operator/rebalances/{rebalance}", {"copy_mb_s": "5"}),
    ("POST", "/operator/brokers/{broker}/start", None),
    ("POST", "/operator/brokers/{broker}/accept_instances", None),
    ("POST", "/operator/rebalances/{rebalance}/discard", None),
    ("GET", "/operator/rolling_restarts", None),
    ("POST", "/operator/rolling_restarts", {"cluster_id": "{cluster}"}),
    ("GET", "/operator/rolling_restarts/{restart}", None),
    *(("POST", f"/operator/rolling_restarts/{{restart}}/{act}", None) for act in ("pause", "resume", "cancel")),
)


every_call = pytest.mark.parametrize(
    ("method", "path", "body"), CALLS, ids=[f"{method} {path}" for method, path, _ in CALLS]
)


@pytest.fixture()
def names(cluster: Cluster) -> dict[str, str]:
    """Returns the ids of the objects in the calls."""
    rebalance = Rebalance.objects.create(cluster=cluster, kind="balance", planned_by="me")
    restart = RollingRestart.objects.create(cluster=cluster, numbers=[1], asked_by="me")
    broker = third(cluster)
    return {
        "cluster": cluster.pk, "host": broker.host_id, "broker": broker.pk, "rebalance": rebalance.pk,
        "restart": restart.pk,
    }  # fmt: skip


def filled_in(body: dict[str, Any] | None, names: dict[str, str]) -> dict[str, Any] | None:
    """Returns the body with the ids of the objects."""
    if body is None:
        return None
    return {key: value.format(**names) if isinstance(value, str) else value for key, value in body.items()}


@every_call
def test_nobody_but_an_operator_gets_in(
    names: dict[str, str], outsider: Member, method: str, path: str, body: dict[str, Any] | None
) -> None:
    filled = filled_in(body, names)
    before = AuditEntry.objects.count()
    assert_problem(Api().call(method, path.format(**names), filled), 401, "unauthenticated")
    tenant_calls = Api.of(outsider)
    entries = AuditEntry.objects.count()
    assert_problem(tenant_calls.call(method, path.format(**names), filled), 403, "permission_denied")
    assert AuditEntry.objects.count() == entries >= before


@every_call
def test_an_operator_who_may_only_look_changes_nothing_here_either(
    names: dict[str, str], outsider: Member, method: str, path: str, body: dict[str, Any] | None
) -> None:
    outsider.user.is_staff = True
    outsider.user.save()
    caller, blind = Api.of(outsider, ["operator"]), {"detail": "Of clusters you may see nothing."}
    filled = filled_in(body, names)
    entries = AuditEntry.objects.count()
    if method == "GET":
        assert blind.items() <= caller.get(path.format(**names)).json().items()
    outsider.user.user_permissions.add(Permission.objects.get(codename="view_cluster"))
    answer = caller.call(method, path.format(**names), filled)
    if method == "GET":
        assert answer.status_code != 403
    else:
        assert_problem(answer, 403, "permission_denied")
    assert AuditEntry.objects.count() == entries


def test_the_map_shows_the_controllers_image(
    cluster: Cluster, operator: Api, answers: dict[int, Mapping[str, Any]]
) -> None:
    answers[1] = snapshot(1, under_replicated=99, controller_id=1, controller_epoch=6)
    answers[2] = snapshot(2, under_replicated=3, brokers=shares(1, 2, 3, out_of_sync=1))
    shown = operator.get(f"/operator/clusters/{cluster.pk}").json()
    assert shown["counts"]["under_replicated"] == 3 and shown["counts"]["partitions"] == 9
    assert shown["controller"] == 2
    assert shown["silent"] == [4]
    second, fourth = shown["brokers"][1], shown["brokers"][3]
    assert second["is_controller"] and (second["leaders"], second["out_of_sync"]) == (2, 1)
    assert not fourth["is_live"] and fourth["replicas"] == 0
    assert cluster.read_control_secret() not in str(shown)
    assert_problem(operator.get("/operator/clusters/cl-00000000"), 404)


def test_a_broker_is_drained_in_one_call_and_a_dry_run_shows_the_plan(
    cluster: Cluster, operator: Api, admin_client: FakeCluster
) -> None:
    at = f"/operator/brokers/{third(cluster).pk}/drain"
    planned = operator.post(f"{at}?dry_run=true", {"remove_broker": True})
    assert planned.status_code == 202
    assert planned.json()["state"] == "planned"
    assert planned.json()["progress"]["total"] > 0
    assert not Rebalance.objects.exists()
    begun = operator.post(at, {"remove_broker": True, "copy_mb_s": 5})
    row = Rebalance.objects.get()
    assert begun["Location"] == f"/api/v1/operator/rebalances/{row.pk}"
    assert (row.state, row.removes, row.copy_mb_s, row.broker_id) == ("running", True, 5, third(cluster).pk)
    assert {"rebalance.planned", "rebalance.started"} <= set(AuditEntry.objects.values_list("action", flat=True))
    assert_problem(operator.post(at, {}), 409, "rebalance_in_progress")


def test_without_any_answer_the_map_says_that_it_does_not_know(
    cluster: Cluster, operator: Api, answers: dict[int, Mapping[str, Any]]
) -> None:
    answers.clear()
    shown = operator.get(f"/operator/clusters/{cluster.pk}").json()
    assert shown["counts"] is None and shown["silent"] == [1, 2, 3, 4]
    assert shown["brokers"][0]["leaders"] is None


def test_partitions_come_page_by_page_from_the_broker(
    cluster: Cluster, operator: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    line = {
        "topic": "t", "partition": 0, "instance_id": None, "leader": 1, "leader_epoch": 0, "replicas": [1], "isr": [1],
        "adding": [], "removing": [],
    }  # fmt: skip

    def get(target: observe.AdminTarget, path: str) -> Mapping[str, Any]:
        asked.append(path)
        if target.number == 1:
            raise OSError("is down")
        return {"partitions": [line], "next": "t/0" if "after=&" in path else None}

    monkeypatch.setattr(observe, "get", get)
    at = f"/operator/clusters/{cluster.pk}/partitions?state=under_replicated&page_size=1"
    first = operator.get(at).json()
    assert [item["topic"] for item in first["items"]] == ["t"]
    second = operator.get(f"{at}&page_token={first['next_page_token']}").json()
    assert second["next_page_token"] is None
    assert "state=under_replicated&after=t%2F0&limit=1" in asked[-1]
    assert_problem(operator.get(f"{at}&page_token=nonsense"), 400, "invalid_page_token")
    assert operator.get(f"/operator/clusters/{cluster.pk}/partitions?broker=2").status_code == 200
    assert "broker=2" in asked[-1]
    for odd in ("state=odd", "broker=two", "broker=-1"):
        assert_problem(operator.get(f"/operator/clusters/{cluster.pk}/partitions?{odd}"), 400)
    monkeypatch.setattr(observe, "get", lambda *_: (_ for _ in ()).throw(OSError()))
    assert_problem(operator.get(at), 503, "unavailable")


def test_a_broker_is_added(cluster: Cluster, operator: Api) -> None:
    body = {"cluster_id": cluster.pk, "host_id": third(cluster).host_id, "rack": "b"}
    assert_problem(operator.post("/operator/brokers", body), 409, "zone_missing")
    cluster.brokers.update(rack="a")
    without_rack = {key: value for key, value in body.items() if key != "rack"}
    assert_problem(operator.post("/operator/brokers", without_rack), 409, "zone_missing")
    tried = operator.post("/operator/brokers?dry_run=true", body)
    assert tried.status_code == 201 and cluster.brokers.count() == 4
    made = operator.post("/operator/brokers", body)
    assert made.status_code == 201
    assert (made.json()["number"], made.json()["rack"], made.json()["wanted"]) == (5, "b", "running")
    assert operator.get(made["Location"]).json()["id"] == made.json()["id"]
    entry = AuditEntry.objects.get(action="broker.added")
    assert entry.actor_kind == "token" and entry.target_id == made.json()["id"]
    taken = {**body, "data_dirs": cluster.brokers.get(number=1).data_dirs}
    assert assert_problem(operator.post("/operator/brokers", taken), 400)["errors"][0]["pointer"] == "/data_dirs/0"
    for odd, pointer in (
        (["relative"], "/data_dirs/0"),
        (["/data/a/../b"], "/data_dirs/0"),
        (["/data/a", "/data//a/"], "/data_dirs/1"),
        (["/data/a", f"/{cluster.brokers.get(number=1).data_dirs[0]}/"], "/data_dirs/1"),
    ):
        problem = assert_problem(operator.post("/operator/brokers", {**body, "data_dirs": odd}), 400)
        assert problem["errors"][0]["pointer"] == pointer


def test_a_drain_is_planned_started_and_followed(cluster: Cluster, operator: Api, admin_client: FakeCluster) -> None:
    body = {"kind": "drain", "broker_id": third(cluster).pk, "remove_broker": True, "moves_at_once": 3}
    tried = operator.post("/operator/rebalances?dry_run=true", body).json()
    assert tried["progress"]["total"] == 4 and not Rebalance.objects.exists()
    made = operator.post("/operator/rebalances", body)
    assert made.status_code == 201
    plan = made.json()
    assert (plan["state"], plan["moves_at_once"], plan["remove_broker"]) == ("planned", 3, True)
    assert plan["shares"]["after"]["3"]["replicas"] == 1
    at = f"/operator/rebalances/{plan['id']}"
    page = operator.get(f"{at}/moves?page_size=2").json()
    assert len(page["items"]) == 2 and page["next_page_token"]
    assert all(3 in reassignment["before"] and 3 not in reassignment["target"] for reassignment in page["items"])
    assert operator.post(f"{at}/start").status_code == 202
    assert_problem(operator.post(f"{at}/start"), 409, "wrong_state")
    assert operator.post(f"{at}/pause").json()["state"] == "paused"
    assert operator.post(f"{at}/resume").json()["state"] == "running"
    carry_out(admin_client, Rebalance.objects.get(pk=plan["id"]))
    done = operator.get(at).json()
    assert (done["state"], done["progress"]["percent"], done["waits_for"]) == ("done", 100, "")
    assert [item["number"] for item in operator.get("/operator/brokers").json()["items"]] == [1, 2, 4]
    assert operator.get(f"{at}/moves?state=done").json()["items"]
    assert_problem(operator.post(f"{at}/undo"), 409, "too_late")
    actions = set(AuditEntry.objects.values_list("action", flat=True))
    assert {"rebalance.planned", "rebalance.started", "rebalance.ended", "broker.removed"} <= actions


def test_the_copy_rate_is_planned_and_changed(cluster: Cluster, operator: Api, admin_client: FakeCluster) -> None:
    body = {"kind": "drain", "broker_id": third(cluster).pk}
    assert operator.post("/operator/rebalances?dry_run=true", body).json()["copy_mb_s"] is None
    made = operator.post("/operator/rebalances", {**body, "copy_mb_s": 20})
    assert made.json()["copy_mb_s"] == 20
    at = f"/operator/rebalances/{made.json()['id']}"
    assert operator.patch(f"{at}?dry_run=true", {"copy_mb_s": 5}).json()["copy_mb_s"] == 5
    assert operator.get(at).json()["copy_mb_s"] == 20
    changed = operator.patch(at, {"copy_mb_s": 30})
    assert (changed.status_code, changed.json()["copy_mb_s"]) == (200, 30)
    assert operator.patch(at, {}).json()["copy_mb_s"] == 30
    assert operator.patch(at, {"copy_mb_s": None}).json()["copy_mb_s"] is None
    for odd in (0, 10_001, "5", 1.5):
        assert assert_problem(operator.patch(at, {"copy_mb_s": odd}), 400)["errors"][0]["pointer"] == "/copy_mb_s"
    entries = AuditEntry.objects.filter(action="rebalance.limited").values_list("before", "after")
    assert ({"copy_mb_s": 30}, {"copy_mb_s": None}) in list(entries)
    operator.post(f"{at}/discard")
    assert_problem(operator.patch(at, {"copy_mb_s": 5}), 409, "wrong_state")


def test_an_emptied_broker_takes_instances_again_after_a_later_rebalance(
    cluster: Cluster, operator: Api, admin_client: FakeCluster
) -> None:
    broker = third(cluster)
    at = f"/operator/brokers/{broker.pk}"
    assert_problem(operator.post(f"{at}/accept_instances"), 409, "wrong_state")
    made = operator.post(f"{at}/drain", {}).json()
    operator.post(f"/operator/rebalances/{made['id']}/start")
    assert_problem(operator.post(f"{at}/accept_instances"), 409, "rebalance_in_progress")
    carry_out(admin_client, Rebalance.objects.get(pk=made["id"]))
    Rebalance.objects.create(cluster=cluster, kind="balance", state="done", started_at=timezone.now(), planned_by="me")
    assert_problem(operator.post(f"/operator/rebalances/{made['id']}/undo"), 409, "too_late")
    assert operator.get(at).json()["accepts_instances"] is False

    assert operator.post(f"{at}/accept_instances").json()["accepts_instances"] is True
    assert AuditEntry.objects.get(action="broker.accepts_instances").target_id == broker.pk
    broker_services.set_wanted(acting=system_actor("tests"), broker=broker, wanted=WantedState.STOPPED)
    assert_problem(operator.post(f"{at}/accept_instances"), 409)


def test_levelling_is_planned_and_undone(cluster: Cluster, operator: Api, admin_client: FakeCluster) -> None:
    assert_problem(operator.post("/operator/rebalances", {"kind": "balance"}), 400)
    assert_problem(operator.post("/operator/rebalances", {"kind": "drain"}), 400)
    made = operator.post("/operator/rebalances", {"kind": "balance", "cluster_id": cluster.pk}).json()
    before = dict(admin_client.replicas)
    operator.post(f"/operator/rebalances/{made['id']}/start")
    job_runner.reconcile_once()
    assert operator.post(f"/operator/rebalances/{made['id']}/undo").json()["state"] == "undoing"
    carry_out(admin_client, Rebalance.objects.get(pk=made["id"]))
    assert operator.get(f"/operator/rebalances/{made['id']}").json()["state"] == "undone"
    assert admin_client.replicas == before


def test_topics_without_a_place_are_named(cluster: Cluster, operator: Api, admin_client: FakeCluster) -> None:
    admin_client.brokers.discard(4)
    name = next(topic for topic, _ in admin_client.replicas if topic != USAGE_TOPIC)
    admin_client.add(name, (1, 2, 3))
    problem = assert_problem(
        operator.post("/operator/rebalances", {"kind": "drain", "broker_id": third(cluster).pk}), 409, "no_place"
    )
    assert name in problem["errors"][0]["detail"]


def test_a_rolling_restart_is_started_paused_and_cancelled(cluster: Cluster, operator: Api) -> None:
    made = operator.post("/operator/rolling_restarts", {"cluster_id": cluster.pk})
    assert made.status_code == 202
    at = f"/operator/rolling_restarts/{made.json()['id']}"
    assert made["Location"].endswith(at)
    assert operator.get(at).json()["brokers"] == [1, 2, 3, 4]
    assert_problem(operator.post("/operator/rolling_restarts", {"cluster_id": cluster.pk}), 409, "restart_in_progress")
    assert operator.post(f"{at}/pause").json()["state"] == "paused"
    assert operator.post(f"{at}/resume").json()["state"] == "running"
    assert operator.post(f"{at}/cancel").json()["state"] == "cancelled"
    assert_problem(operator.post(f"{at}/cancel"), 409, "wrong_state")
    assert len(operator.get("/operator/rolling_restarts").json()["items"]) == 1


def test_a_lost_broker_is_removed_when_what_goes_with_it_is_confirmed(
    cluster: Cluster, admin_client: FakeCluster, operator: Api
) -> None:
    (topic,) = {topic for topic, _ in admin_client.replicas if topic != USAGE_TOPIC}
    admin_client.add(topic.replace("orders", "solo"), (3,), (1,), (3,))
    body = {"kind": "loss", "broker_id": third(cluster).pk}
    assert_problem(operator.post("/operator/rebalances", body), 409, "broker_serves")
    mark_lost(admin_client, cluster)
    tried = operator.post("/operator/rebalances?dry_run=true", body).json()
    assert tried["losses"] and not Rebalance.objects.exists()
    plan = operator.post("/operator/rebalances", body).json()
    owner = topic.partition(".")[0]
    assert plan["losses"] == [
        {"instance_id": None, "topic": USAGE_TOPIC, "partitions": [2], "loses": "all"},
        {"instance_id": owner, "topic": "solo", "partitions": [0, 2], "loses": "all"},
    ]
    at = f"/operator/rebalances/{plan['id']}"
    moves = operator.get(f"{at}/moves").json()["items"]
    assert [move["loses"] for move in moves if move["topic"].endswith("solo")] == ["all", "all"]
    assert_problem(operator.post(f"{at}/start"), 409, "not_confirmed")
    assert_problem(operator.post(f"{at}/start", {"confirm_broker": 1}), 409, "not_confirmed")
    tried = operator.post(f"{at}/start?dry_run=true", {"confirm_broker": 3})
    assert tried.status_code == 202 and third(cluster).wanted == "running"
    assert operator.post(f"{at}/start", {"confirm_broker": 3}).status_code == 202
    carry_out(admin_client, Rebalance.objects.get())
    assert operator.get(at).json()["state"] == "done"
    assert [move["number"] for move in operator.get("/operator/brokers").json()["items"]] == [1, 2, 4]
    assert_problem(operator.post(f"{at}/undo"), 409, "too_late")


def test_a_broker_that_an_abandoned_removal_has_stopped_is_started_again(
    cluster: Cluster, admin_client: FakeCluster, operator: Api
) -> None:
    start = f"/operator/brokers/{third(cluster).pk}/start"
    assert_problem(operator.post(start), 409, "wrong_state")
    mark_lost(admin_client, cluster)
    plan = operator.post("/operator/rebalances", {"kind": "loss", "broker_id": third(cluster).pk}).json()
    at = f"/operator/rebalances/{plan['id']}"
    assert_problem(operator.post(f"{at}/abandon"), 409, "wrong_state")
    operator.post(f"{at}/start", {"confirm_broker": 3})
    assert_problem(operator.post(start), 409, "rebalance_in_progress")
    assert operator.post(f"{at}/abandon").json()["state"] == "abandoning"
    assert_problem(operator.post(start), 409, "rebalance_in_progress")
    job_runner.reconcile_once()
    assert operator.get(at).json()["state"] == "abandoned"
    assert operator.post(f"{start}?dry_run=true").status_code == 202 and third(cluster).wanted == "stopped"
    answer = operator.post(start)
    assert answer.status_code == 202 and answer.json()["wanted"] == "running"
    again = third(cluster)
    assert again.given_up_at is None and again.accepts_instances
    assert AuditEntry.objects.filter(action="rebalance.abandoned").count() == 1
    assert AuditEntry.objects.filter(action="broker.wanted_changed").count() == 2


def test_a_pace_is_set_on_the_version_that_was_read(cluster: Cluster, operator: Api, names: dict[str, str]) -> None:
    """The row is locked before its version is checked, or two writers could both succeed."""
    at = f"/operator/rebalances/{names['rebalance']}"
    etag = operator.get(at)["ETag"]
    with CaptureQueriesContext(connection) as asked:
        assert operator.call("PATCH", at, {"copy_mb_s": 5}, If_Match=etag).status_code == 200
    reads = [query["sql"] for query in asked.captured_queries if 'FROM "brokers_rebalance"' in query["sql"]]
    assert "FOR NO KEY UPDATE" in reads[0]
    assert_problem(operator.call("PATCH", at, {"copy_mb_s": 6}, If_Match=etag), 412, "precondition_failed")


def test_a_key_holds_the_answer_about_a_plan_however_much_is_lost(cluster: Cluster, operator: Api) -> None:
    plan = Rebalance.objects.create(cluster=cluster, kind=RebalanceKind.LOSS, broker=third(cluster), planned_by="ida")
    lost = [
        PartitionReassignment(
            rebalance=plan, position=n, topic=f"{n:0>262}", partition=0, before=[3], target=[1], loses="all"
        )
        for n in range(3_500)
    ]
    PartitionReassignment.objects.bulk_create(lost)
    at = f"/operator/rebalances/{plan.pk}/discard"
    answers = [operator.post(at, Idempotency_Key="once") for _ in range(2)]
    assert [answer.status_code for answer in answers] == [202, 202]
    assert answers[1].headers["Idempotency-Replayed"] and len(answers[1].json()["losses"]) == 3_500


def test_acts_of_operators_over_rest_are_in_no_tenants_audit_log(cluster: Cluster, admin_client: FakeCluster) -> None:
    """Members of the operator's tenant are not operators, and a data loss names topics of other tenants."""
    member = make_member()
    member.user.is_staff = member.user.is_superuser = True
    member.user.save()
    plan = Api.of(member, ["operator"]).post("/operator/rebalances", {"kind": "balance", "cluster_id": cluster.pk})
    entry = AuditEntry.objects.get(action="rebalance.planned")
    assert (entry.target_id, entry.actor_kind, entry.tenant) == (plan.json()["id"], "token", None)
    assert "rebalance.planned" not in Api.of(make_member(Role.ADMIN, member.tenant)).get("/audit").content.decode()


def test_the_map_has_the_version_of_each_broker(
    operator: Api, cluster: Cluster, answers: dict[int, Mapping[str, Any]]
) -> None:
    brokers = [*shares(1, 2, version="1.1.0"), *shares(3), *shares(4, live=False, version=None)]
    for number in answers:
        answers[number] = snapshot(number, brokers=brokers)
    found = operator.get(f"/operator/clusters/{cluster.pk}").json()
    assert [broker["version"] for broker in found["brokers"]] == ["1.1.0", "1.1.0", "", ""]
