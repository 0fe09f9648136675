"""Instance documents become open ports, and the word that they are (CKA-1, CKA-3); accountings follow the instances'
limits.
"""

from __future__ import annotations

import asyncio
from collections import Counter

import structlog

from brokers.contract.documents import InstanceAck, InstanceDocument
from brokers.engine.assembly import tenant_sessions
from brokers.engine.assembly.port_retries import PortRetries
from brokers.engine.cluster.errors import ClusterError
from brokers.engine.cluster.image import ClusterImage, InstanceImage
from brokers.engine.handlers.context import Engine
from brokers.engine.network.listener import Listeners, MakeSession
from brokers.engine.own_turns import PIECE_MS_MAX

log = structlog.get_logger(__name__)

RETRY_DELAY_S = 1.0
PORT_RETRY_INTERVAL_S = 0.5


class TenantListeners:
    """One listener per instance this broker serves. Acknowledgements are written by one task, latest word only."""

    def __init__(self, engine: Engine, listeners: Listeners, bind_host: str) -> None:
        self._engine = engine
        self._listeners = listeners
        self._bind_host = bind_host
        self._applied: dict[str, InstanceDocument] = {}
        self._retries = PortRetries()
        self._to_acknowledge: dict[str, InstanceAck | None] = {}
        self._acknowledged: dict[str, InstanceAck] = {}
        self._wake = asyncio.Event()
        # Instances whose documents are to be applied, in this order.
        self._awaited: dict[str, None] = {}
        self._has_awaited = asyncio.Event()
        self._serving = False
        listeners.on_held_back = self._on_held_back

    def __len__(self) -> int:
        return len(self._applied)

    @property
    def not_open(self) -> int:
        """Instances whose port could not be opened so far."""
        return len(self._retries)

    @property
    def failures(self) -> int:
        """Attempts to open a port that failed."""
        return self._retries.failures

    async def start_serving(self, image: ClusterImage) -> None:
        """From here on ports open; before, only the image is known. Returns when those of the image were tried."""
        self._serving = True
        self.on_image(image, image)
        while self._awaited:
            await self._engine.own_turns.take()
            self._apply_some()

    async def open_in_turns(self) -> None:
        """Opens what an image had too much of for one turn of the loop, until cancelled."""
        while True:
            await self._has_awaited.wait()
            self._has_awaited.clear()
            while self._awaited:
                await self._engine.own_turns.take()
                self._apply_some()

    def on_image(self, _before: ClusterImage, after: ClusterImage) -> None:
        if not self._serving:
            return
        for instance_id in [known for known in self._applied if known not in after.instances]:
            self._remove(instance_id)
        for instance_id, instance in after.instances.items():
            if self._applied.get(instance_id) is not instance.document:
                self._awaited[instance_id] = None
        self._apply_some()
        if self._awaited:
            self._has_awaited.set()

    def _apply_some(self) -> None:
        """As much as one turn has room for; to open a port takes some tenths of a millisecond."""
        monotonic_ms, instances = self._engine.clock.monotonic_ms, self._engine.current.image.instances
        ends_ms = monotonic_ms() + PIECE_MS_MAX
        while self._awaited and self._serving and monotonic_ms() < ends_ms:
            instance_id = next(iter(self._awaited))
            del self._awaited[instance_id]
            instance = instances.get(instance_id)
            if instance is not None and self._applied.get(instance_id) is not instance.document:
                self._apply(instance_id, instance.document)

    def _remove(self, instance_id: str) -> None:
        self._listeners.close(instance_id, "the instance is gone")
        del self._applied[instance_id]
        self._retries.done(instance_id)
        self._acknowledge(instance_id, None)

    def _apply(self, instance_id: str, document: InstanceDocument) -> None:
        port = document.ports.get(self._engine.broker_id)
        listener = self._listeners.get(instance_id)
        if listener is not None and listener.port != port:
            self._listeners.close(instance_id, "the instance's port changed")
            listener = None
        error = None
        if port is None or listener is not None:
            self._retries.done(instance_id)
        else:
            error = self._open(instance_id, port, document)
        self._applied[instance_id] = document
        if port is None:
            self._acknowledge(instance_id, None)
        else:
            self._acknowledge(
                instance_id,
                InstanceAck(generation=document.generation, port=port, listening=error is None, error=error),
            )

    def _open(self, instance_id: str, port: int, document: InstanceDocument) -> str | None:
        """Why the port could not be opened. It is tried again; the acknowledgement tells the reconciler meanwhile."""
        try:
            self._listeners.open(instance_id, self._bind_host, port, self._session_maker(instance_id, document))
        except OSError as failure:
            if self._retries.failed(instance_id, port, self._engine.clock.monotonic_ms()):
                log.error("listener_not_opened", instance_id=instance_id, port=port, reason=failure.strerror)
            return f"port {port}: {failure.strerror}"
        if self._retries.done(instance_id):
            log.info("listener_opened_at_last", instance_id=instance_id, port=port)
        return None

    def retry(self) -> None:
        """Tries the ports that could not be opened, each at its own pace. To be called often."""
        if not self._serving:
            return
        for instance_id in self._retries.due(self._engine.clock.monotonic_ms()):
            self._apply(instance_id, self._applied[instance_id])

    def _on_held_back(self, listener: str, cause: str | None, delay_ms: int) -> None:
        """The instance's ledger says so: "Why am I slow?"."""
        if listener in self._applied:
            accounting = self._engine.accountings.of(listener)
            accounting.remember_connection(cause is not None, delay_ms, self._engine.clock.now_ms())

    def _session_maker(self, instance_id: str, document: InstanceDocument) -> MakeSession:
        report_failure = self._listeners.reports.tenant_authentication_failed
        security = tenant_sessions.security_of(document)
        return tenant_sessions.session_maker(self._engine, instance_id, security, report_failure)

    # -- acknowledgements ---------------------------------------------------------------------------------------------

    def _acknowledge(self, instance_id: str, ack: InstanceAck | None) -> None:
        known = self._to_acknowledge.get(instance_id, self._acknowledged.get(instance_id))
        if ack is not None and known == ack:
            return
        self._to_acknowledge[instance_id] = ack
        self._wake.set()

    async def on_registered(self, _broker_epoch: int) -> None:
        """Another session: the acknowledgements of the old one went with it."""
        for instance_id, ack in self._acknowledged.items():
            self._to_acknowledge.setdefault(instance_id, ack)
        self._acknowledged.clear()
        self._wake.set()

    async def run(self) -> None:
        """Writes what is to be acknowledged, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._to_acknowledge:
                instance_id, ack = next(iter(self._to_acknowledge.items()))
                try:
                    await self._engine.store.acknowledge_instance(self._engine.broker_id, instance_id, ack)
                except ClusterError as failure:
                    log.warning("instance_not_acknowledged", instance_id=instance_id, reason=str(failure))
                    self._engine.loop.call_later(RETRY_DELAY_S, self._wake.set)
                    break
                if self._to_acknowledge.get(instance_id) is ack:
                    del self._to_acknowledge[instance_id]
                if ack is None:
                    self._acknowledged.pop(instance_id, None)
                else:
                    self._acknowledged[instance_id] = ack

    async def withdraw(self) -> None:
        """Clean stop: closes the ports and takes every word back."""
        self._serving = False
        self._awaited.clear()
        for instance_id in tuple(self._applied):
            self._listeners.close(instance_id, "the broker stops")
        for instance_id in tuple(self._acknowledged):
            try:
                await self._engine.store.acknowledge_instance(self._engine.broker_id, instance_id, None)
            except ClusterError:
                log.warning("acknowledgements_left_to_expire")
                return


class Bandwidth:
    """Keeps the static shares of instances in step with where their leaders are (CKA-27, CKA-34)."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._seen: dict[str, InstanceImage] = {}

    def on_image(self, _before: ClusterImage, after: ClusterImage) -> None:
        now_ms = self._engine.clock.monotonic_ms()
        for instance_id, instance in after.instances.items():
            if self._seen.get(instance_id) is instance:
                continue
            self._seen[instance_id] = instance
            leaders = Counter(partition.leader for topic in instance.topics.values() for partition in topic.partitions)
            leaders.pop(-1, None)
            document = instance.document
            accounting = self._engine.accountings.of(instance_id)
            accounting.shares.update(
                self._engine.broker_id, leaders, document.produce_bps, document.consume_bps, now_ms
            )
        for instance_id in [known for known in self._seen if known not in after.instances]:
            del self._seen[instance_id]
            self._engine.accountings.retire(instance_id)
        self._engine.bump_metadata_version()
