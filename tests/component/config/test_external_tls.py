"""External services by TLS addresses: each is asked for a certificate that is believed, and serves the product.

ZooKeeper speaks TLS itself. PostgreSQL and Valkey are packaged without it: the real servers stand behind a program that
speaks it for them, as is usual for Redis.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import dj_database_url
import psycopg
import pytest
from django.db import DEFAULT_DB_ALIAS, connections
from kazoo.security import OPEN_ACL_UNSAFE
from kombu import Connection as QueueConnection
from kombu.exceptions import OperationalError

from billing import dsn
from brokers.contract.process_identity import broker
from brokers.contract.zookeeper_access import CLUSTERS_ROOT, Credentials, TreeAccess
from brokers.contract.zookeeper_tls import ZooKeeperTls
from brokers.engine.cluster.errors import StoreUnavailable
from brokers.engine.cluster.tree import Create
from brokers.engine.cluster.zookeeper import ZooKeeperTree
from brokers.infra import zookeeper
from brokers.models import Cluster
from config.embedded.java import Java
from config.embedded.postgres import DATABASE, SOCKET_NAME, USER, EmbeddedPostgres
from config.embedded.process import StartFailed, free_port, wait_until
from config.embedded.redis import EmbeddedRedis
from config.embedded.zookeeper_acls import ForeignEnsembleAcls
from config.environment import Environment
from config.supervisor import services
from config.supervisor.external import check
from config.supervisor.options import UpOptions
from config.supervisor.state import StateDirectory
from config.zookeeper_server import connect
from tests.testkit.engine import EngineCluster
from tests.testkit.own_zookeeper import START_TIMEOUT_S
from tests.testkit.tls import make_certificate, process_file
from tests.testkit.tls_front import TlsFront, tls_front_of
from tests.testkit.tls_zookeeper import TlsZooKeeper

SESSION_TIMEOUT_MS = 10_000
CONTROL, BROKER = Credentials("control", "of-control"), Credentials("broker", "of-brokers")
ACCESS = TreeAccess(broker=BROKER.digest, control=CONTROL.digest)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the certificate file of all services and clients in this module, with its authority beside it."""
    return process_file(tmp_path_factory.mktemp("tls"), broker("services", 1))


@pytest.fixture(scope="module")
def authority(certificate: Path) -> Path:
    return certificate.with_name("ca.pem")


@pytest.fixture(scope="module")
def another_authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificate(tmp_path_factory.mktemp("others")).with_name("ca.pem")


# --- PostgreSQL -----------------------------------------------------------------------------------------------------


@pytest.fixture()
def secured_postgres(postgres: EmbeddedPostgres, certificate: Path) -> Iterator[TlsFront]:
    with tls_front_of(str(postgres.socket_dir / SOCKET_NAME), certificate, is_postgres=True) as front:
        yield front


def postgres_url(front: TlsFront, authority: Path, host: str = "127.0.0.1") -> str:
    query = f"sslmode=verify-full&sslrootcert={quote(str(authority), safe='')}"
    return f"postgres://{USER}@{host}:{front.port}/{DATABASE}?{query}"


def test_postgres_is_asked_for_a_certificate_that_is_believed(
    secured_postgres: TlsFront, authority: Path, another_authority: Path
) -> None:
    check("DATABASE_URL", postgres_url(secured_postgres, authority))
    assert secured_postgres.handshake_count == 1
    with pytest.raises(StartFailed, match="certificate verify failed"):
        check("DATABASE_URL", postgres_url(secured_postgres, another_authority))


