"""Gateway processes for tests, and clusters that they are put in front of: of Penstock's brokers, or an Apache Kafka.

with penstock_upstream(zookeeper_address, tmp_path) as upstream:
    with GatewayProcess(tmp_path, upstream, [sasl_instance("ins-aaaaaaaa", upstream)]) as gateway:
        gateway.bootstrap("ins-aaaaaaaa")
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.testkit.engine import HOST, ROOT, EngineCluster, eventually
from tests.testkit.ports import unused_port

JARS = "PENSTOCK_APACHE_KAFKA_JARS"
# Id of the instance of a Penstock cluster that is the upstream: its one principal is an anonymous client.
UPSTREAM_INSTANCE = "ins-upstream"
PASSWORD = "a-password"
START_TIMEOUT_S = 90.0


@dataclass(frozen=True)
class Upstream:
    """A running cluster. `kill` kills the broker of one node without warning, `start` starts it again."""

    name: str
    bootstrap: str
    nodes: Sequence[int]
    kill: Callable[[int], None]
    start: Callable[[int], None]


@contextmanager
def penstock_upstream(zookeeper_address: str, directory: Path, size: int = 2) -> Iterator[Upstream]:
    """Two of Penstock's brokers with an open listener for one instance."""
    with EngineCluster(zookeeper_address, directory, size=size, session_timeout_ms=4_000) as cluster:
        instance = cluster.create_instance(UPSTREAM_INSTANCE)

        def start(node: int) -> None:
            cluster.brokers[node - 1].start()
            cluster.brokers[node - 1].wait_until_ready()

        yield Upstream(
            "penstock",
            instance.bootstrap,
            list(range(1, size + 1)),
            lambda node: cluster.brokers[node - 1].kill(),
            start,
        )


@contextmanager
def apache_kafka_upstream(directory: Path) -> Iterator[Upstream]:
    """One Apache Kafka with a controller of its own (KRaft); skips the test where it cannot be run."""
    jars, java = os.environ.get(JARS), shutil.which("java")
    if not jars or not list(Path(jars).glob("kafka_2.1*.jar")):
        pytest.skip(f"{JARS} names no folder with Apache Kafka's jars")
    if java is None:
        pytest.skip("no Java here")
    command = [java, "-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*"]
    directory.mkdir(parents=True)
    port, controller_port = unused_port(), unused_port()
    file = directory / "server.properties"
    settings = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@{HOST}:{controller_port}",
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": directory / "data",
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 5,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.num.partitions": 5,
        "transaction.state.log.min.isr": 1,
        "group.initial.rebalance.delay.ms": 0,
    }
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
    subprocess.run(
        [*command, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(file)],
        check=True,
        cwd=directory,
        capture_output=True,
        timeout=START_TIMEOUT_S,
    )
    running: list[subprocess.Popen[bytes]] = []

    def start(_node: int) -> None:
        with (directory / "kafka.log").open("ab") as log:
            running.append(
                subprocess.Popen(
                    [*command, "kafka.Kafka", str(file)], cwd=directory, stdout=log, stderr=subprocess.STDOUT
                )
            )
        eventually(lambda: listens(port), "Apache Kafka listens", START_TIMEOUT_S)

    def kill(_node: int) -> None:
        running[-1].kill()
        running[-1].wait()

    try:
        start(1)
        yield Upstream("apache-kafka", f"{HOST}:{port}", [1], kill, start)
    finally:
        kill(1)


def listens(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True


def gateway_instance(instance_id: str, nodes: Sequence[int], **fields: Any) -> dict[str, Any]:
    """Returns an instance of the settings file, by default with a superuser `app` and the port of each node."""
    ports = {node: unused_port() for node in nodes}
    return {
        "id": instance_id,
        "bandwidth_mb_s": 1_000,
        "nodes": [{"node": node, "port": port, "advertised": f"{HOST}:{port}"} for node, port in ports.items()],
        "users": [{"name": "app", "password": PASSWORD, "superuser": True}],
        "default_partitions": 3,
        **fields,
    }


@dataclass
class GatewayProcess:
    """A running `python -m brokers.engine.upstream` with these instances; a context manager."""

    directory: Path
    upstream_bootstrap: str
    instances: list[dict[str, Any]]
    # Further settings of the upstream, and of the whole file.
    upstream: dict[str, Any] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def __enter__(self) -> GatewayProcess:
        self.directory.mkdir(parents=True, exist_ok=True)
        file = self.directory / "gateway.json"
        file.touch(mode=0o600)
        upstream = {"bootstrap_servers": self.upstream_bootstrap, **self.upstream}
        file.write_text(json.dumps({"upstream": upstream, "instances": self.instances, **self.more}))
        self.log_file = self.directory / "gateway.log"
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "brokers.engine.upstream", "--settings", str(file)],
                cwd=ROOT,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )
        eventually(self._is_ready, "the gateway is ready")
        return self

    def _is_ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log_file.read_text()[-2_000:]
        return "gateway_started" in self.log_file.read_text()

    def __exit__(self, *_: object) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        try:
            assert self.process.wait(20) == 0, self.log_file.read_text()[-2_000:]
        finally:
            self.process.kill()
            self.process.wait()

    def log_lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log_file.read_text().splitlines() if line.startswith("{")]

    def _instance(self, instance_id: str) -> dict[str, Any]:
        return next(instance for instance in self.instances if instance["id"] == instance_id)

    def bootstrap(self, instance_id: str) -> str:
        return ",".join(node["advertised"] for node in self._instance(instance_id)["nodes"])

    def port(self, instance_id: str, node: int = 1) -> int:
        return next(
            node_settings["port"]
            for node_settings in self._instance(instance_id)["nodes"]
            if node_settings["node"] == node
        )

    def client(self, instance_id: str, user: str = "app", password: str = PASSWORD, **fields: Any) -> dict[str, Any]:
        """Returns the configuration of a client of confluent-kafka."""
        return {
            "bootstrap.servers": self.bootstrap(instance_id),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": user,
            "sasl.password": password,
            **fields,
        }
