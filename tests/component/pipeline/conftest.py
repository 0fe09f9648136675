"""One Spark session for all pipeline tests, because its start is expensive, and one broker for those of archives."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from billing.pipeline import spark as pipeline_spark
from config.embedded.java import Java
from instances.models import Instance
from tests.component.pipeline.archived import INSTANCE, Sender
from tests.testkit.api_cases import make_tenant
from tests.testkit.engine import EngineCluster
from tests.testkit.fleet import make_running
from tests.testkit.tls import make_certificate

PLANTED = "planted-password-of-mail"


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, java: Java) -> Iterator[SparkSession]:
    """A session with the pipeline's settings, on two local cores."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_HOME", str(java.spark_home))
        patch.setenv("MAIL_PASSWORD", PLANTED)
        session = pipeline_spark.session(master="local[2]", local_dir=str(tmp_path_factory.mktemp("spark")))
        yield session
        session.stop()


@pytest.fixture(scope="module")
def cluster(zookeeper_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineCluster]:
    """One broker with a certificate, whose authority is in `ca.pem` of the cluster's directory."""
    directory = tmp_path_factory.mktemp("archived")
    certificate = make_certificate(directory)
    with EngineCluster(zookeeper_address, directory, certificate=certificate) as running_cluster:
        running_cluster.create_instance(INSTANCE)
        yield running_cluster


@pytest.fixture()
def bootstrap(cluster: EngineCluster) -> str:
    return cluster.instances[INSTANCE].bootstrap


@pytest.fixture()
def instance(bootstrap: str) -> Instance:
    made = make_running(make_tenant(), id=INSTANCE)
    made.routes.update(endpoints={"1": bootstrap})
    return made


@pytest.fixture()
def root(settings: Any, tmp_path: Path) -> Path:
    settings.ARCHIVE_ROOT = tmp_path / "archives"
    return settings.ARCHIVE_ROOT


@pytest.fixture()
def topic(bootstrap: str, request: pytest.FixtureRequest) -> str:
    """Creates a topic of three partitions named after the test. Retention is off, because its records are of last
    March.
    """
    name = f"orders-{zlib.crc32(request.node.name.encode())}"
    client = AdminClient({"bootstrap.servers": bootstrap})
    for future in client.create_topics([NewTopic(name, 3, 1, config={"retention.ms": "-1"})]).values():
        future.result(30)
    return name


@pytest.fixture()
def sender(bootstrap: str, topic: str) -> Sender:
    return Sender(bootstrap, topic, [])
