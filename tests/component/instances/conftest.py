"""Fixtures of instances: plans, a data plane and observations without brokers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from instances import interfaces as instances_interfaces
from instances.acls import interfaces as acl_interfaces
from instances.clients.interfaces import connection_admin_client, topic_traffic
from instances.groups import interfaces
from instances.messages.interfaces import message_admin_client
from instances.topics import interfaces as topic_interfaces
from instances.users import interfaces as user_interfaces
from quotas import interfaces as quota_ports
from tenants.models import Member
from tests.testkit.api_cases import Api, make_member
from tests.testkit.fake_connections import FakeConnections
from tests.testkit.fake_data_plane import FakeDataPlane, FakeObservation, FakeQuotas
from tests.testkit.fake_groups import FakeGroups, FakeTransactions
from tests.testkit.fake_messages import FakeMessages
from tests.testkit.fake_topics import reporter
from tests.testkit.fake_users import FakeAcls, FakeUsers
from tests.testkit.fleet import catalogue, plugged


@pytest.fixture()
def owner() -> Member:
    return make_member()


@pytest.fixture()
def api(owner: Member) -> Api:
    return Api.of(owner)


@pytest.fixture(autouse=True)
def data_plane() -> Iterator[FakeDataPlane]:
    plane = FakeDataPlane()
    with plugged(instances_interfaces.data_plane, plane), plugged(instances_interfaces.plan_catalogue, catalogue):
        yield plane


@pytest.fixture(autouse=True)
def observation(data_plane: FakeDataPlane) -> Iterator[FakeObservation]:
    result = FakeObservation()
    with (
        plugged(instances_interfaces.observation, result),
        plugged(topic_interfaces.topic_report, reporter(data_plane, result)),
    ):
        yield result


@pytest.fixture(autouse=True)
def client_quotas() -> Iterator[FakeQuotas]:
    quotas = FakeQuotas()
    with plugged(quota_ports.client_quotas, quotas):
        yield quotas


@pytest.fixture(autouse=True)
def asked_to_reconcile() -> Iterator[list[str]]:
    """Ids of instances whose reconciliation was enqueued."""
    asked: list[str] = []
    with plugged(instances_interfaces.reconcile, asked.append):
        yield asked


@pytest.fixture(autouse=True)
def asked_to_publish() -> Iterator[list[str]]:
    """Instances whose OAuth configuration was enqueued for publication."""
    asked: list[str] = []
    with plugged(instances_interfaces.publish_oauth, asked.append):
        yield asked


@pytest.fixture(autouse=True)
def groups() -> Iterator[FakeGroups]:
    result = FakeGroups()
    with (
        plugged(interfaces.group_admin_client, result),
        plugged(instances_interfaces.delete_records, result.delete_records),
    ):
        yield result


@pytest.fixture(autouse=True)
def transactions() -> Iterator[FakeTransactions]:
    result = FakeTransactions()
    with plugged(interfaces.transaction_admin_client, result):
        yield result


@pytest.fixture(autouse=True)
def users() -> Iterator[FakeUsers]:
    result = FakeUsers()
    with plugged(user_interfaces.user_admin_client, result):
        yield result


@pytest.fixture(autouse=True)
def acls() -> Iterator[FakeAcls]:
    result = FakeAcls()
    with plugged(acl_interfaces.acl_admin_client, result):
        yield result


@pytest.fixture(autouse=True)
def connections() -> Iterator[FakeConnections]:
    result = FakeConnections()
    with plugged(connection_admin_client, result), plugged(topic_traffic, result.topic_traffic):
        yield result


@pytest.fixture(autouse=True)
def kept_messages() -> Iterator[FakeMessages]:
    result = FakeMessages()
    with plugged(message_admin_client, result):
        yield result
