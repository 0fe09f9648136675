"""Fixtures of console pages: members with roles, a running instance, and brokers in memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest
from django.core.cache import cache
from django.test import Client
from django.utils import timezone

from billing.services import ensure_default_plans
from instances import interfaces as instances_interfaces
from instances import services
from instances.acls import interfaces as acl_interfaces
from instances.clients.interfaces import connection_admin_client, topic_traffic
from instances.groups import interfaces
from instances.messages.interfaces import message_admin_client
from instances.models import Instance
from instances.topics import interfaces as topic_interfaces
from instances.users import interfaces as user_interfaces
from quotas import interfaces as quota_ports
from tenants import services as tenant_services
from tenants.actors import member_actor, user_actor
from tenants.models import Member
from tests.component.console.fakes import NOW_MS, FakeDataPlane, FakeObservation, FakeQuotaAdminClient
from tests.testkit.fake_connections import FakeConnections
from tests.testkit.fake_groups import FakeGroups, FakeTransactions, member
from tests.testkit.fake_messages import FakeMessages
from tests.testkit.fake_topics import reporter
from tests.testkit.fake_users import FakeAcls, FakeUsers, rule

PASSWORD = "a long enough pass phrase"


@pytest.fixture(autouse=True)
def _fresh_cache() -> None:
    cache.clear()


@pytest.fixture
def data_plane(monkeypatch: pytest.MonkeyPatch) -> FakeDataPlane:
    plane = FakeDataPlane()
    monkeypatch.setattr(instances_interfaces.data_plane, "_plugged", plane)
    return plane


@pytest.fixture
def observation(data_plane: FakeDataPlane, monkeypatch: pytest.MonkeyPatch) -> FakeObservation:
    seen = FakeObservation(data_plane)
    monkeypatch.setattr(instances_interfaces.observation, "_plugged", seen)
    monkeypatch.setattr(topic_interfaces.topic_report, "_plugged", reporter(data_plane, seen))
    return seen


@pytest.fixture
def quota_admin_client(monkeypatch: pytest.MonkeyPatch) -> FakeQuotaAdminClient:
    admin_client = FakeQuotaAdminClient()
    monkeypatch.setattr(quota_ports.client_quotas, "_plugged", admin_client)
    return admin_client


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> FakeGroups:
    result = FakeGroups()
    monkeypatch.setattr(interfaces.group_admin_client, "_plugged", result)
    monkeypatch.setattr(instances_interfaces.delete_records, "_plugged", result.delete_records)
    return result


@pytest.fixture
def transactions(monkeypatch: pytest.MonkeyPatch) -> FakeTransactions:
    result = FakeTransactions()
    monkeypatch.setattr(interfaces.transaction_admin_client, "_plugged", result)
    return result


@pytest.fixture
def users(monkeypatch: pytest.MonkeyPatch) -> FakeUsers:
    result = FakeUsers()
    monkeypatch.setattr(user_interfaces.user_admin_client, "_plugged", result)
    return result


@pytest.fixture
def acls(monkeypatch: pytest.MonkeyPatch) -> FakeAcls:
    result = FakeAcls()
    monkeypatch.setattr(acl_interfaces.acl_admin_client, "_plugged", result)
    return result


@pytest.fixture
def kept_messages(monkeypatch: pytest.MonkeyPatch) -> FakeMessages:
    result = FakeMessages(has_every_topic=True)
    monkeypatch.setattr(message_admin_client, "_plugged", result)
    return result


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> FakeConnections:
    result = FakeConnections()
    monkeypatch.setattr(connection_admin_client, "_plugged", result)
    monkeypatch.setattr(topic_traffic, "_plugged", result.topic_traffic)
    return result


@pytest.fixture
def reconciled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ids of instances whose reconciliation was enqueued."""
    asked: list[str] = []
    monkeypatch.setattr(instances_interfaces.reconcile, "_plugged", asked.append)
    return asked


@pytest.fixture
def owner(db: None) -> Member:
    ensure_default_plans()
    return tenant_services.sign_up(email="ida@halvorsen.example", password=PASSWORD, tenant_name="Halvorsen Freight")


@pytest.fixture
def stranger(db: None) -> Member:
    return tenant_services.sign_up(email="eve@elsewhere.example", password=PASSWORD, tenant_name="Elsewhere")


@pytest.fixture
def join(owner: Member) -> Callable[[str], Member]:
    """Adds a member with a role to the owner's tenant."""

    def make(role: str) -> Member:
        newcomer = tenant_services.sign_up(email=f"{role}@halvorsen.example", password=PASSWORD, tenant_name=role)
        _invitation, secret = tenant_services.invite_member(
            acting=member_actor(owner), email=newcomer.user.email, role=role
        )
        return tenant_services.accept_invitation(acting=user_actor(newcomer.user), user=newcomer.user, secret=secret)

    return make


@pytest.fixture
def browse() -> Callable[[Member], Client]:
    """Returns a signed-in browser of a member."""

    def sign_in(member: Member) -> Client:
        client = Client()
        client.force_login(member.user, backend="django.contrib.auth.backends.ModelBackend")
        session = client.session
        session["tenant_id"] = member.tenant_id
        session.save()
        return client

    return sign_in


@pytest.fixture
def ida(owner: Member, browse: Callable[[Member], Client]) -> Client:
    return browse(owner)


@pytest.fixture
def instance(
    owner: Member, observation: FakeObservation, quota_admin_client: FakeQuotaAdminClient, reconciled: list[str],
    groups: FakeGroups, transactions: FakeTransactions, users: FakeUsers, acls: FakeAcls,
    kept_messages: FakeMessages, connections: FakeConnections,
) -> Iterator[Instance]:  # fmt: skip
    """Running instance `orders-prod` with a topic of three partitions, a group that reads it, one without members, an
    open transaction, a user, and an access rule for it.
    """
    made, operation = services.create_instance(acting=member_actor(owner), name="orders-prod", plan="stream")
    made.phase, made.first_running_at = "running", datetime.fromtimestamp(NOW_MS / 1_000 - 3_600, UTC)
    made.observed_generation = made.generation
    made.endpoints = {"1": "127.0.0.1:19001", "2": "127.0.0.1:19002", "3": "127.0.0.1:19003"}
    made.save()
    operation.state, operation.finished_at = "succeeded", timezone.now()
    operation.save()
    observation.data_plane.create_topic(
        made.pk, "orders.created", partitions=3, replication_factor=1, config={"retention.ms": "86400000"},
        validate_only=False,
    )  # fmt: skip
    topic = "orders.created"
    kept_messages.add(made.pk, topic, b'{"total": 42}', None, b"text")
    groups.logs |= {(topic, index): (10, 1_000 + index) for index in range(3)}
    reader = member("billing-1", *((topic, index) for index in range(3)))
    groups.add(made.pk, "billing", {(topic, 0): 1_000, (topic, 1): 900, (topic, 2): 5}, reader)
    groups.add(made.pk, "reports", {(topic, 0): 400})
    transactions.add(made.pk, "mover", (topic, 0), started_ms=time.time_ns() // 1_000_000 - 4_000)
    users.add(made.pk, "billing")
    acls.create(made.pk, [rule("User:billing", resource_name=topic)])
    return made
