"""Membership of this broker in the cluster: registered while its session is alive, and again in the next one (ZK-1).

While ZooKeeper is unavailable the broker serves from the last image. An expired session has lost its registration, so
the next one registers with a higher broker epoch and then reads everything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import structlog

from brokers.contract import paths
from brokers.contract.documents import BrokerDocument
from brokers.engine.cluster.errors import BrokerAlreadyRegistered, ClusterError, StoreUnavailable
from brokers.engine.cluster.store import ClusterStore
from brokers.engine.cluster.tree import SessionState, Tree
from brokers.engine.cluster.watcher import ClusterWatcher, Part

log = structlog.get_logger(__name__)

REGISTRATION_RETRY_DELAY_S = 0.5
# Time for a registration from another address to disappear: longer than any session timeout in use.
REGISTRATION_WAIT_S = 20.0


class ClusterSession:
    """Membership of this broker in the cluster, over any number of ZooKeeper sessions.

    The callbacks of `on_registered` are awaited with the broker epoch after each registration. `on_fatal` is called
    with the reason why this broker must stop.
    """

    def __init__(
        self,
        *,
        tree: Tree,
        store: ClusterStore,
        watcher: ClusterWatcher,
        broker_id: int,
        cluster_id: str,
        document: BrokerDocument,
        on_fatal: Callable[[str], None],
        registration_wait_s: float = REGISTRATION_WAIT_S,
    ) -> None:
        self.broker_epoch = -1
        self.state = SessionState.LOST
        self._tree = tree
        self._store = store
        self._watcher = watcher
        self._broker_id = broker_id
        self._cluster_id = cluster_id
        self._document = document
        self._on_fatal = on_fatal
        self._registration_wait_s = registration_wait_s
        self._on_registered: list[Callable[[int], Awaitable[None]]] = []
        self._session_id = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def on_registered(self, callback: Callable[[int], Awaitable[None]]) -> None:
        self._on_registered.append(callback)

    async def start(self) -> None:
        """Joins the cluster, with the tree started and the registered port bound (see `ClusterStore.register_broker`).

        Raises:
            StoreUnavailable, BrokerAlreadyRegistered, Conflict: this broker cannot join.
        """
        await self._store.prepare(self._cluster_id)
        await self._join(self._registration_wait_s)
        self.state = SessionState.CONNECTED
        self._tree.subscribe(self._on_state)
        self._spawn(self._watcher.run())
        if self._tree.session_id not in (0, self._session_id):
            # The session expired, with its registration, before the subscription above.
            self._spawn(self._rejoin())

    async def announce_stop(self) -> bool:
        """Marks the registration as stopping, also if it has to be created again (REP-34).

        Raises:
            StoreUnavailable, Conflict: the other brokers were not informed.
        """
        self._document = replace(self._document, stopping=True)
        return await self._store.announce_stop(self._broker_id)

    async def stop(self) -> None:
        """Stops cleanly and removes the registration first, so that the other brokers notice it at once."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            await self._store.unregister_broker(self._broker_id)
        except StoreUnavailable as error:
            log.warning("registration_left_to_expire", reason=str(error))

    def _on_state(self, state: SessionState) -> None:
        if state is not self.state:
            log.info("zookeeper_session", state=state.value, broker_id=self._broker_id)
        self.state = state
        if state is not SessionState.CONNECTED:
            return
        if self._tree.session_id != self._session_id:
            self._spawn(self._rejoin())
        else:
            for part in (Part.BROKERS, Part.CONTROLLER, Part.FLOW_MASTER, Part.CHANGES, Part.CONFIG_CHANGES):
                self._watcher.mark(part)

    async def _join(self, wait_s: float) -> None:
        session_id = self._tree.session_id
        self.broker_epoch = await self._register(wait_s)
        await self._watcher.load()
        self._session_id = session_id
        log.info("broker_registered", broker_id=self._broker_id, broker_epoch=self.broker_epoch)
        for callback in self._on_registered:
            await callback(self.broker_epoch)

    async def _rejoin(self) -> None:
        while self.state is SessionState.CONNECTED and self._tree.session_id != self._session_id:
            try:
                await self._join(self._registration_wait_s)
            except BrokerAlreadyRegistered as error:
                self._on_fatal(str(error))
                return
            except ClusterError as error:
                log.warning("registration_failed", broker_id=self._broker_id, reason=str(error))
                await _pause(REGISTRATION_RETRY_DELAY_S)

    async def _register(self, wait_s: float) -> int:
        """Registers this broker; a process with its id at another address may have just died, so its session gets time
        to expire.
        """
        deadline = asyncio.get_running_loop().time() + wait_s
        while True:
            try:
                return await self._store.register_broker(self._broker_id, self._document)
            except BrokerAlreadyRegistered:
                deleted = asyncio.Event()
                remaining_s = deadline - asyncio.get_running_loop().time()
                if remaining_s <= 0:
                    raise
                if await self._tree.get(paths.broker(self._broker_id), deleted.set) is not None:
                    await _wait(deleted, remaining_s)

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._on_fatal(f"following the cluster failed: {task.exception()!r}")


async def _wait(event: asyncio.Event, timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return


async def _pause(delay_s: float) -> None:
    await _wait(asyncio.Event(), delay_s)
