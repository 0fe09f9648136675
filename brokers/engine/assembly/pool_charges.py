"""Charges of brokers to the flow master, which paces each whole limit (decision 110).

Limits that clients wait for are charged every 20 ms while they are used, all limits of a broker in one request; other
used limits are charged each second. With many limits the pause grows, so that the requests take a bounded part of the
processor. The charges of a lost request are repeated in the next one. A broker without charges sends an empty request
twice a second, because the flow master reserves the part of a silent broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from brokers.engine.assembly.peer_connections import peers_for
from brokers.engine.cluster.image import ClusterImage
from brokers.engine.flowmaster.election import FlowMasterElection
from brokers.engine.flowmaster.pools import PoolCharge, PoolLedger, PoolResponse
from brokers.engine.handlers.services import BrokerServices
from brokers.engine.lifecycle import Periodic
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.broker_reports import (
    ChargeLine,
    ChargePoolsRequest,
    ChargePoolsResponse,
    PaceLine,
)
from brokers.engine.replication.interfaces import Connect
from brokers.engine.replication.peers import PeerUnavailable
from brokers.engine.throttling.client_shares import CONSUME, PRODUCE
from brokers.engine.throttling.layout import Layout
from brokers.engine.throttling.pool import CHARGE_INTERVAL_MS, NEVER_MS, Pool

LINES_PER_REPORT_MAX: Final = 200
REQUEST_TIMEOUT_MS: Final = 1_000
# Interval at which limits that no client waits for are checked.
IDLE_INTERVAL_S: Final = 0.25
# Each charged limit lengthens the pause between two requests: 1,000 of them are charged 5 times a second.
LINE_INTERVAL_MS: Final = 0.2
TRIM_INTERVAL_S: Final = 1.0
# Interval of empty requests, which show that this broker reaches the flow master.
HEARTBEAT_MS: Final = 500
_UNKNOWN_POOL: Final = PaceLine(is_known=False, due_in_us=0, is_contended=False)


class PoolCharges:
    """Sends this broker's charges; while it is the flow master, also answers those of all brokers."""

    def __init__(
        self,
        services: BrokerServices,
        connect: Connect,
        election: FlowMasterElection,
        layout: Callable[[str, int], Layout | None],
    ) -> None:
        """Registers itself with `services`. `layout` returns the layout of an instance in a direction."""
        self._services = services
        self._layout = layout
        self._election = election
        self._pools = services.accounting.accountings.pools
        self._peers = peers_for("pools", services, connect)
        self._broker_epoch = -1
        self._sequence = 0
        self._sent_ms = NEVER_MS
        self._request_due = asyncio.Event()
        self._ledger: PoolLedger | None = None
        self._ledger_election = 0
        self._pools.on_request_due = self._request_due.set
        services.accounting.charge_pools = self.handle_report
        services.metadata.current.subscribe(self.on_image)

    def on_image(self, before: ClusterImage, after: ClusterImage) -> None:
        if before.brokers is not after.brokers:
            self._peers.on_brokers(after.brokers)

    async def on_registered(self, broker_epoch: int) -> None:
        self._broker_epoch, self._sequence = broker_epoch, 0

    def start_periodic(self, periodic: Periodic) -> None:
        periodic.spawn(self._run())
        periodic.every(TRIM_INTERVAL_S, self._peers.trim)

    def close(self) -> None:
        self._peers.close()

    # -- as a broker ---------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        now_ms = self._services.clock.monotonic_ms
        while True:
            contended = self._pools.contended_count(now_ms())
            if not contended:
                with suppress(TimeoutError):
                    async with asyncio.timeout(IDLE_INTERVAL_S):
                        await self._request_due.wait()
            self._request_due.clear()
            interval_ms = max(CHARGE_INTERVAL_MS, round(contended * LINE_INTERVAL_MS))
            due = self._pools.take_due_pools(now_ms(), interval_ms)
            if due or now_ms() - self._sent_ms >= HEARTBEAT_MS:
                self._sent_ms = now_ms()
                for at in range(0, max(1, len(due)), LINES_PER_REPORT_MAX):
                    await self._charge(due[at : at + LINES_PER_REPORT_MAX])
            await asyncio.sleep(interval_ms / 1000)

    async def _charge(self, pools: list[Pool]) -> None:
        services, image = self._services, self._services.metadata.current.image
        self._sequence += 1
        now_ms = services.clock.monotonic_ms()
        request = ChargePoolsRequest(
            broker_id=services.broker_id,
            broker_epoch=self._broker_epoch,
            master_epoch=image.flow_master_epoch,
            sequence=self._sequence,
            lines=[_charge_line(pool, now_ms) for pool in pools],
        )
        response = await self._request(image.flow_master_id, request)
        if response is None or response.error_code or len(response.paces) != len(pools):
            for pool in pools:
                pool.on_request_failed()
            return
        now_ms = services.clock.monotonic_ms()
        for pool, pace in zip(pools, response.paces, strict=True):
            if pace.is_known:
                pool.apply_answer(pace.due_in_us, pace.is_contended, now_ms)
            else:
                pool.on_request_failed()

    async def _request(self, flow_master_id: int, request: ChargePoolsRequest) -> ChargePoolsResponse | None:
        if flow_master_id == self._services.broker_id:
            return self.handle_report(request)
        try:
            response: Any = await self._peers.request(
                flow_master_id, ApiKey.CHARGE_POOLS, 0, request, REQUEST_TIMEOUT_MS
            )
        except PeerUnavailable:
            return None
        assert isinstance(response, ChargePoolsResponse)
        return response

    # -- as flow master ------------------------------------------------------------------------------------------------

    def handle_report(self, request: ChargePoolsRequest) -> ChargePoolsResponse:
        """Applies the charges of a broker; called through `AccountingServices.charge_pools`."""
        image, epoch, now_ms = (
            self._services.metadata.current.image,
            self._election.epoch,
            self._services.clock.monotonic_ms(),
        )
        if epoch is None or epoch != request.master_epoch:
            return ChargePoolsResponse(error_code=int(ErrorCode.NOT_CONTROLLER))
        if self._ledger is None or self._ledger_election != self._election.elections_won:
            self._ledger = PoolLedger(max(0, self._services.accounting.accountings.burst_ms), now_ms)
            self._ledger_election = self._election.elections_won
        ledger, broker = self._ledger, image.brokers.get(request.broker_id)
        ledger.set_live_brokers(image.brokers.keys())
        if (
            broker is None
            or request.broker_epoch != broker.epoch
            or not ledger.begin_report(request.broker_id, request.broker_epoch, request.sequence, now_ms)
        ):
            return ChargePoolsResponse(error_code=int(ErrorCode.STALE_BROKER_EPOCH))
        ledger.sweep(now_ms)
        unresponsive = ledger.silent_brokers(image.brokers.keys(), now_ms)
        paces = [self._pace(ledger, image, line, unresponsive, now_ms) for line in request.lines]
        return ChargePoolsResponse(master_epoch=epoch, sequence=request.sequence, paces=paces)

    def _pace(
        self, ledger: PoolLedger, image: ClusterImage, line: ChargeLine, unresponsive: list[int], now_ms: int
    ) -> PaceLine:
        instance = image.instances.get(line.instance_id)
        if instance is None or line.direction not in (PRODUCE, CONSUME):
            return _UNKNOWN_POOL
        limit_bps, unresponsive_bps = line.limit_bps, 0
        if not line.key:
            document = instance.document
            limit_bps = document.produce_bps if line.direction == PRODUCE else document.consume_bps
        layout = self._layout(line.instance_id, line.direction)
        if unresponsive and layout is not None:
            parts = layout.static_bps(limit_bps)
            unresponsive_bps = sum(parts.get(broker_id, 0) for broker_id in unresponsive)
        charge = PoolCharge(limit_bps, line.amount_bytes, line.is_contended)
        pace = ledger.charge((line.instance_id, line.direction, line.key), charge, now_ms, unresponsive_bps)
        return _UNKNOWN_POOL if pace is None else _pace_line(pace)


def _charge_line(pool: Pool, now_ms: int) -> ChargeLine:
    instance_id, direction, clients = pool.key
    return ChargeLine(
        instance_id=instance_id,
        direction=direction,
        key=clients,
        limit_bps=int(pool.limit_per_s),
        amount_bytes=pool.begin_request(now_ms),
        is_contended=pool.contended_until_ms > now_ms,
    )


def _pace_line(pace: PoolResponse) -> PaceLine:
    return PaceLine(is_known=True, due_in_us=pace.due_in_us, is_contended=pace.is_contended)
