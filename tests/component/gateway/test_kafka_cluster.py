"""An operator puts a cluster in front of a Kafka by REST, and a tenant uses an instance on it, through all floors."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient
from django.core.cache import cache

from brokers.agent.loop import Agent
from brokers.contract.process_identity import PLAINTEXT
from brokers.contract.usage import USAGE_TOPIC
from brokers.dataplane import admin_client
from brokers.infra import zookeeper
from brokers.models import Cluster, Host, Placement
from brokers.monitoring import lag_sampling, observe
from brokers.operations import job_runner
from brokers.operations.hosts import add_host
from brokers.provisioning.reconciler import reconcile
from instances import interfaces
from instances.groups import lag_history
from instances.models import Instance
from instances.topics import table
from tenants.actors import system_actor
from tenants.models import Member
from tests.component.gateway.test_clients import TIMEOUT_S, consuming, read
from tests.component.gateway.test_cluster_gateway import counted_bytes, produce
from tests.testkit.api_cases import Api, assert_problem, make_member
from tests.testkit.engine import HOST, eventually
from tests.testkit.fleet import catalogue, plugged
from tests.testkit.gateway import Upstream

pytestmark = pytest.mark.django_db

RECORDS = 100
PORTS = 60
SECRET = "not much of a secret"


def free_ports() -> int:
    """Returns the first of `PORTS` and some more ports that nobody uses."""
    for first in range(22_000, 30_000, 100):
        if not any(_is_used(port) for port in range(first, first + 100)):
            return first
    raise AssertionError("no ports are free")


def _is_used(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return True
    return False


@dataclass(frozen=True)
class Thread:
    """The running cluster: its operator, a tenant's owner, and the agent of its host."""

    operator: Api
    tenant: Api
    owner: Member
    agent: Agent
    cluster: Cluster


@pytest.fixture()
def host(db: None, tmp_path: Path, settings: Any, zookeeper_address: str) -> Iterator[Host]:
    secret = tmp_path / "control_secret"
    secret.write_text(SECRET)
    settings.CONTROL_SECRET_FILE, settings.INTERNAL_SECURITY = secret, PLAINTEXT
    settings.STATE_DIR, settings.ZOOKEEPER_URL = tmp_path / "state", zookeeper_address
    cache.clear()
    first = free_ports()
    with plugged(interfaces.plan_catalogue, catalogue):
        yield add_host(
            acting=system_actor("test"), name="gateways", advertised_host=HOST, port_first=first,
            port_last=first + PORTS - 1,
        )  # fmt: skip
    admin_client.links().close()
    zookeeper.close_all()


@pytest.fixture()
def operator(db: None) -> Api:
    member = make_member()
    member.user.is_staff = member.user.is_superuser = True
    member.user.save()
    return Api.of(member, ["operator"])


@pytest.fixture()
def running(host: Host, operator: Api, upstream: Upstream, tmp_path: Path) -> Iterator[Thread]:
    body = {
        "name": "front",
        "kind": "shared",
        "host_ids": [host.pk],
        "backend": {"type": "kafka", "bootstrap_servers": upstream.bootstrap},
    }
    answer = operator.post("/operator/clusters", body)
    assert answer.status_code == 202, answer.content
    agent = Agent(host.name, run_dir=tmp_path / "run")
    cluster = Cluster.objects.get(name="front")

    def is_formed() -> bool:
        agent.reconcile_once()
        job_runner.reconcile_clusters()
        cluster.refresh_from_db()
        return cluster.state == "ready"

    try:
        eventually(is_formed, "the gateways answer", 90)
        owner = make_member()
        yield Thread(operator, Api.of(owner), owner, agent, cluster)
    finally:
        agent.stop_all()


def created_instance(thread: Thread) -> tuple[str, str]:
    """Creates an instance by REST, and returns its id and its address."""
    answer = thread.tenant.post(
        "/instances", {"name": "shop", "routes": [{"name": "default", "security": "sasl_plaintext"}]}
    )
    assert answer.status_code == 202, answer.content
    instance_id = Instance.objects.get(name="shop").pk
    outcome = reconcile(instance_id)
    instance = Instance.objects.get(pk=instance_id)
    assert instance.phase == "running", outcome
    return instance_id, instance.bootstrap_servers


def signed_in(thread: Thread, instance_id: str, address: str, name: str, **fields: Any) -> dict[str, Any]:
    """Creates a user by REST, and returns the configuration of its clients."""
    answer = thread.tenant.post(f"/instances/{instance_id}/users", {"name": name, **fields})
    assert answer.status_code == 201, answer.content
    return {
        "bootstrap.servers": address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": name,
        "sasl.password": answer.json()["secret"]["password"],
        "client.id": name,
    }


def observe_throttles(thread: Thread, number: int, instance_id: str) -> str:
    """Returns the throttle log of one gateway, as text."""
    answers = observe.query_all(observe.targets_of_cluster(thread.cluster), f"/v1/instances/{instance_id}/throttles")
    return json.dumps(answers.bodies.get(number))


