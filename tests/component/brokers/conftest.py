"""Fixtures of brokers: a fleet that acknowledges over the session's ZooKeeper, and a probe that always succeeds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from django.test import Client

from brokers.dataplane import probe
from brokers.infra import zookeeper
from brokers.models import Cluster
from instances import interfaces
from tenants.actors import Actor, system_actor
from tenants.models import Member, User
from tests.testkit.api_cases import Api, make_member
from tests.testkit.fleet import AcknowledgingBrokers, catalogue, make_fleet, plugged


@pytest.fixture()
def acting() -> Actor:
    return system_actor("test")


@pytest.fixture()
def cluster(db: None, tmp_path: Path, zookeeper_address: str) -> Iterator[Cluster]:
    fleet = make_fleet(tmp_path)
    fleet.zookeeper = zookeeper_address
    fleet.save()
    with plugged(interfaces.plan_catalogue, catalogue):
        yield fleet
    zookeeper.close_all()


@pytest.fixture()
def brokers(cluster: Cluster, zookeeper_address: str) -> Iterator[AcknowledgingBrokers]:
    result = AcknowledgingBrokers(zookeeper_address, cluster)
    result.start()
    yield result
    result.stop()


@pytest.fixture(autouse=True)
def probed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ids of instances that were probed."""
    asked: list[str] = []

    def first_message(instance_id: str) -> float:
        asked.append(instance_id)
        return 1.0

    monkeypatch.setattr(probe, "first_message", first_message)
    monkeypatch.setattr(probe, "clean_up", lambda _instance_id: None)
    return asked


@pytest.fixture()
def operator(db: None) -> Api:
    """A caller with the operator's scope."""
    member = make_member()
    member.user.is_staff = member.user.is_superuser = True
    member.user.save()
    return Api.of(member, ["operator"])


@pytest.fixture()
def outsider(db: None) -> Member:
    return make_member()


@pytest.fixture()
def panel(db: None) -> Client:
    """A signed-in browser at the operator panel."""
    client = Client()
    client.force_login(User.objects.create_superuser("ops@example.com", "a long enough passphrase"))
    return client
