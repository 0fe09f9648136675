"""Session fixtures for real services. Each starts in about a second, on first use, and ends with the test process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from config.embedded.java import Java, find_java
from config.embedded.postgres import EmbeddedPostgres
from config.embedded.process import wait_until
from config.embedded.redis import EmbeddedRedis
from config.embedded.zookeeper import EmbeddedZooKeeper
from tests.testkit.own_zookeeper import START_TIMEOUT_S, own_zookeeper

REDIS_PASSWORD = "tests-only"


@pytest.fixture(scope="session")
def services_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of the data of this session's embedded services."""
    return tmp_path_factory.mktemp("services")


@pytest.fixture(scope="session")
def java(services_dir: Path) -> Java:
    """The Java for ZooKeeper and Spark."""
    return find_java(services_dir / "java")


@pytest.fixture(scope="session")
def zookeeper_server(services_dir: Path, java: Java) -> Iterator[EmbeddedZooKeeper]:
    """A ZooKeeper that a test may stop and start again (and must leave running)."""
    with own_zookeeper(services_dir, java) as server:
        yield server


@pytest.fixture(scope="session")
def zookeeper_address(zookeeper_server: EmbeddedZooKeeper) -> str:
    """Address `host:port` of a running ZooKeeper. Use a chroot of your own: the session shares the server."""
    return zookeeper_server.address


@pytest.fixture(scope="session")
def postgres(services_dir: Path) -> Iterator[EmbeddedPostgres]:
    """A running PostgreSQL; `postgres.url` is its address. Django's test database lives in it too."""
    server = EmbeddedPostgres(services_dir / "postgres", log_file=services_dir / "postgres.log", durable=False)
    server.start()
    wait_until(server.is_ready, child=server.child, timeout_s=START_TIMEOUT_S)
    yield server
    server.child.stop()


@pytest.fixture(scope="session")
def redis_server(services_dir: Path) -> Iterator[EmbeddedRedis]:
    """A Redis that a test may stop and start again (and must leave running)."""
    log_file = services_dir / "redis.log"
    server = EmbeddedRedis(services_dir / "redis", password=REDIS_PASSWORD, log_file=log_file)
    server.start()
    wait_until(server.is_ready, child=server.child, timeout_s=START_TIMEOUT_S)
    yield server
    server.child.stop()


@pytest.fixture(scope="session")
def redis_url(redis_server: EmbeddedRedis) -> str:
    """Address `unix://…` of a running Redis, which the session shares."""
    return redis_server.url
