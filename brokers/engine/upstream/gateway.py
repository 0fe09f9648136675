"""A gateway with a settings file: finds the upstream brokers, opens the listeners, stops."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import structlog

from brokers.engine import config, lifecycle
from brokers.engine.assembly.tls_contexts import RELOAD_INTERVAL_S, TlsContexts
from brokers.engine.clock import SystemClock
from brokers.engine.cluster.image import BrokerInfo, ClusterImage, ImageDelta
from brokers.engine.cluster.instance_documents import InstanceDocuments
from brokers.engine.cluster.quota_image import QuotaImage
from brokers.engine.errors import StartFailed
from brokers.engine.protocol.mapping import UndeclaredField
from brokers.engine.protocol.messages.metadata import MetadataResponse
from brokers.engine.throttling.layout import Layout
from brokers.engine.upstream.connection import UpstreamLost
from brokers.engine.upstream.discovery import addresses_of, find_brokers
from brokers.engine.upstream.listening_node import ListeningNode, SharedState
from brokers.engine.upstream.settings import GatewayInstance, GatewaySettings
from brokers.engine.upstream.versions import check_declared

log = structlog.get_logger(__name__)

DROP_UNUSED_INTERVAL_S: Final = 600.0


class Gateway:
    """The gateway of one process: a node for each upstream broker that it serves."""

    def __init__(self, settings: GatewaySettings, stop: lifecycle.Stop, connections_max: int) -> None:
        self._settings = settings
        self._periodic = lifecycle.Periodic(stop)
        self._connections_max = connections_max
        self._clock = SystemClock()
        self._shared = SharedState({instance.id: instance for instance in settings.instances})
        self.nodes: list[ListeningNode] = []

    async def start(self) -> None:
        """Opens all listeners. Raises StartFailed."""
        settings = self._settings
        try:
            check_declared()
        except UndeclaredField as error:
            raise StartFailed(f"names would not be mapped: {error}") from error
        try:
            metadata = await find_brokers(settings.bootstrap, settings.login)
        except UpstreamLost as error:
            raise StartFailed(str(error)) from error
        addresses = addresses_of(metadata)
        unknown = sorted(settings.nodes - addresses.keys())
        if unknown:
            raise StartFailed(f"the upstream has no broker {unknown[0]}, but {sorted(addresses)}")
        self._set_limits()
        image = _image(metadata, settings.instances)
        contexts = TlsContexts(settings.certificate_file)
        contexts.reload()
        share = max(1, self._connections_max // max(1, len(settings.nodes)))
        for node_id in sorted(settings.nodes):
            node = ListeningNode(node_id, addresses[node_id], settings.login, image, self._shared, self._clock, share)
            self.nodes.append(node)
            try:
                (await node.connect()).close()
            except UpstreamLost as error:
                raise StartFailed(str(error)) from error
            node.listen(settings.bind_host, contexts)
            node.start_periodic(self._periodic)
        self._periodic.every(RELOAD_INTERVAL_S, contexts.reload)
        self._periodic.every(DROP_UNUSED_INTERVAL_S, self._drop_unused)
        for instance in settings.instances:
            missing = sorted(addresses.keys() - instance.document.ports.keys())
            if missing:
                log.warning("nodes_without_port", instance_id=instance.id, nodes=missing)
        log.info("gateway_started", nodes=sorted(settings.nodes), instances=len(settings.instances))

    def _set_limits(self) -> None:
        """Sets the bandwidth of each instance, which all nodes of this process share."""
        for instance in self._settings.instances:
            shares, document = self._shared.accountings.get_or_create(instance.id).shares, instance.document
            now_ms = self._clock.monotonic_ms()
            shares.update(-1, Layout.from_leaders({}), document.produce_bps, document.consume_bps, now_ms)

    def _drop_unused(self) -> None:
        for _ in self._shared.accountings.drop_unused(self._clock.monotonic_ms()):
            pass

    async def stop(self) -> None:
        await self._periodic.stop()
        for node in self.nodes:
            await node.stop()
        log.info("gateway_stopped")


def _image(metadata: MetadataResponse, instances: tuple[GatewayInstance, ...]) -> ClusterImage:
    """Returns the metadata that sessions use: instances, users, rights and quotas, and no topic."""
    brokers = {
        broker.node_id: BrokerInfo(broker.node_id, broker.host, broker.port, 0, None, 0) for broker in metadata.brokers
    }
    quotas: dict[tuple[str, Any], Any] = {
        (instance.id, entity): limits for instance in instances for entity, limits in instance.quotas.items()
    }
    return ClusterImage(metadata.cluster_id or "").with_changes(
        ImageDelta(
            brokers=brokers,
            instances={instance.id: instance.document for instance in instances},
            users=InstanceDocuments({instance.id: instance.users for instance in instances}),
            acls=InstanceDocuments({instance.id: instance.acls for instance in instances}),
            quotas=QuotaImage().with_changes(quotas),
        )
    )


async def run(settings: GatewaySettings) -> int:
    """Starts, serves until asked to stop, stops. Returns the exit code. Raises StartFailed."""
    descriptors = lifecycle.raise_descriptor_limit()
    # Each client has a connection to the upstream as well.
    connections_max = lifecycle.limit_connections(descriptors // 2, config.CONNECTIONS_MAX)
    stop = lifecycle.Stop()
    stop.listen(asyncio.get_running_loop())
    gateway = Gateway(settings, stop, connections_max)
    try:
        await gateway.start()
        await stop.wait()
    finally:
        await asyncio.wait_for(gateway.stop(), lifecycle.STOP_TIMEOUT_S)
    return lifecycle.exit_code(stop)
