"""Certificates of a host's brokers are revoked with those of its agent, and brokers learn of it through ZooKeeper."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone
from kazoo.client import KazooClient

from brokers.choices import WantedState
from brokers.contract import paths
from brokers.contract.agent_requests import CERTIFICATES_PATH
from brokers.infra import zookeeper
from brokers.infra.certificates import CERTIFICATE_DAYS, ensure_ca, ensure_internal_ca, is_valid_for
from brokers.infra.request_signatures import new_key, request_pem
from brokers.models import Broker, Cluster, Host
from brokers.operations import hosts, membership, revocation
from tenants.actors import system_actor
from tenants.models import AuditEntry
from tests.testkit.api_cases import assert_problem
from tests.testkit.fleet import make_fleet
from tests.testkit.joined_hosts import SigningAgent, token_for

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def authority(tmp_path: Path, settings: Any) -> Path:
    """An installation with authorities."""
    settings.INTERNAL_TLS_DIR, settings.TLS_DIR = tmp_path / "internal_tls", tmp_path / "tls"
    ensure_internal_ca(settings.INTERNAL_TLS_DIR)
    ensure_ca(settings.TLS_DIR)
    return Path(settings.INTERNAL_TLS_DIR)


@pytest.fixture()
def cluster(tmp_path: Path) -> Cluster:
    return make_fleet(tmp_path, brokers=2)


@pytest.fixture()
def host(cluster: Cluster) -> Host:
    return cluster.brokers.all()[0].host


def issued(agent: SigningAgent, broker: Broker) -> bytes:
    """Returns a new internal certificate of a broker, in PEM."""
    body = {"purpose": "internal", "broker_id": broker.pk, "csr_pem": request_pem(new_key(), "any")}
    answer = agent.post(CERTIFICATES_PATH, body)
    assert answer.status_code == 201, answer.content
    return str(answer.json()["certificate_pem"]).encode()


def is_valid(pem: bytes, broker: Broker) -> bool:
    broker.refresh_from_db()
    return is_valid_for(pem, ["127.0.0.1"], timezone.now(), issued_from_s=revocation.valid_from_s(broker))


def test_a_new_token_revokes_the_certificates_of_brokers_and_a_later_one_is_accepted(
    cluster: Cluster, host: Host
) -> None:
    broker = cluster.brokers.get(number=1)
    agent = SigningAgent.of(host)
    earlier = issued(agent, broker)
    assert is_valid(earlier, broker)
    assert agent.get().json()["brokers"][0]["internal_certificate_from_s"] == 0

    token_for(host)
    assert not is_valid(earlier, broker)
    assert set(revocation.revocation_documents(timezone.now())[cluster.pk].valid_from_s) == {1, 2}
    audited = AuditEntry.objects.filter(action="host.join_token_made").latest("time")
    assert audited.after["revoked_broker_certificates"] == 2
    body = {"purpose": "internal", "broker_id": broker.pk, "csr_pem": request_pem(new_key(), "any")}
    assert_problem(agent.post(CERTIFICATES_PATH, body), 401, "certificate_revoked")

    joined = SigningAgent.of(host)
    later = issued(joined, broker)
    assert is_valid(later, broker)
    from_s = joined.get().json()["brokers"][0]["internal_certificate_from_s"]
    assert from_s == revocation.valid_from_s(broker) > 0


def test_a_first_token_revokes_nothing_of_an_agent_with_a_database(cluster: Cluster, host: Host) -> None:
    """It has the authority's key: a revoked certificate would be no loss to it, and one for its brokers."""
    token_for(host)
    assert revocation.revocation_documents(timezone.now()) == {}


def test_other_hosts_keep_their_certificates(cluster: Cluster, host: Host, tmp_path: Path) -> None:
    other = make_fleet(tmp_path, brokers=1).brokers.get()
    certificate = issued(SigningAgent.of(other.host), other)
    SigningAgent.of(host)
    token_for(host)
    assert is_valid(certificate, other)
    assert set(revocation.revocation_documents(timezone.now())) == {cluster.pk}


def test_brokers_of_a_removed_host_stay_revoked_until_their_certificates_have_ended(
    cluster: Cluster, host: Host
) -> None:
    agent = SigningAgent.of(host)
    broker = cluster.brokers.get(number=1)
    certificate = issued(agent, broker)
    Broker.objects.filter(host=host).update(wanted=WantedState.STOPPED)
    for row in cluster.brokers.all():
        membership.remove_broker(acting=system_actor("tests"), broker=row)
    hosts.remove_host(acting=system_actor("tests"), host=host)
    now = timezone.now()
    assert not is_valid(certificate, broker)
    assert set(revocation.revocation_documents(now)[cluster.pk].valid_from_s) == {1, 2}
    assert revocation.revocation_documents(now + timedelta(days=CERTIFICATE_DAYS, hours=2)) == {}


def test_a_removed_broker_is_revoked_alone(cluster: Cluster) -> None:
    Broker.objects.filter(cluster=cluster, number=2).update(wanted=WantedState.STOPPED)
    membership.remove_broker(acting=system_actor("tests"), broker=cluster.brokers.get(number=2))
    assert set(revocation.revocation_documents(timezone.now())[cluster.pk].valid_from_s) == {2}


def test_dates_are_published_once_where_brokers_read_them(
    cluster: Cluster, host: Host, zookeeper_address: str, tmp_path: Path
) -> None:
    make_fleet(tmp_path, brokers=1)
    Cluster.objects.update(zookeeper=zookeeper_address)
    SigningAgent.of(host)
    token_for(host)
    now = timezone.now()
    client = KazooClient(zookeeper_address)
    client.start(timeout=10)
    try:
        assert (revocation.publish(now), revocation.publish(now)) == (1, 0)
        raw, _ = client.get(f"{cluster.chroot}{paths.REVOKED_CERTIFICATES}")
        assert set(json.loads(raw)["valid_from_s"]) == {"1", "2"}
        Broker.objects.filter(number=1, host=host).update(certificates_void_before=now + timedelta(minutes=1))
        assert revocation.publish(now) == 1
    finally:
        client.stop()
        client.close()
        zookeeper.close_all()


def test_a_cluster_whose_ensemble_is_away_holds_no_other_one_up(
    cluster: Cluster, host: Host, zookeeper_address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zookeeper, "ZOOKEEPER_CONNECT_TIMEOUT_S", 1.0)
    other = make_fleet(tmp_path, brokers=1).brokers.get()
    Cluster.objects.filter(pk=cluster.pk).update(zookeeper="127.0.0.1:1")
    Cluster.objects.filter(pk=other.cluster_id).update(zookeeper=zookeeper_address)
    for row in (host, other.host):
        SigningAgent.of(row)
        token_for(row)
    try:
        assert revocation.publish(timezone.now()) == 1
    finally:
        zookeeper.close_all()
