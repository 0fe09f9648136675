"""Reports of this broker to the flow master: each second the traffic and the demand of clients, by limit. The response
has the broker's shares of these limits (CKA-22).

The flow master is reached over a separate connection; a broker that is the flow master answers itself. Reports are sent
at whole seconds of the wall clock, so that those of all brokers cover the same time, and half-way between them for
limits whose demand changes. A share that changed is reported again at once, since other brokers wait for what it freed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

import structlog

from brokers.engine.assembly.bandwidth import Bandwidth
from brokers.engine.assembly.peer_connections import peers_for
from brokers.engine.cluster.image import ClusterImage, InstanceImage
from brokers.engine.flowmaster.election import FlowMasterElection
from brokers.engine.flowmaster.ledger import FlowKey, FlowLedger, ShareAnswer
from brokers.engine.handlers.services import BrokerServices
from brokers.engine.lifecycle import Periodic
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.broker_reports import FlowLine, ReportFlowRequest, ReportFlowResponse, ShareLine
from brokers.engine.replication.interfaces import Connect
from brokers.engine.replication.peers import PeerUnavailable
from brokers.engine.scheduling.turn_queue import TURN_MS_MAX
from brokers.engine.throttling.client_shares import CONSUME, PRODUCE
from brokers.engine.throttling.flow_share import INTERVAL_MS, REPORT_MS, FlowShare, ReportedFlow

log = structlog.get_logger(__name__)

LINES_PER_REPORT_MAX: Final = 200
REPORT_TIMEOUT_MS: Final = 2_000
# Minimum interval after a change; retry interval while waiting for others; maximum number of reports in an interval.
CHANGE_REPORT_PAUSE_S: Final = 0.02
RETRY_PAUSE_S: Final = 0.1
FOLLOW_UPS_MAX: Final = 6
TIMER_SLACK_S: Final = 0.005
EXPIRY_INTERVAL_S: Final = 0.25
TRIM_INTERVAL_S: Final = 1.0
DIRECTION_NAMES: Final = {PRODUCE: "produce", CONSUME: "consume"}

Due = list[tuple[FlowKey, FlowShare]]


class FlowControl:
    """Sends the reports of one broker; while it is the flow master, also answers those of all brokers. Create it after
    `Bandwidth`, whose layouts it uses.
    """

    def __init__(
        self, services: BrokerServices, connect: Connect, election: FlowMasterElection, bandwidth: Bandwidth
    ) -> None:
        self._services = services
        self._election = election
        self._bandwidth = bandwidth
        self._peers = peers_for("flow", services, connect)
        self._broker_epoch = -1
        self._sequence = 0
        # Shares granted by the flow master, and those among them to be reported again soon.
        self._assigned: dict[FlowKey, FlowShare] = {}
        self._pending: dict[FlowKey, FlowShare] = {}
        self._ledger: FlowLedger | None = None
        self._ledger_election = 0
        self.reports_answered = 0
        self.reports_lost = 0
        services.accounting.report_flow = self.handle_report
        services.metadata.current.subscribe(self.on_image)

    def on_image(self, before: ClusterImage, after: ClusterImage) -> None:
        if before.brokers is not after.brokers:
            self._peers.on_brokers(after.brokers)

    async def on_registered(self, broker_epoch: int) -> None:
        self._broker_epoch, self._sequence = broker_epoch, 0

    def start_periodic(self, periodic: Periodic) -> None:
        periodic.spawn(self._election.run())
        periodic.spawn(self._run())
        periodic.every(EXPIRY_INTERVAL_S, self.expire)
        periodic.every(TRIM_INTERVAL_S, self._peers.trim)

    def close(self) -> None:
        self._peers.close()

    # -- state ---------------------------------------------------------------------------------------------------------

    @property
    def is_flow_master(self) -> bool:
        return self._election.epoch is not None

    @property
    def limits_shared_out(self) -> int:
        """Returns the number of limits that this broker shares out; 0 if it is not the flow master."""
        return len(self._ledger) if self._ledger is not None and self.is_flow_master else 0

    def assigned_shares(self) -> Iterator[tuple[str, str, FlowShare]]:
        """Yields (instance id, direction, share) of each bandwidth whose share here was set by the flow master."""
        for (instance_id, direction, key), flow in self._assigned.items():
            if not key:
                yield instance_id, DIRECTION_NAMES[direction], flow

    def expire(self) -> None:
        """Drops shares whose lease ran out without an answer of the flow master."""
        now_ms, lost = self._services.clock.monotonic_ms(), 0
        for key, flow in tuple(self._assigned.items()):
            lost += flow.expire(now_ms)
            if flow.assigned_bps is None:
                del self._assigned[key]
        if lost:
            log.info(
                "shares_not_answered", shares=lost, flow_master_id=self._services.metadata.current.image.flow_master_id
            )

    # -- reports -------------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._until_next_s())
            is_whole = self._services.clock.now_ms() % INTERVAL_MS < REPORT_MS
            await self._report(await self._measure(is_whole))
            for _ in range(FOLLOW_UPS_MAX):
                self._pending = {
                    k: flow for k, flow in self._pending.items() if flow.has_unreported_change or flow.is_waiting
                }
                if not self._pending:
                    break
                has_changes = any(flow.has_unreported_change for flow in self._pending.values())
                pause_s = CHANGE_REPORT_PAUSE_S if has_changes else RETRY_PAUSE_S
                if pause_s > self._until_next_s():
                    break
                await asyncio.sleep(pause_s)
                await self._report(list(self._pending.items()))

    def _until_next_s(self) -> float:
        """Returns the seconds to the next report, a little late, since timers may fire early."""
        return (REPORT_MS - self._services.clock.now_ms() % REPORT_MS) / 1000 + TIMER_SLACK_S

    async def _measure(self, is_whole: bool) -> Due:
        """Ends the measuring interval of all limits, or without `is_whole` of those whose demand changes. Returns the
        limits to report.
        """
        due: Due = []
        monotonic_ms = self._services.clock.monotonic_ms
        now_ms = monotonic_ms()
        for instance_id, accounting in tuple(self._services.accounting.accountings):
            for direction, share in enumerate(accounting.shares.flows):
                if share is not None and (is_whole or share.reports_often) and share.measure(now_ms):
                    due.append(((instance_id, direction, ""), share))
            if accounting.client_shares.flows:
                for (direction, key), flow in accounting.client_shares:
                    if (is_whole or flow.reports_often) and flow.measure(now_ms):
                        due.append(((instance_id, direction, key), flow))
            if monotonic_ms() - now_ms >= TURN_MS_MAX:
                await self._services.own_turns.enqueue()
                now_ms = monotonic_ms()
        return due

    async def _report(self, due: Due) -> None:
        image = self._services.metadata.current.image
        parts = [due[at : at + LINES_PER_REPORT_MAX] for at in range(0, len(due), LINES_PER_REPORT_MAX)] or [[]]
        for part in parts:
            if not await self._send(image, part):
                self.reports_lost += 1
                return
            self.reports_answered += 1

    async def _send(self, image: ClusterImage, due: Due) -> bool:
        """Sends a report. Returns True if the flow master answered."""
        self._sequence += 1
        sent_ms = self._services.clock.monotonic_ms()
        request = ReportFlowRequest(
            broker_id=self._services.broker_id,
            broker_epoch=self._broker_epoch,
            master_epoch=image.flow_master_epoch,
            sequence=self._sequence,
            interval_ms=INTERVAL_MS,
            lines=[_flow_line(key, flow.report()) for key, flow in due],
        )
        response = await self._request(image.flow_master_id, request)
        if response is None or response.error_code or response.sequence != request.sequence:
            return False
        if (
            not response.master_epoch
            == image.flow_master_epoch
            == self._services.metadata.current.image.flow_master_epoch
        ):
            return False
        self._apply(response.shares, sent_ms)
        return True

    async def _request(self, flow_master_id: int, request: ReportFlowRequest) -> ReportFlowResponse | None:
        if flow_master_id == self._services.broker_id:
            return self.handle_report(request)
        try:
            response: Any = await self._peers.request(flow_master_id, ApiKey.REPORT_FLOW, 0, request, REPORT_TIMEOUT_MS)
        except PeerUnavailable:
            return None
        assert isinstance(response, ReportFlowResponse)
        return response

    def _apply(self, shares: Sequence[ShareLine], sent_ms: int) -> None:
        now_ms = self._services.clock.monotonic_ms()
        for share in shares:
            key = (share.instance_id, share.direction, share.key)
            flow = self._flow(key, share, now_ms)
            if flow is None:
                continue
            flow.apply_answer(share.basis, share.share_bps, share.is_waiting, sent_ms, now_ms)
            if flow.assigned_bps is not None:
                self._assigned[key] = flow
            if flow.has_unreported_change or flow.is_waiting:
                self._pending[key] = flow

    def _flow(self, key: FlowKey, share: ShareLine, now_ms: int) -> FlowShare | None:
        instance_id, direction, clients = key
        accounting = self._services.accounting.accountings.get(instance_id)
        if accounting is None or direction not in DIRECTION_NAMES:
            return None
        if clients:
            return accounting.client_shares.share_for_answer((direction, clients), share.limit_bps, share.basis, now_ms)
        return accounting.shares.flows[direction] if accounting.shares.flows else None

    # -- as flow master ------------------------------------------------------------------------------------------------

    def handle_report(self, request: ReportFlowRequest) -> ReportFlowResponse:
        """Answers a broker's report; called through `AccountingServices.report_flow`."""
        image, now_ms, epoch = (
            self._services.metadata.current.image,
            self._services.clock.monotonic_ms(),
            self._election.epoch,
        )
        if epoch is None or epoch != request.master_epoch:
            return ReportFlowResponse(error_code=int(ErrorCode.NOT_CONTROLLER))
        if self._ledger is None or self._ledger_election != self._election.elections_won:
            self._ledger, self._ledger_election = FlowLedger(now_ms), self._election.elections_won
        ledger, broker = self._ledger, image.brokers.get(request.broker_id)
        ledger.set_live_brokers(image.brokers.keys())
        if (
            broker is None
            or request.broker_epoch < broker.epoch
            or not ledger.begin_report(request.broker_id, request.broker_epoch, request.sequence, now_ms)
        ):
            return ReportFlowResponse(error_code=int(ErrorCode.STALE_BROKER_EPOCH))
        if request.broker_id == self._services.broker_id:
            ledger.sweep(now_ms)
        shares = self._shares(ledger, image, request, now_ms)
        shares += _reviews(ledger, request.broker_id, {(s.instance_id, s.direction, s.key) for s in shares}, now_ms)
        return ReportFlowResponse(master_epoch=epoch, sequence=request.sequence, shares=shares)

    def _shares(
        self, ledger: FlowLedger, image: ClusterImage, request: ReportFlowRequest, now_ms: int
    ) -> list[ShareLine]:
        shares: list[ShareLine] = []
        for line in request.lines:
            instance = image.instances.get(line.instance_id)
            layout = self._bandwidth.layout(line.instance_id, line.direction)
            if instance is None or layout is None or (not line.key and line.limit_bps != _bought_bps(instance, line)):
                continue
            key = (line.instance_id, line.direction, line.key)
            flow = ReportedFlow(line.basis, line.limit_bps, line.share_bps, line.admitted_bps, line.wanted_bps)
            assigned = ledger.handle_report(request.broker_id, key, flow, layout, now_ms)
            if assigned is not None:
                shares.append(_share_line(key, assigned))
        return shares


