"""The control plane with brokers that identify it by its certificate alone."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.core.cache import cache
from django.utils import timezone
from kafka.protocol.admin import DescribeClusterRequest

from billing.pipeline.job import available_offsets
from billing.selectors import usage_sources
from brokers.agent.broker_certificates import CertificateRenewal, internal_certificate_file_of
from brokers.choices import ProcessState
from brokers.contract import process_identity
from brokers.contract.process_identity import MUTUAL_TLS, PLAINTEXT, TLS_OR_SECRET, control
from brokers.dataplane import admin_client, scatter
from brokers.dataplane.link import Link, LinkDown
from brokers.models import Broker, Cluster, Host
from brokers.monitoring import observe
from brokers.operations import membership
from tenants.actors import system_actor
from tenants.errors import Unavailable
from tests.testkit.engine import EngineCluster
from tests.testkit.fleet import make_fleet
from tests.testkit.tls import process_file

CLUSTER_ID = "cl-certifie"
# First byte of a TLS record with a handshake.
TLS_HANDSHAKE = b"\x16"

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def engines(zookeeper_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineCluster]:
    directory = tmp_path_factory.mktemp("certified")
    with EngineCluster(
        zookeeper_address, directory, size=2, internal_security=MUTUAL_TLS, cluster_id=CLUSTER_ID
    ) as running:
        process_file(running.internal_tls, control("web"))
        yield running
    admin_client.links().close()


@pytest.fixture()
def cluster(engines: EngineCluster, tmp_path: Path, settings: object, db: None) -> Iterator[Cluster]:
    """Returns the row of the cluster of the running brokers, with a control certificate instead of a secret."""
    cache.clear()
    settings.INTERNAL_TLS_DIR = engines.internal_tls  # type: ignore[attr-defined]
    settings.INTERNAL_CERTIFICATE_FILE = engines.internal_tls / control("web").file_name  # type: ignore[attr-defined]
    Cluster.objects.create(pk=CLUSTER_ID, name="certified")
    fleet = make_fleet(tmp_path, brokers=2, name="certified")
    Path(fleet.control_secret_file).unlink()
    for engine in engines.brokers:
        own = engine.settings
        fleet.brokers.filter(number=own.broker_id).update(
            internal_port=own.internal_port,
            admin_port=own.admin_port,
            process_has_tls=True,
            process_state=ProcessState.RUNNING,
        )
    yield fleet
    admin_client.links().close()


def test_requests_to_one_broker_to_all_and_to_admin_ports_are_answered(cluster: Cluster) -> None:
    assert admin_client.send_as_cluster(cluster, DescribeClusterRequest(version=0)).error_code == 0
    targets = scatter.targets(cluster, "penstock")
    asked = [(target, DescribeClusterRequest(version=0)) for target in targets.values()]
    assert [number for number, _ in scatter.scatter(asked).responses] == [1, 2]
    answers = observe.query_all(observe.targets_of_cluster(cluster), "/v1/status")
    assert sorted(answers.bodies) == [1, 2]


def test_an_idle_link_is_known_to_be_alive(cluster: Cluster) -> None:
    row = cluster.brokers.select_related("host").get(number=1)
    link = Link(row.internal_address, "penstock", "", row.certified_as)
    assert link.is_alive
    assert link.call(DescribeClusterRequest(version=0)).error_code == 0
    assert link.is_alive
    link.close()


def test_another_broker_at_the_same_address_gets_no_request(cluster: Cluster) -> None:
    first, second = cluster.brokers.select_related("host").order_by("number")
    with pytest.raises(LinkDown):
        Link(first.internal_address, "penstock", "", second.certified_as)


def test_without_a_certificate_of_ones_own_nobody_answers(cluster: Cluster, settings: object, tmp_path: Path) -> None:
    settings.INTERNAL_CERTIFICATE_FILE = tmp_path / "none.pem"  # type: ignore[attr-defined]
    with pytest.raises(Unavailable):
        admin_client.send_as_cluster(cluster, DescribeClusterRequest(version=0))


def test_the_pipeline_reads_with_its_certificate(cluster: Cluster) -> None:
    (source,) = usage_sources()
    assert source.certificate_file
    assert isinstance(available_offsets(source), dict)


def test_the_agent_makes_the_certificates_of_brokers_and_of_the_control_plane(
    cluster: Cluster, settings: object, tmp_path: Path
) -> None:
    settings.TLS_DIR, settings.INTERNAL_TLS_DIR = tmp_path / "tls", tmp_path / "internal"  # type: ignore[attr-defined]
    process_file(tmp_path / "internal", control("web"))
    (tmp_path / "internal" / control("web").file_name).unlink()
    brokers = list(cluster.brokers.select_related("host"))
    CertificateRenewal().renew(brokers, 0.0)
    assert all(internal_certificate_file_of(broker).is_file() for broker in brokers)
    names = {control(process).file_name for process in process_identity.CONTROL_PROCESSES}
    assert names <= {file.name for file in (tmp_path / "internal").iterdir()}


@contextmanager
def listener(received: list[bytes]) -> Iterator[int]:
    """Listens in the place of a broker that was not started, and keeps the first bytes of each connection."""

    class Keeping(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            received.append(self.request.recv(1 << 16))

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Keeping) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("security", [MUTUAL_TLS, TLS_OR_SECRET])
def test_a_program_on_the_ports_of_a_broker_that_was_never_started_is_not_sent_the_secret(
    cluster: Cluster, settings: object, security: str
) -> None:
    settings.INTERNAL_SECURITY = security  # type: ignore[attr-defined]
    Path(cluster.control_secret_file).write_text("much-of-a-secret")
    host = cluster.brokers.first().host
    Host.objects.filter(pk=host.pk).update(internal_host="127.0.0.1")
    added = membership.add_broker(acting=system_actor("test"), cluster=cluster, host=host)
    received: list[bytes] = []
    with listener(received) as port:
        Broker.objects.filter(pk=added.pk).update(internal_port=port, admin_port=port)
        Broker.objects.filter(cluster=cluster).exclude(pk=added.pk).update(removed_at=timezone.now())
        with pytest.raises(Unavailable):
            admin_client.send_as_cluster(cluster, DescribeClusterRequest(version=0))
        asked = [
            (target, DescribeClusterRequest(version=0)) for target in scatter.targets(cluster, "penstock").values()
        ]
        assert not scatter.scatter(asked).responses
        assert not observe.query_all(observe.targets_of_cluster(cluster), "/v1/status").bodies
    assert len(received) == 3
    assert all(data[:1] == TLS_HANDSHAKE for data in received)


def test_a_broker_that_was_never_started_is_asked_by_the_secret_where_nothing_speaks_tls(
    cluster: Cluster, settings: object
) -> None:
    settings.INTERNAL_SECURITY = PLAINTEXT  # type: ignore[attr-defined]
    Broker.objects.update(process_has_tls=None)
    assert {broker.certified_as for broker in cluster.brokers.all()} == {None}


def test_the_pipeline_sends_the_secret_of_an_upgrade_only_to_brokers_that_were_started(cluster: Cluster) -> None:
    first, second = cluster.brokers.order_by("number")
    Broker.objects.filter(pk=first.pk).update(process_has_tls=False)
    Broker.objects.filter(pk=second.pk).update(process_has_tls=None, process_state=ProcessState.UNKNOWN)
    (source,) = usage_sources()
    assert not source.certificate_file
    assert source.bootstrap == "{}:{}".format(*first.internal_address)
