"""A simulated instance for `benchmarks.sharing`: its brokers throttle clients with the real limiter, and share the
instance's bandwidth by a policy. Under `adaptive` they pool it (`benchmarks.pooled_world`).

Clients are closed loops: each sends a request at its own speed, waits for the throttle time, and sends the next
request. Everything is drawn from seeds; times are milliseconds of a simulated clock.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Final

from benchmarks.pooled_world import TICK_MS, PooledBrokers
from quotas import throttle
from quotas.adaptive import ESTIMATE_FACTOR, Demand
from quotas.pacing import Pace
from quotas.policies import Policy, share_out, share_out_among
from quotas.rates import Rate

REPORT_MS: Final = 1_000
# A broker without a response to this many reports uses its part by partitions, if that is less (CKA-35).
UNANSWERED_MAX: Final = 3
# The greatest ratio of the estimated demand to the admitted bytes.
WANTED_FACTOR_MAX: Final = 16
# Admitted bytes are counted in steps of this length.
STEP_MS: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Demand and shape of a simulated instance.

    `changes`: the demand of the clients of each broker in total, by the time from which it applies. `silent`: a broker,
    and the period in which it neither reports nor gets a response.
    """

    name: str
    changes: Sequence[tuple[int, tuple[int, ...]]]
    length_ms: int = 60_000
    bought_bps: int = 20_000_000
    leaders: tuple[int, ...] = (1, 1, 1)
    request_bytes: int = 64 * 1024
    clients_per_broker: int = 8
    silent: tuple[int, int, int] | None = None

    def phases(self) -> list[tuple[int, int, tuple[int, ...]]]:
        """Returns the phases: begin, end, and the demand between them."""
        ends = [*self.changes, (self.length_ms, ())]
        return [(begin_ms, end_ms, demands) for (begin_ms, demands), (end_ms, _) in pairwise(ends)]

    def is_silent(self, broker: int, now_ms: int) -> bool:
        return self.silent is not None and broker == self.silent[0] and self.silent[1] <= now_ms < self.silent[2]


