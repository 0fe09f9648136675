"""Clusters in front of an existing Kafka, over REST and in the panel: refusals, secrets, gateways, placement."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from brokers.agent.database import DatabaseControlPlane
from brokers.choices import ProcessState
from brokers.contract.upstream import UPSTREAM_LOST, UpstreamSettings
from brokers.dataplane import admin_client, upstream_probe
from brokers.dataplane.upstream_probe import ProbedUpstream, UpstreamBroker
from brokers.infra.upstream_login import upstream_of
from brokers.models import Broker, Cluster, Host, KafkaBackend, PortLease
from brokers.monitoring.attention import broker_items
from brokers.operations.agent_documents import wanted_document
from brokers.placement import capacity, instance_placement, placement, port_leases
from instances.interfaces import is_on_kafka
from instances.services.topics import delete_topic, set_allow_list
from instances.topics.allow_lists import AllowLists
from tenants.actors import Actor
from tenants.errors import Conflict, Invalid
from tenants.formatting import clock
from tenants.models import AuditEntry
from tests.testkit.api_cases import Api, assert_problem, make_member, make_tenant
from tests.testkit.fleet import make_fleet, make_running, place

pytestmark = pytest.mark.django_db

HOST = {"name": "gateways", "advertised_host": "127.0.0.2", "port_first": 26_000, "port_last": 26_099}
PASSWORD, CERTIFICATE = "of-the-upstream", "-----BEGIN PRIVATE KEY-----"
BACKEND = {
    "type": "kafka", "bootstrap_servers": "kafka-1:9092", "security_protocol": "SASL_SSL",
    "sasl_mechanism": "SCRAM-SHA-512", "username": "penstock", "password": PASSWORD, "ca_pem": "CA",
    "client_certificate": CERTIFICATE,
}  # fmt: skip


class Upstream:
    """An upstream that answers every probe, as the probe returns it."""

    def __init__(self) -> None:
        self.ids = [0, 4, 7]
        self.cluster_id = "upstream-1"
        self.asked: list[UpstreamSettings] = []
        self.refusal: Invalid | None = None

    def probe(self, settings: UpstreamSettings) -> ProbedUpstream:
        self.asked.append(settings)
        if self.refusal is not None:
            raise self.refusal
        brokers = tuple(UpstreamBroker(id=id, host=f"kafka-{id}", port=9092, rack="") for id in self.ids)
        return ProbedUpstream(settings=settings, cluster_id=self.cluster_id, brokers=brokers)


@pytest.fixture()
def upstream(monkeypatch: pytest.MonkeyPatch) -> Upstream:
    result = Upstream()
    monkeypatch.setattr(upstream_probe, "probe", result.probe)
    return result


@pytest.fixture()
def host(operator: Api) -> str:
    return str(operator.post("/operator/hosts", HOST).json()["id"])


def add(operator: Api, *hosts: str, **changes: Any) -> Any:
    body = {"name": "front", "kind": "shared", "host_ids": list(hosts), "backend": BACKEND} | changes
    return operator.post("/operator/clusters", body)


@pytest.fixture()
def cluster(operator: Api, host: str, upstream: Upstream) -> Cluster:
    assert add(operator, host).status_code == 202
    Cluster.objects.update(state="ready")
    return Cluster.objects.get(name="front")


def test_each_upstream_broker_gets_a_gateway_with_its_number(operator: Api, cluster: Cluster, host: str) -> None:
    assert list(cluster.brokers.values_list("number", "host_id")) == [(0, host), (4, host), (7, host)]
    (shown,) = operator.get("/operator/clusters").json()["items"]
    backend = shown["backend"]
    assert (backend["type"], backend["upstream_cluster_id"]) == ("kafka", "upstream-1")
    assert backend["nodes"][1] == {"id": 4, "host": "kafka-4", "port": 9092, "rack": ""}
    assert operator.get(f"/operator/clusters/{cluster.pk}").json()["cluster"]["backend"] == backend


def test_a_gateway_whose_upstream_is_gone_is_shown_as_such(operator: Api, panel: Client, cluster: Cluster) -> None:
    lost_at = timezone.now().replace(microsecond=0)
    broker = cluster.brokers.get(number=4)

    def observe(since_ms: int | None) -> None:
        Broker.objects.filter(pk=broker.pk).update(
            process_state=ProcessState.RUNNING,
            observed={"not_ready_since_ms": {} if since_ms is None else {UPSTREAM_LOST: since_ms}},
            observed_at=timezone.now(),
        )  # fmt: skip

    observe(int(lost_at.timestamp() * 1000))
    (shown,) = (row for row in operator.get("/operator/brokers").json()["items"] if row["number"] == 4)
    assert shown["health"] == "upstream_lost"
    assert shown["status"]["not_ready_since_ms"][UPSTREAM_LOST] == int(lost_at.timestamp() * 1000)
    since = f"since {clock(lost_at)}"
    broker.refresh_from_db()
    assert [item.text for item in broker_items(broker, timezone.now())] == [
        f"The upstream of broker 4 of front has not answered {since}."
    ]
    page = panel.get(reverse("admin:brokers_broker_change", args=[broker.pk])).content.decode()
    assert str(clock(lost_at)) in page
    assert since in panel.get(reverse("admin:brokers_cluster_map", args=[cluster.pk])).content.decode()
    observe(None)
    assert "upstream_lost" not in [row["health"] for row in operator.get("/operator/brokers").json()["items"]]


def test_other_clusters_have_a_backend_without_fields(operator: Api, tmp_path: Path) -> None:
    make_fleet(tmp_path)
    backend = operator.get("/operator/clusters").json()["items"][0]["backend"]
    assert backend.pop("type") == "penstock"
    assert set(backend.values()) == {None}


def test_secrets_are_encrypted_and_in_no_answer_page_or_audit_row(
    operator: Api, panel: Client, cluster: Cluster
) -> None:
    row = KafkaBackend.objects.get(cluster=cluster)
    assert PASSWORD not in row.password_sealed
    assert CERTIFICATE not in row.client_certificate_sealed
    assert upstream_of(row).password == PASSWORD
    seen = [
        operator.get("/operator/clusters").content, operator.get(f"/operator/clusters/{cluster.pk}").content,
        panel.get(f"/operator/brokers/cluster/{cluster.pk}/backend/").content,
        json.dumps(list(AuditEntry.objects.values("before", "after")), default=str).encode(),
        repr(upstream_of(row)).encode(), str(row).encode(),
    ]  # fmt: skip
    for content in seen:
        assert PASSWORD.encode() not in content
        assert CERTIFICATE.encode() not in content


@pytest.mark.parametrize(
    ("changes", "pointer", "code"),
    [
        ({"bootstrap_servers": "kafka-1"}, "/backend/bootstrap_servers", "invalid_address"),
        ({"bootstrap_servers": ",".join(["k:1"] * 21)}, "/backend/bootstrap_servers", "too_many"),
        ({"security_protocol": "TLS"}, "/backend/security_protocol", "invalid_choice"),
        ({"sasl_mechanism": "GSSAPI"}, "/backend/sasl_mechanism", "invalid_choice"),
        ({"security_protocol": "SSL"}, "/backend/password", "not_applicable"),
        ({"security_protocol": "SASL_PLAINTEXT"}, "/backend/ca_pem", "not_applicable"),
        ({"type": "penstock"}, "/backend/bootstrap_servers", "not_applicable"),
        ({"password": ""}, "/backend/password", "blank"),
        ({"ca_pem": "ä"}, "/backend/ca_pem", "invalid_pem"),
        ({"retries": 3}, "/backend/retries", "unknown_field"),
    ],
)
def test_a_wrong_field_is_named_and_nothing_is_written_or_asked(
    operator: Api, upstream: Upstream, changes: dict[str, Any], pointer: str, code: str
) -> None:
    problem = assert_problem(add(operator, backend=BACKEND | changes), 400)
    assert (pointer, code) in {(error["pointer"], error["code"]) for error in problem["errors"]}
    assert not Cluster.objects.exists()
    assert not upstream.asked


def test_an_upstream_that_refuses_leaves_nothing(operator: Api, host: str, upstream: Upstream) -> None:
    upstream.refusal = Invalid.at("/backend/password", "Refused.", code="wrong_credentials")
    problem = assert_problem(add(operator, host), 400)
    assert problem["errors"][0]["pointer"] == "/backend/password"
    assert not Cluster.objects.exists()


def test_more_hosts_than_upstream_brokers_are_refused(operator: Api, host: str, upstream: Upstream) -> None:
    assert_problem(add(operator, *[host] * 4), 400)
    assert not Cluster.objects.exists()


def test_only_operators_ask_an_upstream(upstream: Upstream) -> None:
    assert_problem(add(Api.of(make_member())), 403)
    member = make_member()
    member.user.is_staff = True
    member.user.save()
    assert_problem(add(Api.of(member, ["operator"])), 403)
    assert not upstream.asked


def test_a_new_login_is_probed_stored_and_of_the_same_kafka(
    operator: Api, cluster: Cluster, upstream: Upstream
) -> None:
    at = f"/operator/clusters/{cluster.pk}"

    def patch(**changes: Any) -> Any:
        return operator.patch(at, {"backend": BACKEND | changes})

    assert patch(password="newer").status_code == 200
    assert upstream_of(KafkaBackend.objects.get(cluster=cluster)).password == "newer"
    upstream.cluster_id = "upstream-2"
    assert_problem(patch(), 409, "other_upstream")
    assert_problem(patch(type="penstock", **dict.fromkeys(BACKEND.keys() - {"type"}, "x")), 400)
    assert upstream_of(KafkaBackend.objects.get(cluster=cluster)).password == "newer"


def test_a_broker_of_penstock_stays_one(operator: Api, tmp_path: Path, upstream: Upstream) -> None:
    fleet = make_fleet(tmp_path)
    at = f"/operator/clusters/{fleet.pk}"
    answer = operator.patch(at, {"backend": BACKEND})
    assert_problem(answer, 409, "backend_fixed")


def test_a_further_gateway_is_of_the_first_upstream_broker_without_one(
    operator: Api, cluster: Cluster, host: str, upstream: Upstream
) -> None:
    body = {"cluster_id": cluster.pk, "host_id": host}
    assert_problem(operator.post("/operator/brokers", body), 409, "cluster_full")
    upstream.ids = [0, 4, 5, 7, 9]
    assert [operator.post("/operator/brokers", body).json()["number"] for _ in range(2)] == [5, 9]


def test_gateways_are_not_rebalanced(operator: Api, cluster: Cluster) -> None:
    assert_problem(
        operator.post("/operator/rebalances", {"cluster_id": cluster.pk, "kind": "balance"}), 409, "kafka_cluster"
    )
    broker = cluster.brokers.all()[0]
    assert_problem(operator.post(f"/operator/brokers/{broker.pk}/drain", {}), 409, "kafka_cluster")


def test_an_instance_has_a_port_on_every_gateway_also_on_later_ones(
    operator: Api, cluster: Cluster, host: str, upstream: Upstream
) -> None:
    (headroom,) = capacity.headrooms([cluster])
    choice = placement.choose_cluster([headroom], bandwidth_mb_s=1, storage_gb=1)
    assert choice is not None
    assert len(choice.broker_ids) == 3
    instance = make_running(make_tenant())
    place(instance, cluster)
    port_leases.lease(instance, list(cluster.brokers.select_related("host")))
    upstream.ids.append(9)
    assert operator.post("/operator/brokers", {"cluster_id": cluster.pk, "host_id": host}).status_code == 201
    instance_placement.lease_on_all_gateways(cluster)
    leased = PortLease.objects.filter(instance=instance).values_list("broker__number", flat=True)
    assert sorted(leased) == [0, 4, 7, 9]


def test_instances_of_named_tenants_come_first_and_alone(operator: Api, cluster: Cluster, tmp_path: Path) -> None:
    named, other = make_running(make_tenant()), make_running(make_tenant())
    fleet = make_fleet(tmp_path)
    at = f"/operator/clusters/{cluster.pk}"
    answer = operator.patch(at, {"tenant_ids": [named.tenant_id]})
    assert answer.json()["tenant_ids"] == [named.tenant_id]
    assert [row.pk for row in capacity.lock_candidate_clusters(named)] == [cluster.pk]
    assert [row.pk for row in capacity.lock_candidate_clusters(other)] == [fleet.pk]
    problem = operator.patch(at, {"tenant_ids": ["ten-unknown1"]})
    assert assert_problem(problem, 400)["errors"][0]["pointer"] == "/tenant_ids/0"


def test_an_agent_writes_the_login_to_a_file_of_its_own(cluster: Cluster, tmp_path: Path, settings: Any) -> None:
    settings.STATE_DIR = tmp_path / "state"
    broker = cluster.brokers.select_related("cluster", "host")[0]
    applied = DatabaseControlPlane("gateways").settings_of(broker)
    file = Path(applied.upstream_file)
    assert file.stat().st_mode & 0o777 == 0o600
    assert UpstreamSettings.from_json(file.read_text()).password == PASSWORD


def test_a_joined_agent_gets_the_login_among_the_files(cluster: Cluster) -> None:
    document = wanted_document(Host.objects.get(name="gateways"))
    names = {broker["settings"]["upstream_file"] for broker in document["brokers"]}
    (name,) = names
    assert UpstreamSettings.from_json(document["files"][name]).password == PASSWORD
    assert PASSWORD not in json.dumps(document["brokers"])


def test_calls_that_gateways_do_not_serve_are_refused_before_they_are_sent(cluster: Cluster, acting: Actor) -> None:
    instance = make_running(make_tenant())
    place(instance, cluster)
    assert is_on_kafka.implementation(instance.pk)

    class DescribeLogDirs:
        API_KEY = 35

    with pytest.raises(admin_client.NotOnKafkaCluster) as refusal:
        admin_client.send_as_instance(instance.pk, DescribeLogDirs())
    assert (refusal.value.http_status, refusal.value.code) == (409, "not_on_kafka_cluster")
    with pytest.raises(Conflict, match="cannot be restored"):
        delete_topic(acting=acting, instance=instance, name="orders")
    with pytest.raises(Conflict, match="address lists"):
        set_allow_list(acting=acting, instance=instance, topic="orders", lists=AllowLists())


class TestPanel:
    FORM = {
        "name": "front", "kind": "shared", "brokers_per_host": "1", "brokers_per_instance_min": "2",
        "accepts_instances": "on", "backend_type": "kafka",
    } | {name: value for name, value in BACKEND.items() if name != "type"}  # fmt: skip

    def test_the_form_creates_the_cluster_with_its_gateways(
        self, panel: Client, operator: Api, host: str, upstream: Upstream
    ) -> None:
        answer = panel.post("/operator/brokers/cluster/add/", self.FORM | {"hosts": [host]})
        assert answer.status_code == 302, answer.content.decode()
        assert Broker.objects.filter(cluster__name="front").count() == 3
        assert upstream.asked[0].password == PASSWORD

    def test_a_refusal_is_at_its_field_without_the_secrets(
        self, panel: Client, operator: Api, host: str, upstream: Upstream
    ) -> None:
        upstream.refusal = Invalid.at("/backend/password", "This is refused.", code="wrong_credentials")
        page = panel.post("/operator/brokers/cluster/add/", self.FORM | {"hosts": [host]}).content.decode()
        assert "This is refused." in page
        assert PASSWORD not in page
        assert CERTIFICATE not in page
        assert not Cluster.objects.exists()

    def test_the_upstream_is_changed_on_a_page_of_its_own(
        self, panel: Client, cluster: Cluster, upstream: Upstream
    ) -> None:
        at = f"/operator/brokers/cluster/{cluster.pk}/backend/"
        assert b"kafka-1:9092" in panel.get(at).content
        form = {name: value for name, value in BACKEND.items() if name != "type"} | {"password": "newer"}
        assert panel.post(at, form).status_code == 302
        assert upstream_of(KafkaBackend.objects.get(cluster=cluster)).password == "newer"
        page = panel.get(reverse("admin:brokers_cluster_map", args=[cluster.pk])).content.decode()
        assert at in page
