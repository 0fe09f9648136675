"""Broker processes for tests: started on free ports over a real ZooKeeper, stopped when the test is done.

with EngineCluster(zookeeper_address, tmp_path, brokers=1) as cluster:
    instance = cluster.create_instance("ins-aaaaaaaa")          # waits until every broker acknowledged it
    instance.bootstrap                                          # "127.0.0.1:23011"
    cluster.brokers[0].admin("/v1/status")
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from brokers.contract import paths
from brokers.contract.certificates import CertificatesDocument
from brokers.contract.documents import (
    InstanceAck,
    InstanceDocument,
    InstanceSettings,
    change_to_json,
    config_change_to_json,
    config_to_json,
)
from brokers.contract.process import BrokerProcessSettings
from brokers.contract.process_identity import CA_FILE, MUTUAL_TLS, TLS_OR_SECRET, control
from brokers.contract.process_identity import broker as broker_identity
from brokers.contract.routes import DEFAULT_ROUTE, PLAINTEXT, RouteDocument
from brokers.contract.upstream import UpstreamSettings
from brokers.contract.zookeeper_tls import ZooKeeperTls
from brokers.engine.cluster.zookeeper import RECONNECT_DELAY_S_MAX
from tests.testkit.coordination import coordinator_overrides
from tests.testkit.ports import unused_port
from tests.testkit.quotas import quota_at
from tests.testkit.tls import process_context, process_file

ROOT = Path(__file__).resolve().parents[2]
HOST = "127.0.0.1"
READY_TIMEOUT_S = 30.0
POLL_S = 0.02
MB = 1_000_000


def eventually(condition: Callable[[], Any], what: str, timeout_s: float = READY_TIMEOUT_S) -> Any:
    """Returns the first true result of `condition`. Fails the test if there is none in time."""
    deadline = time.monotonic() + timeout_s
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {timeout_s} s")
        time.sleep(POLL_S)


@dataclass(frozen=True, slots=True)
class EngineHost:
    """Host of a broker: the address where it listens, and the prefix of commands that run there."""

    address: str = HOST
    command_prefix: Sequence[str] = ()


@dataclass(slots=True)
class BrokerProcess:
    """A running or killed `python -m brokers.engine`."""

    settings: BrokerProcessSettings
    settings_file: Path
    log_file: Path
    secret: str
    process: subprocess.Popen[bytes] | None = None
    module: Sequence[str] = ("brokers.engine",)
    host: EngineHost = EngineHost()

    @property
    def pid(self) -> int:
        assert self.process is not None, "the broker was not started"
        return self.process.pid

    def start(self) -> None:
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.host.command_prefix, sys.executable, "-m", *self.module, "--settings", str(self.settings_file)],
                cwd=ROOT,
                stderr=log,
                stdout=log,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )

    def wait_until_ready(self) -> None:
        def ready() -> bool:
            if self.process is not None and self.process.poll() is not None:
                raise AssertionError(f"the broker ended with {self.process.returncode}: {self.log_tail()}")
            return self.status_of("/readyz") == 200

        eventually(ready, "the broker is ready")

    @property
    def _admin_address(self) -> str:
        return f"{self.settings.internal_host}:{self.settings.admin_port}"

    def status_of(self, path: str) -> int | None:
        address = f"http://{self._admin_address}{path}"
        try:
            with urllib.request.urlopen(address, timeout=2) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return None

    def admin(self, path: str) -> Any:
        """Returns the JSON answer of the admin port."""
        address = f"{self._admin_address}{path}"
        if self.settings.internal_security == MUTUAL_TLS:
            context = process_context(Path(self.settings.internal_ca_file).parent, control("command"))
            with urllib.request.urlopen(f"https://{address}", timeout=5, context=context) as answer:
                return json.load(answer)
        request = urllib.request.Request(f"http://{address}", headers={"Authorization": f"Bearer {self.secret}"})
        with urllib.request.urlopen(request, timeout=5) as answer:
            return json.load(answer)

    def stop(self, timeout_s: float = 10.0) -> int:
        """Sends SIGTERM; returns the exit code."""
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout_s)
        finally:
            self.kill()

    def kill(self) -> None:
        """Sends SIGKILL, like a crash."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def log_lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log_file.read_text().splitlines() if line.startswith("{")]

    def log_tail(self) -> str:
        return self.log_file.read_text()[-2_000:]


@dataclass(slots=True)
class TestInstance:
    """An instance as its owner sees it. `bootstrap` is a Kafka client's bootstrap.servers."""

    __test__ = False

    id: str
    document: InstanceDocument

    @property
    def bootstrap(self) -> str:
        return ",".join(self.document.endpoints[broker] for broker in sorted(self.document.endpoints))


@dataclass
class EngineCluster:
    """A cluster of `brokers` processes with data below `directory` and a chroot of its own. A context manager."""

    zookeeper_address: str
    directory: Path
    size: int = 1
    overrides: dict[str, str] = field(default_factory=dict)
    ports: Callable[[], int] = unused_port
    log_dirs: int = 1
    session_timeout_ms: int = 6_000
    # File with key and certificate of all brokers (`testkit.tls`).
    certificate: Path | None = None
    cluster_id: str = ""
    # Authentication of internal connections. With `tls` alone the secret is not accepted: tests then show a
    # certificate.
    internal_security: str = TLS_OR_SECRET
    # Address of ZooKeeper for brokers, if it differs from that of the tests, and their TLS settings for it.
    broker_zookeeper_address: str = ""
    zookeeper_tls: ZooKeeperTls | None = None
    # Module that brokers run, with its arguments.
    module: Sequence[str] = ("brokers.engine",)
    # Rack of each broker, in the order of their ids; empty for no racks.
    racks: Sequence[str] = ()
    # Host of each broker, in the order of their ids; empty if all run on this host.
    hosts: Sequence[EngineHost] = ()
    # Address of the internal and admin listeners; by default that of the host.
    internal_host: str = ""
    # Cluster in front of which the brokers are gateways.
    upstream: UpstreamSettings | None = None

    def __post_init__(self) -> None:
        self.cluster_id = self.cluster_id or f"test-{secrets.token_hex(4)}"
        self.secret = secrets.token_hex(16)
        self.internal_tls = self.directory / "internal_tls"
        self.instances: dict[str, TestInstance] = {}
        self.brokers = [self._prepare(broker_id) for broker_id in range(1, self.size + 1)]
        # kazoo doubles its wait with each attempt, which would delay measurements of restarts by up to a minute.
        self.zookeeper = KazooClient(
            f"{self.zookeeper_address}{paths.chroot(self.cluster_id)}",
            connection_retry={"max_tries": -1, "max_delay": RECONNECT_DELAY_S_MAX},
        )

    def _prepare(self, broker_id: int) -> BrokerProcess:
        home = self.directory / f"broker-{broker_id}"
        home.mkdir(parents=True)
        secret_file = home / "secret"
        secret_file.write_text(self.secret)
        host = self.hosts[broker_id - 1] if self.hosts else EngineHost()
        settings = BrokerProcessSettings(
            broker_id=broker_id,
            cluster_id=self.cluster_id,
            zookeeper=f"{self.broker_zookeeper_address or self.zookeeper_address}{paths.chroot(self.cluster_id)}",
            zookeeper_ca_file=self.zookeeper_tls.ca_file if self.zookeeper_tls else "",
            zookeeper_certificate_file=self.zookeeper_tls.certificate_file if self.zookeeper_tls else "",
            data_dirs=tuple(str(home / f"data{number or ''}") for number in range(self.log_dirs)),
            bind_host=host.address,
            internal_host=self.internal_host or host.address,
            internal_port=self.ports(),
            admin_port=self.ports(),
            rack=self.racks[broker_id - 1] if self.racks else None,
            control_secret_file=str(secret_file),
            session_timeout_ms=self.session_timeout_ms,
            tls_certificate_file=str(self.certificate or ""),
            internal_security=self.internal_security,
            internal_certificate_file=str(process_file(self.internal_tls, broker_identity(self.cluster_id, broker_id))),
            internal_ca_file=str(self.internal_tls / CA_FILE),
            upstream_file=self._upstream_file(home),
            overrides=coordinator_overrides(self.size) | self.overrides,
        )
        settings_file = home / "settings.json"
        settings.write(settings_file)
        return BrokerProcess(settings, settings_file, home / "broker.log", self.secret, module=self.module, host=host)

    def _upstream_file(self, home: Path) -> str:
        if self.upstream is None:
            return ""
        file = home / "upstream.json"
        file.touch(mode=0o600)
        file.write_text(self.upstream.to_json())
        return str(file)

    def __enter__(self) -> EngineCluster:
        try:
            for broker in self.brokers:
                broker.start()
            for broker in self.brokers:
                broker.wait_until_ready()
            self.zookeeper.start(timeout=10)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        for broker in self.brokers:
            if broker.process is not None and broker.process.poll() is None:
                broker.process.send_signal(signal.SIGTERM)
        for broker in self.brokers:
            broker.stop()
        self.zookeeper.stop()
        self.zookeeper.close()

    def create_instance(
        self,
        instance_id: str,
        *,
        produce_bps: int = 1_000 * MB,
        consume_bps: int = 1_000 * MB,
        settings: InstanceSettings | None = None,
        served_by: Collection[int] | None = None,
        security: str = PLAINTEXT,
        **fields: Any,
    ) -> TestInstance:
        """Publishes the document in the way of the reconciler and waits for the acknowledgement of every broker, or of
        those that serve it. It has one route, with this security. `fields` are further ones of the document.
        """
        ids = [broker.settings.broker_id for broker in self.brokers]
        ports_by_broker = {id: self.ports() for id in ids if served_by is None or id in served_by}
        address_by_broker = {broker.settings.broker_id: broker.host.address for broker in self.brokers}
        endpoints = {broker: f"{address_by_broker[broker]}:{port}" for broker, port in ports_by_broker.items()}
        route = RouteDocument(name=DEFAULT_ROUTE, security=security, ports=ports_by_broker, endpoints=endpoints)
        document = InstanceDocument(
            generation=1,
            produce_bps=produce_bps,
            consume_bps=consume_bps,
            capacity_bytes=1_000_000 * MB,
            endpoints=endpoints,
            ports=ports_by_broker if security == PLAINTEXT else {},
            routes=() if security == PLAINTEXT else (route,),
            settings=settings or InstanceSettings(),
            **fields,
        )
        self.zookeeper.ensure_path(paths.INSTANCES)
        self.zookeeper.create(paths.instance(instance_id), document.to_json())
        return self._announce(instance_id, document)

    def update_instance(self, instance: TestInstance, **changes: Any) -> TestInstance:
        """Publishes changed fields of the document under the next generation."""
        document = replace(instance.document, generation=instance.document.generation + 1, **changes)
        self.zookeeper.set(paths.instance(instance.id), document.to_json())
        return self._announce(instance.id, document)

    def delete_instance(self, instance: TestInstance) -> None:
        """Deletes the document, and waits until no broker acknowledges it."""
        self.zookeeper.delete(paths.instance(instance.id), recursive=True)
        self._change(f"instances/{instance.id}")
        eventually(lambda: not self._acks(instance.id), f"{instance.id} is given up")

    def put_certificates(self, instance: TestInstance, document: CertificatesDocument) -> None:
        """Publishes certificates of an instance's first route in the way of the control plane. Brokers read them a
        moment later.
        """
        path = paths.instance_route_certificates(instance.id, DEFAULT_ROUTE)
        self.zookeeper.ensure_path(path)
        self.zookeeper.set(path, document.to_json())
        self._change(f"instances/{instance.id}/certificates/{DEFAULT_ROUTE}")

    def set_quota(self, instance_id: str, limits: dict[str, str], *, user: str | None, client_id: str | None) -> None:
        """Sets the quota of `users/<user>/clients/<client id>` of the instance, and waits for its brokers; None is the
        default.
        """
        entity = paths.quota_entity(instance_id, user, client_id, has_user=True, has_client=True)
        self.zookeeper.ensure_path(f"/config/{entity}")
        self.zookeeper.set(f"/config/{entity}", config_to_json(limits))
        self.zookeeper.create(paths.CONFIG_CHANGE_PREFIX, config_change_to_json(entity), sequence=True)
        entity_names = {"user": user, "client-id": client_id}
        expected_limits = {key: float(value) for key, value in limits.items()}
        for broker, port in self.instances[instance_id].document.effective_routes[0].ports.items():
            eventually(
                lambda port=port: asyncio.run(quota_at(port, entity_names)) == expected_limits,
                f"broker {broker} knows the quota",
            )

    def _announce(self, instance_id: str, document: InstanceDocument) -> TestInstance:
        self._change(f"instances/{instance_id}")
        expected_acks = len(document.serving)

        def acknowledged() -> bool:
            acks = self._acks(instance_id)
            return sum(ack.generation == document.generation and ack.listening for ack in acks) == expected_acks

        try:
            eventually(acknowledged, f"{instance_id} is acknowledged")
        except AssertionError as timeout:
            raise AssertionError(f"{timeout}: {self._acks(instance_id)}") from None
        instance = self.instances[instance_id] = TestInstance(instance_id, document)
        return instance

    def _change(self, path: str) -> None:
        self.zookeeper.ensure_path(paths.CHANGES)
        self.zookeeper.create(paths.CHANGE_PREFIX, change_to_json([path]), sequence=True)

    def _acks(self, instance_id: str) -> list[InstanceAck]:
        parent = paths.instance_acks(instance_id)
        acks = []
        try:
            for child in self.zookeeper.get_children(parent):
                with suppress(NoNodeError):  # Brokers remove theirs meanwhile.
                    if raw := self.zookeeper.get(f"{parent}/{child}")[0]:
                        acks.append(InstanceAck.from_json(raw))
        except NoNodeError:
            return []
        return acks