def topic_error(config: dict[str, Any], topic: str) -> int:
    metadata = AdminClient(config).list_topics(topic, timeout=TIMEOUT_S).topics[topic]
    return 0 if metadata.error is None else int(metadata.error.code())


def test_an_instance_in_front_of_a_kafka_works_up_to_its_counted_bytes(running: Thread, upstream: Upstream) -> None:
    shown = running.operator.get(f"/operator/clusters/{running.cluster.pk}").json()
    assert shown["cluster"]["backend"]["type"] == "kafka"
    assert [broker["number"] for broker in shown["brokers"]] == list(upstream.nodes)
    assert all(broker["is_live"] for broker in shown["brokers"])
    instance_id, address = created_instance(running)
    assert Placement.objects.get(instance_id=instance_id).cluster_id == running.cluster.pk
    assert len(address.split(",")) == len(upstream.nodes)
    tenant, base = running.tenant, f"/instances/{instance_id}"

    assert tenant.post(f"{base}/topics", {"name": "orders", "partitions": 3}).status_code == 201
    assert tenant.get(f"{base}/topics/orders").json()["partitions"] == 3
    app = signed_in(running, instance_id, address, "app", superuser=True)
    reader = signed_in(running, instance_id, address, "reader")
    produce(app, "orders", RECORDS)
    with consuming(app, "orders", "readers") as consumer:
        assert len(read(consumer, RECORDS)) == RECORDS

    eventually(lambda: topic_error(reader, "orders") == KafkaError.TOPIC_AUTHORIZATION_FAILED, "no right, no topic")
    rule = {
        "principal": "User:reader", "resource_type": "topic", "resource_name": "orders", "operation": "read",
    }  # fmt: skip
    assert tenant.post(f"{base}/acls", rule).status_code == 201
    eventually(lambda: topic_error(reader, "orders") == 0, "the rule holds")
    with pytest.raises(AssertionError, match="TOPIC_AUTHORIZATION_FAILED"):
        produce({**reader, "enable.idempotence": False}, "orders", 1)

    quota = {"entity": {"user": "app"}, "limits": {"producer_byte_rate": 100_000}}
    assert tenant.put(f"{base}/quotas", quota).status_code == 200
    began_s = time.monotonic()

    def is_throttled() -> bool:
        produce({**app, "batch.size": 20_000}, "orders", 60, size=10_000)
        logs = [observe_throttles(running, number, instance_id) for number in upstream.nodes]
        return any("producer_byte_rate" in log for log in logs)

    eventually(is_throttled, "the quota delays, and the throttle log says so", 60)
    assert time.monotonic() - began_s > 0.5

    login = {
        "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "penstock",
        "sasl.password": SECRET,
    }  # fmt: skip
    gateways = [f"{HOST}:{broker.internal_port}" for broker in running.cluster.brokers.all()]

    def counted() -> dict[str, int]:
        return counted_bytes([{**login, "bootstrap.servers": gateway} for gateway in gateways], instance_id, "orders")

    eventually(lambda: counted().keys() == {"produce", "consume"}, f"both directions are in {USAGE_TOPIC}", 60)
    assert counted()["produce"] > RECORDS * 100

    def storage() -> tuple[int, list[dict[str, Any]]]:
        return tenant.get(f"{base}/storage").json()["used_bytes"], tenant.get(f"{base}/storage/topics").json()["items"]

    eventually(lambda: storage()[0] > RECORDS * 100 and storage()[1], "the storage is measured", 60)
    used_bytes, topics = storage()
    assert [(topic["name"], topic["leader_bytes"]) for topic in topics] == [("orders", None)]
    assert used_bytes >= topics[0]["stored_bytes"] > 0

    def listed() -> dict[str, Any]:
        table.rebuild(instance_id)  # as the worker does behind a page
        (topic,) = tenant.get(f"{base}/topics").json()["items"]
        return dict(topic)

    assert (listed()["name"], listed()["partitions"]) == ("orders", 3)
    replicas = listed()["replication_factor"]
    eventually(lambda: (listed()["size_bytes"] or 0) * replicas == storage()[0], "the leaders' sizes are measured", 30)
    eventually(lambda: listed()["produce_bytes_per_s"] is not None, "the traffic is measured", 30)
    shown_topic = tenant.get(f"{base}/topics/orders").json()
    assert shown_topic["message_count"] == listed()["message_count"] >= RECORDS
    assert shown_topic["size_bytes"] == listed()["size_bytes"]
    assert tenant.get(f"{base}/storage").json()["when_full"] == "stop"

    assert tenant.delete(f"{base}/topics/orders?for_good=true").status_code == 204
    eventually(lambda: tenant.get(f"{base}/topics/orders").status_code == 404, "the topic is deleted")
    eventually(lambda: storage() == (0, []), "its storage is free", 60)