class Broker:
    """One instance's limiter for one direction, as charged by `brokers.engine.throttling`."""

    def __init__(self, share_bps: int, length_ms: int) -> None:
        self.share_bps = share_bps
        self.rate, self.pace = Rate(), Pace()
        self.admitted = [0] * (length_ms // STEP_MS)
        self.unanswered = 0
        self._reported_bytes = self._admitted_bytes = 0
        self._waited_ms, self._waits_until_ms = 0, 0

    def admit(self, amount: int, now_ms: int) -> int:
        """Charges a request; returns the time that the client has to wait, in milliseconds."""
        self._admitted_bytes += amount
        self.admitted[min(now_ms // STEP_MS, len(self.admitted) - 1)] += amount
        delay_ms = max(
            throttle.charge(self.rate, amount, self.share_bps, now_ms), self.pace.charge(amount, self.share_bps, now_ms)
        )
        begins_ms = max(self._waits_until_ms, now_ms)
        if now_ms + delay_ms > begins_ms:
            self._waited_ms += now_ms + delay_ms - begins_ms
            self._waits_until_ms = now_ms + delay_ms
        return delay_ms

    def set_share(self, share_bps: int, now_ms: int) -> None:
        """Sets another share, and scales the samples as a broker does."""
        if share_bps > self.share_bps:
            self.pace.convert_debt(self.share_bps, share_bps, now_ms)
        if self.share_bps:
            self.rate.scale(share_bps / self.share_bps)
        self.share_bps = share_bps

    def report(self, leaders: int, interval_ms: int, now_ms: int, error: float) -> Demand:
        """Returns the bytes admitted since the last report, and an estimate of the demand from the time in which any
        client waited. A waiting client uses its share, although a large request may be paid for over several intervals.
        """
        admitted_bps = (self._admitted_bytes - self._reported_bytes) * 1000 // interval_ms
        ahead_ms = max(0, self._waits_until_ms - now_ms)
        waited_ms = min(interval_ms, max(0, self._waited_ms - ahead_ms))
        self._reported_bytes, self._waited_ms = self._admitted_bytes, ahead_ms
        if not waited_ms:
            return Demand(leaders, admitted_bps, admitted_bps)
        moved_bps = max(admitted_bps, self.share_bps * waited_ms // interval_ms)
        free_ms = max(interval_ms - waited_ms, interval_ms / WANTED_FACTOR_MAX)
        return Demand(leaders, admitted_bps, max(admitted_bps, int(moved_bps * interval_ms / free_ms * error)))


@dataclass(slots=True)
class Client:
    """A client of one broker, whose next request begins at `starts_ms` and has `left_bytes` to send."""

    broker: int
    starts_ms: float
    left_bytes: float


@dataclass(slots=True)
class World:
    """One run of a scenario. A waiting client waits to the end of its throttle time, even if a share is raised
    meanwhile.
    """

    scenario: Scenario
    policy: Policy
    seed: int = 1
    report_ms: int = REPORT_MS
    brokers: list[Broker] = field(default_factory=list)
    shares: list[list[int]] = field(default_factory=list)
    _events: list[tuple[float, int]] = field(default_factory=list)
    _clients: list[Client] = field(default_factory=list)
    _phases: list[tuple[int, int, tuple[int, ...]]] = field(default_factory=list)

    def run(self) -> None:
        """Runs the scenario to its end."""
        scenario, random = self.scenario, Random(self.seed)
        self._phases = scenario.phases()
        if self.policy == "adaptive":
            self._run_pooled(random)
            return
        static = self._static_shares()
        self.brokers = [Broker(share, scenario.length_ms) for share in static]
        self.shares = [static]
        for broker in range(len(static)):
            for _ in range(scenario.clients_per_broker):
                self._clients.append(Client(broker, 0.0, scenario.request_bytes * random.random()))
        for number in range(len(self._clients)):
            self._schedule(number)
        for tick_ms in range(self.report_ms, scenario.length_ms + 1, self.report_ms):
            while self._events and self._events[0][0] < tick_ms:
                self._handle_arrival(*heapq.heappop(self._events))
            self._share_out(tick_ms, random)

    def _run_pooled(self, random: Random) -> None:
        scenario = self.scenario
        pooled = PooledBrokers(scenario.leaders, scenario.bought_bps)
        self.brokers = [Broker(part, scenario.length_ms) for part in pooled.parts]
        for broker in range(len(scenario.leaders)):
            for _ in range(scenario.clients_per_broker):
                self._clients.append(Client(broker, 0.0, scenario.request_bytes * random.random()))
        for number in range(len(self._clients)):
            self._schedule(number)
        while pooled.now_ms < scenario.length_ms:
            self._update_silent_brokers(pooled)
            while self._events and self._events[0][0] < pooled.now_ms:
                at_ms, number = heapq.heappop(self._events)
                self._admit_or_wait(pooled, number, at_ms)
            pooled.tick()
        for broker, steps in zip(self.brokers, pooled.admitted, strict=True):
            broker.admitted = steps[: scenario.length_ms // STEP_MS]

    def _update_silent_brokers(self, pooled: PooledBrokers) -> None:
        for broker_id in range(len(self.brokers)):
            if self.scenario.is_silent(broker_id, pooled.now_ms):
                pooled.silent_since_ms.setdefault(broker_id, pooled.now_ms)
            else:
                pooled.silent_since_ms.pop(broker_id, None)

    def _admit_or_wait(self, pooled: PooledBrokers, number: int, at_ms: float) -> None:
        """Handles a request that arrives or has waited: it is admitted, or waits again behind earlier requests."""
        client = self._clients[number]
        if pooled.admit(client.broker, self.scenario.request_bytes):
            client.starts_ms, client.left_bytes = at_ms, self.scenario.request_bytes
            self._schedule(number)
        else:
            heapq.heappush(self._events, (pooled.now_ms + TICK_MS * at_ms / (at_ms + 1), number))

    def _static_shares(self) -> list[int]:
        idle = [Demand(count, 0, 0) for count in self.scenario.leaders]
        return share_out("static", self.scenario.bought_bps, idle, [0] * len(idle))

    def _handle_arrival(self, now_ms: float, number: int) -> None:
        client = self._clients[number]
        delay_ms = self.brokers[client.broker].admit(self.scenario.request_bytes, int(now_ms))
        client.starts_ms, client.left_bytes = now_ms + delay_ms, self.scenario.request_bytes
        self._schedule(number)

    def _schedule(self, number: int) -> None:
        """Schedules the arrival of the client's request, at the speed of each phase."""
        client = self._clients[number]
        left_bytes = client.left_bytes
        for begin_ms, end_ms, demands in self._phases:
            if end_ms <= client.starts_ms:
                continue
            from_ms = max(client.starts_ms, begin_ms)
            bytes_per_ms = demands[client.broker] / self.scenario.clients_per_broker / 1000
            if bytes_per_ms * (end_ms - from_ms) >= left_bytes:
                heapq.heappush(self._events, (from_ms + left_bytes / bytes_per_ms, number))
                return
            left_bytes -= bytes_per_ms * (end_ms - from_ms)

    def _share_out(self, now_ms: int, random: Random) -> None:
        scenario, shares_before = self.scenario, self.shares[-1]
        errors = [ESTIMATE_FACTOR ** random.uniform(-1, 1) for _ in self.brokers]
        silent = [scenario.is_silent(broker_id, now_ms) for broker_id in range(len(self.brokers))]
        reports = [
            broker.report(leaders, self.report_ms, now_ms, error)
            for broker, leaders, error in zip(self.brokers, scenario.leaders, errors, strict=True)
        ]
        demands = [
            Demand(report.leaders, 0, 0) if is_silent else report
            for report, is_silent in zip(reports, silent, strict=True)
        ]
        reserved = [share if is_silent else None for share, is_silent in zip(shares_before, silent, strict=True)]
        shares = share_out_among(self.policy, scenario.bought_bps, demands, shares_before, reserved)
        self.shares.append(shares)
        for broker_id, (broker, static_share) in enumerate(zip(self.brokers, self._static_shares(), strict=True)):
            broker.unanswered = broker.unanswered + 1 if silent[broker_id] else 0
            if not silent[broker_id]:
                broker.set_share(shares[broker_id], now_ms)
            elif broker.unanswered >= UNANSWERED_MAX:
                broker.set_share(min(broker.share_bps, static_share), now_ms)
