"""Guarantees of every endpoint of instances: 401, 403, 404 for strangers, dry runs, audit rows."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import cache
from django.utils import timezone

from brokers.infra.certificates import ensure_route_keys
from instances import interfaces as instances_interfaces
from instances import services
from instances.choices import Reason
from instances.copying.models import CopyState, TopicCopy
from instances.lifecycle.phases import Phase
from instances.models import Instance, OAuthConfiguration, Operation, Route
from instances.topic_models import TopicSchema
from tenants.actors import member_actor
from tenants.choices import Scope
from tenants.models import Member
from tests.component.instances.conftest import FakeDataPlane
from tests.testkit.api_cases import Api, Case, EndpointCases, assert_problem, pytest_generate_tests
from tests.testkit.client_certificates import Authority
from tests.testkit.fake_connections import FakeConnections
from tests.testkit.fake_groups import FakeGroups, FakeTransactions
from tests.testkit.fake_messages import FakeMessages
from tests.testkit.fake_users import FakeAcls, FakeUsers, rule, secret
from tests.testkit.fleet import make_instance, make_running, make_secured_route, plugged

__all__ = ["pytest_generate_tests"]

READ, WRITE = Scope.INSTANCES_READ, Scope.INSTANCES_WRITE
CA, KNOWN_CA = Authority.make("New CA"), Authority.make("Acme CA")
SIZE = {"plan": "brook", "bandwidth_mb_s": 5, "storage_gb": 20, "is_suspended": False}


@pytest.mark.django_db
class TestInstances(EndpointCases):
    cases = (
        Case("GET", "/instances", READ),
        Case("POST", "/instances", WRITE, body={"name": "orders"}, status=202),
        Case("GET", "/instances/{instance}", READ),
        Case("PATCH", "/instances/{instance}", WRITE, body={"name": "renamed"}),
        Case("PATCH", "/instances/{instance}", WRITE, body={"bandwidth_mb_s": 10}, status=202),
        Case("PATCH", "/instances/{instance}", WRITE, body={"settings": {"default_partitions": 7}}, status=202),
        Case("PATCH", "/instances/{instance}", WRITE, body={"protected": True}),
        Case("DELETE", "/instances/{instance}", WRITE, status=202),
        Case("DELETE", "/instances/{failed}", WRITE, status=202),
        Case("POST", "/instances/{deleted}/restore", WRITE, status=202),
        Case("POST", "/instances/{deleted}/purge", WRITE, status=202),
        Case("POST", "/instances/{idle}/resume", WRITE, status=202),
        Case("POST", "/instances/{failed}/retry", WRITE, status=202),
        Case("GET", "/instances/{instance}/events", READ),
        Case("GET", "/instances/{instance}/routes", READ),
        Case(
            "POST",
            "/instances/{instance}/routes",
            WRITE,
            body={"name": "inside", "security": "sasl_plaintext", "allow_list": ["10.0.0.0/8"]},
            status=202,
        ),
        Case("GET", "/instances/{instance}/routes/{route}", READ),
        Case("PATCH", "/instances/{instance}/routes/{route}", WRITE, body={"connections_max": 100}, status=202),
        Case("DELETE", "/instances/{instance}/routes/{second}", WRITE, status=202),
        Case("GET", "/operations", READ),
        Case("GET", "/operations/{operation}", READ),
    )

    def places(self, owner: Member) -> dict[str, str]:
        deleted = make_running(
            owner.tenant,
            phase=Phase.DELETING.value,
            deleted_at=timezone.now(),
            restorable_until=timezone.now() + timedelta(days=1),
        )
        instance = make_running(owner.tenant)
        Route.objects.create(instance=instance, name="second", security="sasl_tls")
        operation = Operation.objects.create(
            tenant=owner.tenant,
            instance=instance,
            type="instance.create",
            generation=1,
            asked_by="tests",
            **SIZE,
        )
        return {
            "instance": instance.pk,
            "deleted": deleted.pk,
            "idle": make_running(
                owner.tenant, phase=Phase.SUSPENDED.value, suspended_for=Reason.IDLE, reason=Reason.IDLE
            ).pk,
            "failed": make_instance(owner.tenant, phase=Phase.FAILED.value).pk,
            "operation": operation.pk,
            "route": "default",
            "second": "second",
        }


@pytest.mark.django_db
class TestRouteCertificates(EndpointCases):
    cases = (
        Case("PUT", "/instances/{instance}/routes/{route}/client-ca", WRITE, body={"ca_pem": CA.pem}, status=202),
        Case("DELETE", "/instances/{instance}/routes/{route}/client-ca", WRITE, status=202),
        Case(
            "PUT",
            "/instances/{instance}/routes/{route}/revocation-list",
            WRITE,
            body={"crl_pem": KNOWN_CA.revoked(number=2)},
            status=202,
        ),
        Case("DELETE", "/instances/{instance}/routes/{route}/revocation-list", WRITE, status=202),
        Case(
            "PUT",
            "/instances/{instance}/routes/{route}/certificate",
            WRITE,
            body=dict(zip(("certificate_pem", "private_key_pem"), CA.server("kafka.example"), strict=True)),
            status=202,
        ),
        Case("DELETE", "/instances/{instance}/routes/{route}/certificate", WRITE, status=202),
    )

    @pytest.fixture(autouse=True)
    def directory(self, settings: Any, tmp_path: Path) -> None:
        settings.TLS_DIR = tmp_path
        ensure_route_keys(tmp_path)

    def places(self, owner: Member) -> dict[str, str]:
        instance = make_running(owner.tenant)
        make_secured_route(instance, KNOWN_CA)
        return {"instance": instance.pk, "route": "secure"}


@pytest.mark.django_db
class TestTopics(EndpointCases):
    cases = (
        Case("GET", "/instances/{instance}/topics", Scope.TOPICS_READ),
        Case("POST", "/instances/{instance}/topics", Scope.TOPICS_WRITE, body={"name": "payments"}, status=201),
        Case("GET", "/instances/{instance}/topics/{topic}", Scope.TOPICS_READ),
        Case("PATCH", "/instances/{instance}/topics/{topic}", Scope.TOPICS_WRITE, body={"partitions": 5}),
        Case(
            "PATCH",
            "/instances/{instance}/topics/{topic}",
            Scope.TOPICS_WRITE,
            body={"config": {"retention.ms": "1000"}},
        ),
        Case(
            "PATCH",
            "/instances/{instance}/topics/{topic}",
            Scope.TOPICS_WRITE,
            body={"allow_list": {"produce": ["10.0.0.0/8"], "consume": []}},
            queries_max=17,
        ),
        Case("DELETE", "/instances/{instance}/topics/{topic}", Scope.TOPICS_WRITE, status=204),
        Case(
            "POST",
            "/instances/{instance}/topics/{topic}/clone",
            Scope.TOPICS_WRITE,
            body={"name": "orders.copy"},
            status=201,
            queries_max=24,
        ),
        Case(
            "POST",
            "/instances/{instance}/topics/{topic}/purge",
            Scope.TOPICS_WRITE,
            body={"before": {"0": 5}},
        ),
        Case("GET", "/instances/{instance}/topics/{topic}/messages", Scope.MESSAGES_READ),
        Case(
            "POST",
            "/instances/{instance}/topics/{topic}/messages",
            Scope.MESSAGES_WRITE,
            body={"messages": [{"key": "o-1", "value": "{}", "headers": [{"key": "trace", "value": "1"}]}]},
            status=201,
            dry_run=False,
        ),
        Case("GET", "/instances/{instance}/topics/{topic}/messages/file", Scope.MESSAGES_READ),
        Case("GET", "/instances/{instance}/topics/{topic}/messages/stream", Scope.MESSAGES_READ, queries_max=14),
        Case("GET", "/instances/{instance}/topics/{topic}/schemas", Scope.TOPICS_READ),
        Case(
            "POST",
            "/instances/{instance}/topics/{topic}/schemas",
            Scope.TOPICS_WRITE,
            body={"part": "key", "format": "avro", "schema": '"long"'},
            status=201,
        ),
        Case("DELETE", "/instances/{instance}/topics/{topic}/schemas/{schema}", Scope.TOPICS_WRITE, status=204),
        Case("GET", "/instances/{instance}/topics/{topic}/masks", Scope.TOPICS_READ),
        Case(
            "PUT",
            "/instances/{instance}/topics/{topic}/masks",
            Scope.MESSAGES_UNMASK,
            body={"masks": [{"part": "value", "path": ".card.number"}]},
        ),
        Case("GET", "/instances/{instance}/topics/{topic}/producers", Scope.CLIENTS_READ),
        Case("GET", "/instances/{instance}/topics/{topic}/consumers", Scope.CLIENTS_READ),
        Case("GET", "/instances/{instance}/clients", Scope.CLIENTS_READ),
        Case("GET", "/instances/{instance}/clients/{connection}", Scope.CLIENTS_READ),
        Case("DELETE", "/instances/{instance}/clients/{connection}", Scope.CLIENTS_WRITE, status=204),
        Case("GET", "/instances/{instance}/throughput", Scope.USAGE_READ),
        Case("GET", "/instances/{instance}/storage", Scope.USAGE_READ),
        Case("GET", "/instances/{instance}/storage/topics", Scope.TOPICS_READ),
        Case("GET", "/instances/{instance}/throttles", Scope.USAGE_READ),
        Case("GET", "/instances/{instance}/metrics", Scope.USAGE_READ),
        Case("GET", "/instances/{instance}/metrics/prometheus", Scope.USAGE_READ),
    )

    @pytest.fixture(autouse=True)
    def plane(
        self,
        data_plane: FakeDataPlane,
        kept_messages: FakeMessages,
        groups: FakeGroups,
        connections: FakeConnections,
    ) -> None:
        self.data_plane = data_plane
        self.connections = connections
        self.kept_messages = kept_messages
        groups.logs["orders", 0] = (0, 10)

    def places(self, owner: Member) -> dict[str, str]:
        instance = make_running(owner.tenant)
        self.data_plane.add(instance.pk, "orders")
        self.kept_messages.add(instance.pk, "orders", b"first")
        connection = self.connections.add(instance.pk, "billing")
        schema = TopicSchema.objects.create(
            instance=instance, topic="orders", part="value", format="avro", framing="confluent", text='"long"'
        )
        return {"instance": instance.pk, "topic": "orders", "connection": connection.id, "schema": schema.pk}

    def test_every_route_of_an_instance_hides_a_deleted_one(self, case: Case, at: str, owner: Member) -> None:
        Instance.objects.filter(tenant=owner.tenant).update(phase=Phase.DELETED.value)
        assert_problem(Api.of(owner).call(case.method, at, case.body), 404, "not_found")


@pytest.mark.django_db
class TestDeletedTopics(EndpointCases):
    cases = (
        Case("GET", "/instances/{instance}/deleted-topics", Scope.TOPICS_READ),
        Case("POST", "/instances/{instance}/topics/{topic}/restore", Scope.TOPICS_WRITE, status=204),
        Case("DELETE", "/instances/{instance}/deleted-topics/{topic}", Scope.TOPICS_WRITE, status=204),
    )

    @pytest.fixture(autouse=True)
    def plane(self, data_plane: FakeDataPlane) -> None:
        self.data_plane = data_plane

    def places(self, owner: Member) -> dict[str, str]:
        instance = make_running(owner.tenant)
        self.data_plane.add(instance.pk, "orders")
        assert Api.of(owner).delete(f"/instances/{instance.pk}/topics/orders").status_code == 204
        return {"instance": instance.pk, "topic": "orders"}


@pytest.mark.django_db
class TestTopicCopies(EndpointCases):
    state = CopyState.RUNNING
    cases = (
        Case("GET", "/instances/{instance}/topic-copies", Scope.TOPICS_READ),
        Case("GET", "/instances/{instance}/topic-copies/{copy}", Scope.TOPICS_READ),
        Case("DELETE", "/instances/{instance}/topic-copies/{copy}", Scope.TOPICS_WRITE, status=204, dry_run=False),
    )

    @pytest.fixture(autouse=True)
    def plane(self, data_plane: FakeDataPlane) -> None:
        self.data_plane = data_plane

    def places(self, owner: Member) -> dict[str, str]:
        instance = make_running(owner.tenant)
        copy = TopicCopy.objects.create(
            instance=instance, source="orders", target="copy", total_offsets=0, asked_by="ida", state=self.state
        )
        return {"instance": instance.pk, "copy": copy.pk}


@pytest.mark.django_db
class TestFailedTopicCopies(TestTopicCopies):
    state = CopyState.FAILED
    cases = (Case("POST", "/instances/{instance}/topic-copies/{copy}/resume", Scope.TOPICS_WRITE, dry_run=False),)


@pytest.mark.django_db
class TestGroups(EndpointCases):
    cases = (
        Case("GET", "/instances/{instance}/groups", Scope.GROUPS_READ),
        Case("GET", "/instances/{instance}/groups/{group}", Scope.GROUPS_READ),
        Case("POST", "/instances/{instance}/groups/{group}/offsets", Scope.GROUPS_WRITE, body={"to": "earliest"}),
        Case("DELETE", "/instances/{instance}/groups/{group}/offsets?topic=orders", Scope.GROUPS_WRITE, status=204),
        Case("DELETE", "/instances/{instance}/groups/{group}", Scope.GROUPS_WRITE, status=204),
        Case("GET", "/instances/{instance}/transactions", Scope.GROUPS_READ),
        Case("GET", "/instances/{instance}/transactions/{transaction}", Scope.GROUPS_READ),
        Case("POST", "/instances/{instance}/transactions/{transaction}/abort", Scope.GROUPS_WRITE, status=204),
    )

    @pytest.fixture(autouse=True)
    def admin_clients(self, groups: FakeGroups, transactions: FakeTransactions) -> None:
        self.groups, self.transactions = groups, transactions

    def places(self, owner: Member) -> dict[str, str]:
        instance = make_running(owner.tenant)
        self.groups.logs["orders", 0] = (0, 100)
        self.groups.add(instance.pk, "etl", {("orders", 0): 40})
        self.transactions.add(instance.pk, "mover", ("orders", 0), started_ms=1_790_000_000_000)
        return {"instance": instance.pk, "group": "etl", "transaction": "mover"}


@pytest.mark.django_db
class TestQuickstart(EndpointCases):
    cases = (
        Case(
            "POST", "/instances/{instance}/quickstart", Scope.TOPICS_WRITE, body={"topic": "orders"}, status=201,
            queries_max=60,
        ),
        Case("POST", "/instances/{instance}/push", Scope.QUOTAS_WRITE, body={"topic": "there"}, queries_max=40),
    )  # fmt: skip

    @pytest.fixture(autouse=True)
    def _no_queue(self) -> Iterator[None]:
        cache.clear()
        with (
            plugged(instances_interfaces.stream_samples, lambda *_run: None),
            plugged(instances_interfaces.push_limit, lambda *_run: None),
        ):
            yield

    @pytest.fixture(autouse=True)
    def _plane(self, data_plane: FakeDataPlane) -> None:
        self.plane = data_plane

    def places(self, owner: Member) -> dict[str, str]:
        instance = make_running(owner.tenant)
        self.plane.create_topic(
            instance.pk, "there", partitions=1, replication_factor=1, config={}, validate_only=False
        )
        return {"instance": instance.pk}


@pytest.mark.django_db
class TestUsers(EndpointCases):
    cases = (
        Case("GET", "/instances/{instance}/users", Scope.USERS_READ),
        Case("POST", "/instances/{instance}/users", Scope.USERS_WRITE, body={"name": "etl"}, status=201),
        Case("GET", "/instances/{instance}/users/{user}", Scope.USERS_READ),
        Case("PATCH", "/instances/{instance}/users/{user}", Scope.USERS_WRITE, body={"disabled": True}),
        Case("PATCH", "/instances/{instance}/users/{user}", Scope.USERS_WRITE, body={"superuser": True}),
        Case("DELETE", "/instances/{instance}/users/{user}", Scope.USERS_WRITE, status=204),
        Case("GET", "/instances/{instance}/deleted-users", Scope.USERS_READ),
        Case("POST", "/instances/{instance}/users/{deleted}/restore", Scope.USERS_WRITE, status=204),
        Case("DELETE", "/instances/{instance}/deleted-users/{deleted}", Scope.USERS_WRITE, status=204),
        Case("POST", "/instances/{instance}/users/{user}/secrets", Scope.USERS_WRITE, status=201),
        Case("DELETE", "/instances/{instance}/users/{rotating}/secrets/{secret}", Scope.USERS_WRITE, status=204),
    )

    @pytest.fixture(autouse=True)
    def admin_client(self, users: FakeUsers) -> None:
        self.users = users

    def places(self, owner: Member) -> dict[str, str]:
        instance = make_running(owner.tenant)
        self.users.add(instance.pk, "billing")
        self.users.add(instance.pk, "changing", secrets=(secret("sec-old"), secret("sec-new")))
        self.users.add(instance.pk, "gone")
        services.delete_user(acting=member_actor(owner), instance=instance, name="gone")
        return {
            "instance": instance.pk,
            "user": "billing",
            "rotating": "changing",
            "secret": "sec-old",
            "deleted": "gone",
        }


@pytest.mark.django_db
class TestAcls(EndpointCases):
    cases = (
        Case("GET", "/instances/{instance}/acls", Scope.ACLS_READ),
        Case(
            "POST",
            "/instances/{instance}/acls",
            Scope.ACLS_WRITE,
            body={"principal": "User:etl", "resource_type": "group", "resource_name": "etl", "operation": "read"},
            status=201,
        ),
        Case("DELETE", "/instances/{instance}/acls?principal=User:alice", Scope.ACLS_WRITE),
        Case(
            "GET",
            "/instances/{instance}/acls/test?principal=User:alice&operation=read&resource_type=topic"
            "&resource_name=orders",
            Scope.ACLS_READ,
        ),
    )

    @pytest.fixture(autouse=True)
    def admin_client(self, acls: FakeAcls) -> None:
        self.acls = acls

    def places(self, owner: Member) -> dict[str, str]:
        instance = make_running(owner.tenant)
        self.acls.create(instance.pk, [rule()])
        return {"instance": instance.pk}


@pytest.mark.django_db
class TestOAuth(EndpointCases):
    cases = (
        Case("GET", "/instances/{instance}/oauth", Scope.USERS_READ),
        Case(
            "PUT",
            "/instances/{instance}/oauth",
            Scope.USERS_WRITE,
            body={"issuer": "https://login.example.com/", "audience": "new", "jwks_url": "https://login.example.com/"},
        ),
        Case("DELETE", "/instances/{instance}/oauth", Scope.USERS_WRITE, status=204),
    )

    def places(self, owner: Member) -> dict[str, str]:
        made = make_running(owner.tenant)
        OAuthConfiguration.objects.create(
            instance=made, issuer="https://login.example.com/", audience="kafka", jwks_url="https://login.example.com/"
        )
        return {"instance": made.pk}
