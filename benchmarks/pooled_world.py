"""Brokers that share one limit through a flow master, with the limiters, pools and paces of the brokers.

brokers = PooledBrokers((1, 1, 1), limit_bps=5_000_000, trip_ms=2)
brokers.admit(0, size_bytes)      True if there was no debt: the bytes are charged
brokers.tick()                    5 ms pass; requests to the flow master are sent and answered
"""

from __future__ import annotations

from typing import Final

from brokers.engine.flowmaster.pools import SILENT_MS, PoolCharge, PoolLedger
from brokers.engine.throttling.charging import Limiter, Rule, charge
from brokers.engine.throttling.pool import Pool, PoolKey, PoolOutbox
from quotas.allocation import allocate
from quotas.pacing import BURST_MS, Pace

KEY: Final[PoolKey] = ("ins-aaaaaaaa", 0, "")
RULE: Final = Rule("instance_bandwidth", "producer_byte_rate", None, None)
TICK_MS: Final = 5
STEP_MS: Final = 100
SPAN_STEPS: Final = 10_000 // STEP_MS


class PooledBrokers:
    """Brokers of one instance that lead `leaders` partitions each; the flow master's response takes `trip_ms`."""

    def __init__(self, leaders: tuple[int, ...], limit_bps: int, trip_ms: int = 2) -> None:
        self.limit_bps, self.trip_ms, self.now_ms = limit_bps, trip_ms, 0
        self.parts = allocate(limit_bps, list(leaders), [0] * len(leaders), "static")
        self.ledger = PoolLedger()
        self.outboxes = [PoolOutbox() for _ in leaders]
        self.limiters = [self._limiter(part, outbox) for part, outbox in zip(self.parts, self.outboxes, strict=True)]
        # Time since which a broker has not reached the flow master, by broker.
        self.silent_since_ms: dict[int, int] = {}
        # Bytes admitted in each step, by broker.
        self.admitted: list[list[int]] = [[0] for _ in leaders]
        self._answers: list[tuple[int, Pool, int, bool]] = []

    def _limiter(self, part_bps: int, outbox: PoolOutbox) -> Limiter:
        pool = Pool(KEY, outbox, BURST_MS)
        pool.set_limit(self.limit_bps, 0)
        limiter = Limiter(RULE, part_bps, 0, Pace(BURST_MS))
        limiter.set_limit(part_bps, 0, self.limit_bps)
        limiter.use_pool(pool)
        return limiter

    def admit(self, broker: int, size_bytes: int) -> bool:
        """Charges a request if there is no debt; returns whether it was admitted."""
        limiter = self.limiters[broker]
        if limiter.debt_ms(self.now_ms):
            return False
        charge((limiter,), size_bytes, self.now_ms)
        self.admitted[broker][-1] += size_bytes
        return True

    def tick(self) -> None:
        """Advances the clock by `TICK_MS`; sends due requests to the flow master and applies its answers."""
        self.now_ms += TICK_MS
        if self.now_ms % STEP_MS == 0:
            for steps in self.admitted:
                steps.append(0)
        silent_bps = sum(
            self.parts[id] for id, since in self.silent_since_ms.items() if self.now_ms - since >= SILENT_MS
        )
        for broker, outbox in enumerate(self.outboxes):
            for pool in () if broker in self.silent_since_ms else outbox.take_due_pools(self.now_ms):
                charge_request = PoolCharge(
                    self.limit_bps, pool.begin_request(self.now_ms), pool.contended_until_ms > self.now_ms
                )
                answer = self.ledger.charge(KEY, charge_request, self.now_ms, silent_bps)
                assert answer is not None, "an instance's bandwidth always has a place"
                self._answers.append((self.now_ms + self.trip_ms, pool, answer.due_in_us, answer.is_contended))
        for at_ms, pool, due_in_us, is_contended in self._answers:
            if at_ms <= self.now_ms:
                pool.apply_answer(due_in_us - self.trip_ms * 1000, is_contended, self.now_ms)
        self._answers = [answer for answer in self._answers if answer[0] > self.now_ms]

    def admitted_between(self, begin_ms: int, end_ms: int) -> int:
        """Returns the bytes admitted by all brokers between two times."""
        return sum(sum(steps[begin_ms // STEP_MS : end_ms // STEP_MS]) for steps in self.admitted)

    def peak_bytes_in_10_s(self) -> int:
        """Returns the admitted bytes of the ten seconds with the most bytes."""
        steps = [sum(step) for step in zip(*self.admitted, strict=True)]
        return max(sum(steps[first : first + SPAN_STEPS]) for first in range(max(1, len(steps) - SPAN_STEPS)))