def test_the_pipeline_asks_postgres_for_what_the_rest_of_the_product_does(
    secured_postgres: TlsFront, authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed = dj_database_url.parse(postgres_url(secured_postgres, authority))
    # Not `django.db.connection`, a proxy: what is patched of it would be deleted afterwards.
    connection = connections[DEFAULT_DB_ALIAS]
    monkeypatch.setattr(connection, "settings_dict", {**connection.settings_dict, **parsed})
    with psycopg.connect(dsn.conninfo()) as link:
        assert link.execute("SELECT 1").fetchone() == (1,)
    assert secured_postgres.handshake_count == 1
    assert psycopg.conninfo.conninfo_to_dict(dsn.conninfo())["sslmode"] == "verify-full"


# --- Redis ----------------------------------------------------------------------------------------------------------


@pytest.fixture()
def secured_redis(redis_server: EmbeddedRedis, certificate: Path) -> Iterator[TlsFront]:
    with tls_front_of(str(redis_server.socket), certificate) as front:
        yield front


def redis_address(server: EmbeddedRedis, front: TlsFront, authority: Path) -> str:
    ca = quote(str(authority), safe="")
    return f"rediss://:{quote(server.password, safe='')}@127.0.0.1:{front.port}/0?ssl_ca_certs={ca}"


def test_redis_is_asked_for_a_certificate_that_is_believed(
    redis_server: EmbeddedRedis, secured_redis: TlsFront, authority: Path, another_authority: Path
) -> None:
    check("REDIS_URL", redis_address(redis_server, secured_redis, authority))
    assert secured_redis.handshake_count == 1
    with pytest.raises(StartFailed, match="certificate verify failed"):
        check("REDIS_URL", redis_address(redis_server, secured_redis, another_authority))


def queue_url(address: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("REDIS_URL", address)
    return Environment.read().celery_broker_url


def test_the_queue_speaks_tls_as_well(
    redis_server: EmbeddedRedis,
    secured_redis: TlsFront,
    authority: Path,
    another_authority: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    good = queue_url(redis_address(redis_server, secured_redis, authority), monkeypatch)
    with QueueConnection(good) as queue:
        queue.default_channel.client.ping()
    handshakes_before = secured_redis.handshake_count
    assert handshakes_before >= 1
    bad = queue_url(redis_address(redis_server, secured_redis, another_authority), monkeypatch)
    with QueueConnection(bad) as queue, pytest.raises(OperationalError, match="certificate verify failed"):
        queue.default_channel.client.ping()
    assert secured_redis.handshake_count == handshakes_before


# --- ZooKeeper ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def secured_zookeeper(
    tmp_path_factory: pytest.TempPathFactory, java: Java, certificate: Path, authority: Path
) -> Iterator[TlsZooKeeper]:
    """A ZooKeeper with TLS that requires client certificates."""
    home = tmp_path_factory.mktemp("zookeeper")
    server = TlsZooKeeper(
        home / "zookeeper",
        port=free_port(),
        secure_port=free_port(),
        certificate=certificate,
        authority=authority,
        java=java,
        log_file=home / "zookeeper.log",
    )
    server.start()
    try:
        wait_until(server.is_ready, child=server.child, timeout_s=START_TIMEOUT_S)
        yield server
    finally:
        server.child.stop()


@pytest.fixture(scope="module")
def own_tls(certificate: Path, authority: Path) -> ZooKeeperTls:
    return ZooKeeperTls(ca_file=str(authority), certificate_file=str(certificate))


def test_a_zookeeper_that_is_not_believed_is_refused_before_anything_starts(
    secured_zookeeper: TlsZooKeeper,
    own_tls: ZooKeeperTls,
    another_authority: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    address = secured_zookeeper.secure_address
    monkeypatch.setenv("PENSTOCK_ZOOKEEPER_CA_FILE", own_tls.ca_file)
    monkeypatch.setenv("PENSTOCK_ZOOKEEPER_CONTROL_CERTIFICATE_FILE", own_tls.certificate_file)
    check("ZOOKEEPER_URL", address)
    monkeypatch.setenv("PENSTOCK_ZOOKEEPER_CA_FILE", str(another_authority))
    with pytest.raises(StartFailed, match="certificate verify failed"):
        check("ZOOKEEPER_URL", address)
    connect(address, own_tls, 5.0).close()


async def test_brokers_keep_their_tree_in_a_zookeeper_under_tls(
    secured_zookeeper: TlsZooKeeper, own_tls: ZooKeeperTls
) -> None:
    hosts = f"{secured_zookeeper.secure_address}/under-tls"
    tree = ZooKeeperTree(hosts, session_timeout_ms=SESSION_TIMEOUT_MS, tls=own_tls)
    await tree.start()
    try:
        await tree.commit([Create("/node", b"kept")])
        node = await tree.get("/node")
        assert node is not None
        assert node.data == b"kept"
    finally:
        await tree.stop()


async def test_a_zookeeper_that_asks_for_certificates_lets_nobody_in_without(
    secured_zookeeper: TlsZooKeeper, own_tls: ZooKeeperTls
) -> None:
    nameless = replace(own_tls, certificate_file="")
    tree = ZooKeeperTree(secured_zookeeper.secure_address, session_timeout_ms=1_000, tls=nameless)
    with pytest.raises(StoreUnavailable):
        await asyncio.wait_for(tree.start(), 30)


@pytest.mark.django_db
def test_the_control_plane_and_the_access_lists_go_under_tls_too(
    secured_zookeeper: TlsZooKeeper, own_tls: ZooKeeperTls, settings: object, tmp_path: Path
) -> None:
    ForeignEnsembleAcls([CONTROL, BROKER], ACCESS, own_tls).apply(secured_zookeeper.secure_address)
    secret = tmp_path / "control"
    secret.write_text(f"{CONTROL.user}:{CONTROL.password}")
    other = tmp_path / "broker"
    other.write_text(f"{BROKER.user}:{BROKER.password}")
    settings.ZOOKEEPER_TLS = own_tls  # type: ignore[attr-defined]
    settings.ZOOKEEPER_CONTROL_FILE, settings.ZOOKEEPER_BROKER_FILE = str(secret), str(other)  # type: ignore[attr-defined]
    cluster = Cluster.objects.create(name="secured", zookeeper=secured_zookeeper.secure_address)
    try:
        client = zookeeper.session(cluster)
        assert client.get_children(CLUSTERS_ROOT) is not None
        client.set_acls(CLUSTERS_ROOT, OPEN_ACL_UNSAFE)  # for the next test
    finally:
        zookeeper.close_all()


def test_a_broker_serves_with_its_zookeeper_under_tls(
    secured_zookeeper: TlsZooKeeper, own_tls: ZooKeeperTls, tmp_path: Path
) -> None:
    with EngineCluster(
        secured_zookeeper.address,
        tmp_path,
        broker_zookeeper_address=secured_zookeeper.secure_address,
        zookeeper_tls=own_tls,
    ) as cluster:
        cluster.create_instance("ins-aaaaaaaa")
        assert cluster.brokers[0].admin("/v1/status")["instances"] == 1


def test_settings_of_tls_without_a_zookeeper_of_ones_own_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ZOOKEEPER_URL", raising=False)
    monkeypatch.setenv("PENSTOCK_ZOOKEEPER_CA_FILE", "/ca.pem")
    with pytest.raises(StartFailed, match="ZOOKEEPER_URL does not name one"):
        services.plan(UpOptions(state_dir=tmp_path), StateDirectory(tmp_path))