def _bought_bps(instance: InstanceImage, line: FlowLine) -> int:
    document = instance.document
    return document.produce_bps if line.direction == PRODUCE else document.consume_bps


def _reviews(ledger: FlowLedger, broker_id: int, answered: Collection[FlowKey], now_ms: int) -> list[ShareLine]:
    result = []
    for key in ledger.limits_to_review(broker_id):
        assigned = None if key in answered else ledger.review(broker_id, key, now_ms)
        if assigned is not None:
            result.append(_share_line(key, assigned))
    return result


def _flow_line(key: FlowKey, flow: ReportedFlow) -> FlowLine:
    instance_id, direction, clients = key
    return FlowLine(
        instance_id=instance_id,
        direction=direction,
        key=clients,
        basis=flow.basis,
        limit_bps=flow.limit_bps,
        share_bps=flow.share_bps,
        admitted_bps=flow.admitted_bps,
        wanted_bps=flow.wanted_bps,
    )


def _share_line(key: FlowKey, assigned: ShareAnswer) -> ShareLine:
    instance_id, direction, clients = key
    return ShareLine(
        instance_id=instance_id,
        direction=direction,
        key=clients,
        basis=assigned.basis,
        limit_bps=assigned.limit_bps,
        share_bps=assigned.share_bps,
        is_waiting=assigned.is_waiting,
    )