def test_calls_that_gateways_do_not_serve_are_refused_with_their_reason(running: Thread) -> None:
    instance_id, _ = created_instance(running)
    tenant, base = running.tenant, f"/instances/{instance_id}"
    assert tenant.post(f"{base}/topics", {"name": "orders"}).status_code == 201
    for method, path, body in (
        ("PATCH", "", {"settings": {"storage_when_full": "shrink_retention"}}),
        ("DELETE", "/topics/orders", None),
        ("PATCH", "/topics/orders", {"config": {"segment.bytes": "1048576"}}),
        ("PATCH", "/topics/orders", {"allow_lists": {"produce": ["10.0.0.0/8"]}}),
    ):
        answer = tenant.call(method, base + path, body)
        assert answer.status_code in (400, 409), (method, path, answer.content)
        assert answer.json()["code"] in ("not_on_kafka_cluster", "invalid_config", "invalid_request"), answer.content


def test_groups_and_topics_are_administered_as_on_own_brokers(running: Thread) -> None:
    instance_id, address = created_instance(running)
    tenant, base = running.tenant, f"/instances/{instance_id}"
    assert tenant.post(f"{base}/topics", {"name": "orders", "partitions": 2}).status_code == 201
    app = signed_in(running, instance_id, address, "app", superuser=True)
    produce(app, "orders", RECORDS)
    with consuming(app, "orders", "readers") as consumer:
        assert len(read(consumer, RECORDS)) == RECORDS
        consumer.commit(asynchronous=False)
        (listed,) = tenant.get(f"{base}/groups").json()["items"]
        assert (listed["id"], listed["state"]) == ("readers", "Stable"), listed
        members = tenant.get(f"{base}/groups/readers").json()["members"]
        assert [member["client_id"] for member in members] == ["app"], members
        assert_problem(tenant.delete(f"{base}/groups/readers"), 409)
    # The list is kept for a moment.
    eventually(lambda: tenant.get(f"{base}/groups/readers").json()["state"] == "Empty", "its member has left")
    shown = tenant.get(f"{base}/groups/readers").json()
    assert shown["lag"] == 0, shown
    answer = tenant.post(f"{base}/groups/readers/offsets", {"to": "earliest"})
    assert answer.status_code == 200, answer.content
    now_ms = time.time_ns() // 1_000_000
    assert lag_sampling.sample_all(now_ms) == 1
    assert lag_history.latest_lags(instance_id, now_ms) == {"readers": (now_ms, {"orders": RECORDS})}
    table.rebuild(instance_id)
    (listed_topic,) = tenant.get(f"{base}/topics").json()["items"]
    assert (listed_topic["groups"], listed_topic["lag"]) == (1, RECORDS)
    with consuming(app, "orders", "readers") as consumer:
        assert len(read(consumer, RECORDS)) == RECORDS, "from the beginning again"
    eventually(lambda: tenant.delete(f"{base}/groups/readers").status_code == 204, "the empty group is deleted")

    producer = Producer({**app, "transactional.id": "billing"})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce("orders", b"open", partition=0)
    producer.flush(TIMEOUT_S)
    (transaction,) = tenant.get(f"{base}/transactions").json()["items"]
    assert (transaction["id"], transaction["state"]) == ("billing", "Ongoing"), transaction
    assert tenant.post(f"{base}/transactions/billing/abort").status_code == 204
    eventually(lambda: tenant.get(f"{base}/transactions/billing").json()["state"] == "Empty", "it is aborted")


def test_pages_of_an_instance_on_a_kafka_cluster_answer(running: Thread) -> None:
    instance_id, _ = created_instance(running)
    assert running.tenant.post(f"/instances/{instance_id}/topics", {"name": "orders"}).status_code == 201
    browser = Api(user=running.owner.user).client
    for path in (
        "", "topics/", "topics/orders/", "groups/", "users/", "rules/", "quotas/", "clients/", "metrics/", "storage/",
        "connect/", "transactions/", "routes/", "settings/",
    ):  # fmt: skip
        answer = browser.get(f"/instances/{instance_id}/{path}", follow=True)
        assert answer.status_code < 500, (path, answer.status_code)
        if path in ("topics/", "topics/orders/"):
            assert "orders" in answer.content.decode()


def test_secrets_of_the_upstream_are_in_no_answer_and_encrypted_at_rest(
    host: Host, operator: Api, upstream: Upstream
) -> None:
    backend = {"type": "kafka", "bootstrap_servers": upstream.bootstrap}
    assert (
        operator.post("/operator/clusters", {"name": "open", "kind": "shared", "backend": backend}).status_code == 202
    )
    shown = operator.get("/operator/clusters").json()["items"][0]
    assert "password" not in json.dumps(shown)
    assert shown["backend"]["has_client_certificate"] is False
    assert shown["backend"]["nodes"][0]["id"] == upstream.nodes[0]


def test_another_tenant_sees_nothing_of_it(running: Thread) -> None:
    instance_id, _ = created_instance(running)
    stranger = Api.of(make_member())
    assert_problem(stranger.get(f"/instances/{instance_id}"), 404)
    assert_problem(stranger.get(f"/operator/clusters/{running.cluster.pk}"), 403)
