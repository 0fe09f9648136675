"""A whole broker inside the test's own loop, over a ZooKeeper that is a dictionary (`fake_store`): real sockets,
real logs.

async with InProcessBroker(tmp_path) as broker:
    port = await broker.create_instance("ins-aaaaaaaa")
    client = await broker.client(port)
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import replace
from pathlib import Path
from typing import Any

from brokers.contract import paths
from brokers.contract.certificates import CertificatesDocument
from brokers.contract.documents import (
    InstanceDocument,
    InstanceSettings,
    change_to_json,
    config_change_to_json,
    config_to_json,
)
from brokers.contract.process import BrokerProcessSettings
from brokers.contract.process_identity import CA_FILE, MUTUAL_TLS
from brokers.contract.process_identity import broker as broker_identity
from brokers.contract.routes import DEFAULT_ROUTE, PLAINTEXT, RouteDocument
from brokers.engine import lifecycle
from brokers.engine.assembly.broker import Broker
from brokers.engine.cluster.tree import Create, Delete, Operation, Set
from brokers.engine.config import EngineConfig, from_settings
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from tests.testkit.coordination import coordinator_overrides
from tests.testkit.fake_store import FakeEnsemble, FakeTree
from tests.testkit.ports import unused_port
from tests.testkit.tls import process_file
from tests.testkit.wire import HOST, WireClient

SECRET = "a-secret-for-tests"
TIMEOUT_S = 60.0
UNLIMITED_BPS = 10**12


def engine_config(
    directory: Path, broker_id: int, overrides: dict[str, str], log_dirs: int = 1, rack: str | None = None
) -> EngineConfig:
    directory.mkdir(parents=True, exist_ok=True)
    secret_file = directory / "secret"
    secret_file.write_text(SECRET)
    return from_settings(
        BrokerProcessSettings(
            broker_id=broker_id,
            cluster_id="test",
            zookeeper="unused:1",
            data_dirs=tuple(str(directory / f"data{number or ''}") for number in range(log_dirs)),
            bind_host=HOST,
            internal_host=HOST,
            internal_port=unused_port(),
            admin_port=unused_port(),
            control_secret_file=str(secret_file),
            rack=rack,
            overrides=overrides,
        )
    )


class InProcessBroker:
    """A broker with all its rooms in `broker`. Several of them over one `ensemble` are a cluster."""

    def __init__(
        self,
        directory: Path,
        *,
        broker_id: int = 1,
        ensemble: FakeEnsemble | None = None,
        overrides: dict[str, str] | None = None,
        log_dirs: int = 1,
        certificate: Path | None = None,
        internal_tls: Path | None = None,
        rack: str | None = None,
    ) -> None:
        """Creates a broker. `internal_tls` is the folder of its certificate for internal connections; None: they use
        the secret.
        """
        self.directory = directory
        config = engine_config(directory, broker_id, coordinator_overrides(1) | (overrides or {}), log_dirs, rack)
        self.config = replace(config, tls_certificate_file=certificate)
        if internal_tls is not None:
            self.config = replace(
                self.config,
                internal_security=MUTUAL_TLS,
                internal_certificate_file=process_file(internal_tls, broker_identity(config.cluster_id, broker_id)),
                internal_ca_file=internal_tls / CA_FILE,
            )
        self.ensemble = ensemble or FakeEnsemble()
        self._clients: list[WireClient] = []

    async def __aenter__(self) -> InProcessBroker:
        self.stop = lifecycle.Stop()
        self.tree: FakeTree = self.ensemble.connect()
        self.broker = Broker(self.config, self.stop, self.tree)
        await self.broker.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for client in self._clients:
            await client.close()
        await self.broker.stop()
        assert self.stop.fault is None, self.stop.fault

    async def client(self, port: int, client_id: str | None = "test", tls: ssl.SSLContext | None = None) -> WireClient:
        client = await WireClient.connect(port, client_id, tls)
        self._clients.append(client)
        return client

    async def internal_client(self, username: str) -> WireClient:
        client = await self.client(self.config.internal_port)
        answer = await client.log_in(username, SECRET)
        assert answer.error_code == 0, answer
        return client

    async def create_instance(self, instance_id: str, *, security: str = PLAINTEXT, **changes: Any) -> int:
        """Publishes the document with one route of this security; waits until the port is open, and returns it."""
        port, broker_id = unused_port(), self.config.broker_id
        endpoints = {broker_id: f"{HOST}:{port}"}
        route = RouteDocument(name=DEFAULT_ROUTE, security=security, ports={broker_id: port}, endpoints=endpoints)
        document = InstanceDocument(
            generation=1,
            produce_bps=UNLIMITED_BPS,
            consume_bps=UNLIMITED_BPS,
            capacity_bytes=UNLIMITED_BPS,
            endpoints=endpoints,
            ports={broker_id: port} if security == PLAINTEXT else {},
            routes=() if security == PLAINTEXT else (route,),
            settings=InstanceSettings(),
        )
        await self._publish(instance_id, replace(document, **changes), exists=False)
        await self.until(lambda: any(group.name == instance_id for group in self.broker.listeners.groups()))
        return port

    async def update_instance(self, instance_id: str, **changes: Any) -> None:
        """Publishes changed fields and waits until this broker sees them."""
        before = self.broker.current.image.instances[instance_id].document
        document = replace(before, generation=before.generation + 1, **changes)
        await self._publish(instance_id, document, exists=True)
        current = self.broker.current
        await self.until(lambda: current.image.instances[instance_id].document == document)

    async def _publish(self, instance_id: str, document: InstanceDocument, *, exists: bool) -> None:
        path = paths.instance(instance_id)
        write = Set(path, document.to_json(), None) if exists else Create(path, document.to_json())
        announce = Create(paths.CHANGE_PREFIX, change_to_json([f"instances/{instance_id}"]), sequence=True)
        await self.tree.commit([write, announce])

    async def put_certificates(self, instance_id: str, route: str, document: CertificatesDocument | None) -> None:
        """Publishes certificates in the way of the control plane, and waits until this broker has them."""
        tree, path = self.tree, paths.instance_route_certificates(instance_id, route)
        operations: list[Operation] = []
        if await tree.get(paths.instance_certificates(instance_id)) is None:
            operations.append(Create(paths.instance_certificates(instance_id)))
        if document is None:
            operations.append(Delete(path, None))
        else:
            raw = document.to_json()
            operations.append(Create(path, raw) if await tree.get(path) is None else Set(path, raw, None))
        change = change_to_json([f"instances/{instance_id}/certificates/{route}"])
        await tree.commit([*operations, Create(paths.CHANGE_PREFIX, change, sequence=True)])
        current = self.broker.current
        await self.until(lambda: current.image.certificates.of_instance(instance_id).get(route) == document)

    async def set_quota(self, instance_id: str, limits: dict[str, str], *, client_id: str | None) -> None:
        """Sets a quota of the instance's client id (None: of its default), and waits until this broker has it."""
        entity = paths.quota_entity(instance_id, None, client_id, has_user=False, has_client=True)
        path = f"/config/{entity}"
        present = await self.tree.get(path)
        write = Create(path, config_to_json(limits)) if present is None else Set(path, config_to_json(limits), None)
        before = self.broker.current.image.quotas
        announce = Create(paths.CONFIG_CHANGE_PREFIX, config_change_to_json(entity), sequence=True)
        await self.tree.commit([write, announce])
        await self.until(lambda: self.broker.current.image.quotas is not before)

    async def create_topic(self, client: WireClient, name: str, partitions: int = 1, **config: str) -> bytes:
        """Creates a topic over the client's own connection; returns its id."""
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            assignments=[],
            configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in config.items()],
        )
        answer = await client.call(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=[topic]))
        assert answer.topics[0].error_code == 0, answer
        return bytes(answer.topics[0].topic_id)

    async def until(self, condition: Any) -> None:
        """Runs the loop until `condition` is true."""
        async with asyncio.timeout(TIMEOUT_S):
            while not condition():  # noqa: ASYNC110 (any condition: there is no event to wait for)
                await asyncio.sleep(0.002)
