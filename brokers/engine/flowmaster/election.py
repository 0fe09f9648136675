"""Election of a flow master while the cluster has none (CKA-21), by one task on every broker.

The flow master answers reports only while its ZooKeeper session is connected, so it stops before the session can expire
and another broker be elected.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from brokers.engine.cluster.current import CurrentImage
from brokers.engine.cluster.errors import StoreUnavailable
from brokers.engine.cluster.image import NO_BROKER, ClusterImage
from brokers.engine.cluster.store import ClusterStore
from brokers.engine.cluster.tree import SessionState
from brokers.engine.cluster.watcher import ClusterWatcher, Part

log = structlog.get_logger(__name__)

RETRY_DELAY_S: Final = 0.5


class FlowMasterElection:
    """Election of this broker as the flow master; `session` returns the id and state of the current session."""

    def __init__(
        self,
        *,
        store: ClusterStore,
        watcher: ClusterWatcher,
        current: CurrentImage,
        broker_id: int,
        session: Callable[[], tuple[int, SessionState]],
    ) -> None:
        self._store = store
        self._watcher = watcher
        self._current = current
        self._broker_id = broker_id
        self._session = session
        # The epoch that this broker won, and the session in which it won.
        self._epoch = 0
        self._session_id = 0
        self._is_outcome_unknown = False
        # The number of elections won; state from before an election must be discarded.
        self.elections_won = 0
        self._wake = asyncio.Event()
        self._wake.set()
        current.subscribe(self._on_image)

    def _on_image(self, before: ClusterImage, after: ClusterImage) -> None:
        if after.flow_master_id == NO_BROKER or before.flow_master_id != after.flow_master_id:
            self._wake.set()

    @property
    def epoch(self) -> int | None:
        """Epoch in which this broker is the flow master; None while it is not."""
        session_id, state = self._session()
        image = self._current.image
        is_flow_master = (image.flow_master_id, image.flow_master_epoch) == (self._broker_id, self._epoch)
        if is_flow_master and session_id == self._session_id and state is SessionState.CONNECTED:
            return self._epoch
        return None

    async def run(self) -> None:
        """Runs for election until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            image = self._current.image
            must_be_renewed = image.flow_master_id == self._broker_id and (
                self._is_outcome_unknown or self._session()[0] != self._session_id
            )
            if self._broker_id in image.brokers and (image.flow_master_id == NO_BROKER or must_be_renewed):
                await self._run_for_election()

    async def _run_for_election(self) -> None:
        session_id, _ = self._session()
        try:
            epoch = await self._store.elect_flow_master(self._broker_id)
        except StoreUnavailable as error:
            log.warning("flow_master_election_failed", broker_id=self._broker_id, reason=str(error))
            self._is_outcome_unknown = True
            asyncio.get_running_loop().call_later(RETRY_DELAY_S, self._wake.set)
            return
        self._is_outcome_unknown = False
        if epoch is not None:
            if (epoch, session_id) != (self._epoch, self._session_id):
                self.elections_won += 1
            self._epoch, self._session_id = epoch, session_id
            log.info("flow_master_elected", broker_id=self._broker_id, epoch=epoch)
        # The next image shows the result: this broker, or another one that was faster.
        self._watcher.mark(Part.FLOW_MASTER)
