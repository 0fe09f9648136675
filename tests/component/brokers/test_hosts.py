"""Hosts added, changed and removed by operators, over REST and in the panel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.test import Client
from django.utils import timezone

from brokers.agent.database import cluster_facts, process_settings
from brokers.models import Broker, Cluster, Host, PortLease
from brokers.operations import membership
from tenants.actors import Actor
from tenants.errors import Conflict
from tenants.models import AuditEntry, Member
from tests.testkit.api_cases import Api, assert_problem, make_tenant, make_user
from tests.testkit.fleet import make_fleet, make_running

pytestmark = pytest.mark.django_db

BODY: dict[str, Any] = {
    "name": "kafka-2", "zone": "z2", "advertised_host": "127.0.0.2", "port_first": 26_000, "port_last": 26_099,
}  # fmt: skip
OF_A_HOST = (("GET", None), ("PATCH", {"zone": "z9"}), ("DELETE", None))


def add(operator: Api, **changes: Any) -> Any:
    answer = operator.post("/operator/hosts", BODY | changes)
    assert answer.status_code == 201, answer.content
    return answer.json()


@pytest.fixture()
def fleet(tmp_path: Path) -> Cluster:
    return make_fleet(tmp_path)


def test_a_host_is_added_and_its_answer_says_what_to_run(operator: Api) -> None:
    answer = operator.post("/operator/hosts", BODY)
    made = answer.json()
    assert answer["Location"] == f"/api/v1/operator/hosts/{made['id']}"
    assert made["agent_command"] == "manage.py agent --host kafka-2"
    assert (made["bind_host"], made["internal_host"], made["broker_count"]) == ("127.0.0.2", "127.0.0.2", 0)
    assert made["agent_is_alive"] is False
    row = AuditEntry.objects.get(action="host.added")
    assert row.target_id == made["id"]
    assert row.after["port_first"] == 26_000


def test_a_dry_run_adds_nothing(operator: Api) -> None:
    answer = operator.post("/operator/hosts?dry_run=true", BODY)
    assert answer.status_code == 201
    assert not Host.objects.filter(name="kafka-2").exists()
    assert not AuditEntry.objects.filter(action="host.added").exists()


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"name": "Kafka_2"}, "/name"),
        ({"name": "-a"}, "/name"),
        ({"name": "x" * 64}, "/name"),
        ({"zone": "a b"}, "/zone"),
        ({"data_dirs": ["/data/a", "/data/a/"]}, "/data_dirs/1"),
        ({"advertised_host": "0.0.0.0"}, "/advertised_host"),
        ({"advertised_host": "kafka:9092"}, "/advertised_host"),
        ({"internal_host": "::"}, "/internal_host"),
        ({"port_first": 80}, "/port_first"),
        ({"port_last": 65_536}, "/port_last"),
        ({"port_last": 25_000}, "/port_last"),
        ({"capacity_mb_s": 0}, "/capacity_mb_s"),
        ({"data_dirs": ["relative"]}, "/data_dirs/0"),
        ({"data_dirs": ["/a/../b"]}, "/data_dirs/0"),
        ({"data_dirs": ["/a", "/a"]}, "/data_dirs/1"),
        ({"join_token": "x"}, "/join_token"),
    ],
)
def test_a_wrong_value_is_named_by_its_pointer(operator: Api, changes: dict[str, Any], pointer: str) -> None:
    problem = assert_problem(operator.post("/operator/hosts", BODY | changes), 400)
    assert pointer in {error["pointer"] for error in problem["errors"]}


def test_names_and_ports_are_given_once(operator: Api, fleet: Cluster) -> None:
    first = Host.objects.get(brokers__cluster=fleet, brokers__number=1)
    add(operator)
    assert_problem(operator.post("/operator/hosts", BODY), 409, "name_taken")
    same = BODY | {"name": "kafka-3"}
    assert_problem(operator.post("/operator/hosts", same), 409, "ports_overlap")
    beside = {"advertised_host": first.advertised_host, "name": "kafka-3"}
    own = fleet.brokers.order_by("number")[0].internal_port
    assert_problem(
        operator.post("/operator/hosts", BODY | beside | {"port_first": own, "port_last": own}), 409, "ports_taken"
    )


def test_a_host_is_read_with_its_brokers_and_disks(operator: Api, fleet: Cluster) -> None:
    broker = fleet.brokers.order_by("number")[0]
    broker.observed = {"log_directories": [{"path": "/data/1", "total_bytes": 100, "usable_bytes": 40}]}
    broker.save()
    Host.objects.filter(pk=broker.host_id).update(agent_seen_at=timezone.now())
    shown = operator.get(f"/operator/hosts/{broker.host_id}").json()
    assert [item["number"] for item in shown["brokers"]] == [1, 2, 3]
    assert shown["disks"] == [
        {"broker_id": broker.pk, "path": "/data/1", "total_bytes": 100, "usable_bytes": 40, "offline_reason": ""}
    ]
    assert (shown["agent_is_alive"], shown["used_mb_s"]) == (True, 3_000)


def test_an_unused_host_is_changed(operator: Api) -> None:
    made = add(operator)
    at = f"/operator/hosts/{made['id']}"
    tag = operator.get(at)["ETag"]
    changed = operator.patch(at, {"zone": "z3", "port_last": 26_199, "capacity_gb": 500}, If_Match=tag)
    assert changed.status_code == 200
    assert (changed.json()["zone"], changed.json()["port_last"], changed.json()["capacity_gb"]) == ("z3", 26_199, 500)
    assert_problem(operator.patch(at, {"zone": "z4"}, If_Match=tag), 412)
    row = AuditEntry.objects.get(action="host.changed")
    assert row.before == {"zone": "z2", "port_last": 26_099, "capacity_gb": None}
    assert operator.patch(at, {"zone": "z3"}).status_code == 200
    assert AuditEntry.objects.filter(action="host.changed").count() == 1


def test_a_host_with_brokers_or_instances_is_not_changed(operator: Api, fleet: Cluster) -> None:
    broker = fleet.brokers.order_by("number")[0]
    at = f"/operator/hosts/{broker.host_id}"
    assert_problem(operator.patch(at, {"bind_host": "0.0.0.0"}), 409, "has_brokers")
    assert_problem(operator.patch(at, {"capacity_mb_s": 2_999}), 409, "sold")
    instance = make_running(make_tenant())
    port = broker.host.port_first + 5
    PortLease.objects.create(
        instance=instance, route=instance.routes.first(), broker=broker, host=broker.host, port=port
    )
    assert_problem(operator.patch(at, {"advertised_host": "kafka.example"}), 409, "has_instances")
    assert_problem(operator.patch(at, {"port_first": port + 1}), 409, "ports_in_use")
    assert_problem(operator.delete(at), 409, "has_brokers")


def test_an_empty_host_is_removed_and_its_name_is_free(operator: Api) -> None:
    made = add(operator)
    assert operator.delete(f"/operator/hosts/{made['id']}").status_code == 204
    assert_problem(operator.get(f"/operator/hosts/{made['id']}"), 404)
    assert_problem(operator.delete(f"/operator/hosts/{made['id']}"), 404)
    assert AuditEntry.objects.filter(action="host.removed", target_id=made["id"]).count() == 1
    assert add(operator)["id"] != made["id"]


@pytest.mark.parametrize(("method", "body"), OF_A_HOST)
def test_tenants_and_strangers_are_refused_on_every_route(
    operator: Api, outsider: Member, method: str, body: Any
) -> None:
    at = f"/operator/hosts/{add(operator)['id']}"
    assert_problem(Api.of(outsider).call(method, at, body), 403, "permission_denied")
    assert_problem(Api().call(method, at, body), 401)
    assert_problem(Api.of(outsider).post("/operator/hosts", BODY | {"name": "mine"}), 403, "permission_denied")
    assert_problem(Api.of(outsider).post(f"{at}/join_token"), 403, "permission_denied")
    assert_problem(Api().post(f"{at}/join_token"), 401)
    assert not AuditEntry.objects.filter(action__in=("host.changed", "host.removed")).exists()


def test_an_operator_who_may_only_look_changes_nothing(operator: Api) -> None:
    made = add(operator)
    person = make_user(is_staff=True)
    person.user_permissions.add(Permission.objects.get(codename="view_cluster"))
    viewer = Client()
    viewer.force_login(person)
    assert viewer.get(f"/operator/brokers/host/{made['id']}/change/").status_code == 200
    assert viewer.post(f"/operator/brokers/host/{made['id']}/remove/").status_code == 403
    assert viewer.post("/operator/brokers/host/add/", BODY | {"name": "x"}).status_code == 403
    assert viewer.post(f"/operator/brokers/host/{made['id']}/join-token/").status_code == 403


def test_pages_of_hosts_follow_each_other(operator: Api) -> None:
    for number in range(3):
        add(operator, name=f"h{number}", port_first=26_000 + 100 * number, port_last=26_099 + 100 * number)
    first = operator.get("/operator/hosts?page_size=2").json()
    second = operator.get(f"/operator/hosts?page_size=2&page_token={first['next_page_token']}").json()
    assert [host["name"] for host in (*first["items"], *second["items"])] == ["h0", "h1", "h2"]


def test_the_brokers_of_a_host_sell_no_more_than_it_may(acting: Actor, fleet: Cluster, operator: Api) -> None:
    made = add(operator, capacity_mb_s=1_500, data_dirs=["/data/a", "/data/b"])
    host = Host.objects.get(pk=made["id"])
    Host.objects.exclude(pk=host.pk).update(zone="z1")
    broker = membership.add_broker(acting=acting, cluster=fleet, host=host)
    assert broker.data_dirs == [f"/data/{letter}/{fleet.pk}/4/data" for letter in "ab"]
    assert (broker.internal_port, broker.admin_port, broker.effective_rack) == (25_001, 25_101, "z2")
    with pytest.raises(Conflict) as refused:
        membership.add_broker(acting=acting, cluster=fleet, host=host)
    assert refused.value.code == "host_full"
    assert "500 MB/s left" in refused.value.detail


def test_brokers_of_two_clusters_on_one_host_share_no_directory_and_no_port(
    acting: Actor, fleet: Cluster, tmp_path: Path
) -> None:
    second = make_fleet(tmp_path, brokers=1)
    host = fleet.brokers.order_by("number")[0].host
    made = [membership.add_broker(acting=acting, cluster=second, host=host) for _ in range(2)]
    rows = [*fleet.brokers.all(), *made]
    directories = [path for row in rows for path in row.data_dirs]
    ports = [port for row in rows for port in (row.internal_port, row.admin_port)]
    assert len(set(directories)) == len(directories) == 5
    assert len(set(ports)) == len(ports)


def test_a_host_with_brokers_gets_no_zone_outside_of_those_of_their_cluster(fleet: Cluster, operator: Api) -> None:
    host = fleet.brokers.first().host
    Cluster.objects.filter(pk=fleet.pk).update(zones=["east"])
    at = f"/operator/hosts/{host.pk}"
    assert_problem(operator.patch(at, {"zone": "west"}), 409, "other_zone")
    assert operator.patch(at, {"zone": "east"}).status_code == 200
    assert_problem(operator.patch(at, {"zone": ""}), 409, "other_zone")
    Broker.objects.update(removed_at=timezone.now())
    assert operator.patch(at, {"zone": "west"}).status_code == 200


def test_zones_take_effect_when_each_host_of_a_cluster_has_one_and_are_not_taken_from_some(
    fleet: Cluster, operator: Api
) -> None:
    first, second = fleet.brokers.first().host, Host.objects.get(pk=add(operator, zone="")["id"])
    fleet.brokers.filter(number=3).update(host=second)

    def racks() -> list[str | None]:
        facts = cluster_facts([fleet.pk])[fleet.pk]
        return [process_settings(row, facts).rack for row in fleet.brokers.order_by("number")]

    assert operator.patch(f"/operator/hosts/{first.pk}", {"zone": "east"}).status_code == 200
    assert racks() == [None, None, None]
    assert operator.patch(f"/operator/hosts/{second.pk}", {"zone": "west"}).status_code == 200
    assert racks() == ["east", "east", "west"]
    assert_problem(operator.patch(f"/operator/hosts/{first.pk}", {"zone": ""}), 409, "zone_missing")
    assert operator.patch(f"/operator/hosts/{first.pk}", {"zone": "north"}).status_code == 200
    fleet.brokers.filter(number=3).update(removed_at=timezone.now())
    assert operator.patch(f"/operator/hosts/{first.pk}", {"zone": ""}).status_code == 200


class TestPanel:
    def test_a_host_is_added_changed_and_removed_by_forms(self, panel: Client) -> None:
        form = {key: str(value) for key, value in BODY.items()}
        page = panel.post("/operator/brokers/host/add/", form, follow=True).content.decode()
        assert "manage.py agent --host kafka-2" in page  # where the machine reaches the database
        host = Host.objects.get(name="kafka-2")
        edit = f"/operator/brokers/host/{host.pk}/edit/"
        assert 'value="26000"' in panel.get(edit).content.decode()
        panel.post(edit, form | {"zone": "z7", "data_dirs": "/data/a\n/data/b"})
        host.refresh_from_db()
        assert (host.zone, host.data_dirs) == ("z7", ["/data/a", "/data/b"])
        remove = f"/operator/brokers/host/{host.pk}/remove/"
        assert "taken off the fleet" in panel.get(remove).content.decode()
        assert "is removed" in panel.post(remove, follow=True).content.decode()
        actions = AuditEntry.objects.order_by("time").values_list("action", flat=True)
        assert [action for action in actions if action.startswith("host.")] == [
            "host.added", "host.join_token_made", "host.changed", "host.removed",
        ]  # fmt: skip

    def test_a_refusal_stands_at_its_field(self, panel: Client) -> None:
        form = {key: str(value) for key, value in BODY.items()} | {"name": "Not A Name"}
        page = panel.post("/operator/brokers/host/add/", form).content.decode()
        assert "Small letters, digits and - in between" in page
        assert not Host.objects.filter(zone="z2").exists()

    def test_a_form_from_elsewhere_is_refused(self, panel: Client) -> None:
        foreign = Client(enforce_csrf_checks=True)
        foreign.cookies = panel.cookies
        form = {key: str(value) for key, value in BODY.items()}
        assert foreign.post("/operator/brokers/host/add/", form).status_code == 403

    def test_the_list_offers_to_add_one(self, panel: Client, fleet: Cluster) -> None:
        page = panel.get("/operator/brokers/host/").content.decode()
        assert "/operator/brokers/host/add/" in page
