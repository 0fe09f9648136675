"""The pace of a limit that several brokers share, as one of them knows it (decision 110). Pure; times are monotonic
milliseconds.

The flow master keeps one pace for the whole limit. A broker adds up what it admits, sends the sum soon, and is answered
when everything charged so far, by all brokers, is paid. Between two answers it reckons with its own bytes alone.

    pool.charge(bytes)                         each admission
    outbox.take(now_ms)                        pools whose sums are due, for a request to the flow master
    pool.answered(due_in_us, ...)              its answer
    pool.debt_ms(now_ms)                       how long the whole limit is in debt; DELAY_MS_MAX while that is not known
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Final

from quotas.throttle import DELAY_MS_MAX

# Sums of a limit that somebody waits for are sent this often, and those of any other limit in use.
CHARGE_INTERVAL_MS: Final = 20
IDLE_CHARGE_INTERVAL_MS: Final = 1_000
# A limit counts as contended this long after somebody waited for it, on any broker.
CONTENDED_MS: Final = 3_000
# An answer that takes longer, or is older, says nothing: the broker's own part holds alone.
ANSWER_MS_MAX: Final = 250
KNOWN_MS: Final = 1_500
NEVER_MS: Final = -(2**62)

# Instance id, direction (0 produce, 1 consume), and the clients that share a client quota ("": the instance itself).
PoolKey = tuple[str, int, str]
# Begins the clients of a key that is about a topic's limit instead.
TOPIC_PREFIX: Final = "topic:"
# Makes the pool of an instance, by direction and clients.
NewPool = Callable[[int, str], "Pool"]


class Pool:
    """One limit. `limit_per_s` is the whole limit in bytes/s.

    Idle time is worth `burst_ms` where a limit is not pooled. Here the whole limit has two thirds of it, and the part
    of each broker, which comes on top where several begin together, one third.
    """

    __slots__ = (
        "_answered_ms",
        "_due_ms",
        "_outbox",
        "_sent_ms",
        "burst_ms",
        "contended_until_ms",
        "in_flight_bytes",
        "is_listed",
        "key",
        "limit_per_s",
        "on_answer",
        "unsent_bytes",
    )

    def __init__(self, key: PoolKey, outbox: PoolOutbox, burst_ms: int) -> None:
        self.key = key
        self._outbox = outbox
        self.burst_ms = burst_ms
        self.limit_per_s = 0.0
        # When everything known to be charged is paid, on this broker's clock; valid with an answer.
        self._due_ms = 0.0
        self._answered_ms = NEVER_MS
        self._sent_ms = NEVER_MS
        self.unsent_bytes = 0
        self.in_flight_bytes = 0
        self.contended_until_ms = NEVER_MS
        # Maintained by the outbox.
        self.is_listed = False
        # Called after an answer that changes what is owed.
        self.on_answer: Callable[[int], object] | None = None

    def limit(self, limit_per_s: float, now_ms: int) -> None:
        """Puts another whole limit in force: what is owed is owed in bytes."""
        before = self.limit_per_s
        if 0 < before != limit_per_s > 0 and self._due_ms > now_ms:
            self._due_ms = now_ms + (self._due_ms - now_ms) * before / limit_per_s
        self.limit_per_s = limit_per_s

    def charge(self, amount_bytes: int) -> None:
        """Adds admitted bytes, which the flow master hears of with the next request."""
        self.unsent_bytes += amount_bytes
        if not self.is_listed:
            self._outbox.add(self)

    def wait(self, now_ms: int) -> None:
        """Notes that the broker's own part does not suffice: the flow master is asked soon."""
        if self.contended_until_ms < now_ms + CONTENDED_MS:
            self.contended_until_ms = now_ms + CONTENDED_MS
        if not self.is_listed:
            self._outbox.add(self)
        self._outbox.hurry()

    def is_known(self, now_ms: int) -> bool:
        """True while the flow master's answers are recent enough to rely on."""
        if self.limit_per_s <= 0 or now_ms - self._answered_ms > KNOWN_MS:
            return False
        return not self.in_flight_bytes or now_ms - self._sent_ms <= ANSWER_MS_MAX

    def debt_ms(self, now_ms: int, later_bytes: int = 0) -> int:
        """Returns the time until the whole limit has paid for everything, but for the last `later_bytes`."""
        if not self.is_known(now_ms):
            return DELAY_MS_MAX
        due_ms, earliest_ms = self._due_ms, float(now_ms - pool_burst_ms(self.burst_ms))
        if due_ms < earliest_ms:
            due_ms = earliest_ms
        own_bytes = self.unsent_bytes + self.in_flight_bytes - later_bytes
        debt_ms = due_ms + own_bytes * 1000 / self.limit_per_s - now_ms
        return 0 if debt_ms <= 0 else min(ceil(debt_ms), DELAY_MS_MAX)

    # -- requests to the flow master -----------------------------------------------------------------------------------

    def is_due(self, now_ms: int, interval_ms: int) -> bool:
        """True if a request should leave: soon with bytes to charge, now and then without."""
        return now_ms - self._sent_ms >= (interval_ms if self.unsent_bytes else IDLE_CHARGE_INTERVAL_MS)

    def sent(self, now_ms: int) -> int:
        """Returns the bytes to charge with the request that leaves now."""
        self.in_flight_bytes, self.unsent_bytes, self._sent_ms = self.unsent_bytes, 0, now_ms
        return self.in_flight_bytes

    def lost(self) -> None:
        """Keeps the bytes of a request without an answer for the next one."""
        self.unsent_bytes += self.in_flight_bytes
        self.in_flight_bytes = 0

    def answered(self, due_in_us: int, is_contended: bool, now_ms: int) -> None:
        """Takes over when everything is paid, in microseconds from now, which is negative where bytes are to spare."""
        self.in_flight_bytes = 0
        self._due_ms = now_ms + due_in_us / 1000
        self._answered_ms = now_ms
        if is_contended and self.contended_until_ms < now_ms + CONTENDED_MS:
            self.contended_until_ms = now_ms + CONTENDED_MS
        if self.on_answer is not None:
            self.on_answer(now_ms)


def pool_burst_ms(burst_ms: int) -> int:
    """Returns what idle time of a whole limit is worth."""
    return burst_ms * 2 // 3


def part_burst_ms(burst_ms: int) -> int:
    """Returns what idle time of one broker's part of a pooled limit is worth."""
    return burst_ms // 3


class PoolOutbox:
    """The pools of a broker that were used since their last request. `on_hurry` is called when one is due at once."""

    __slots__ = ("_is_hurried", "_pools", "on_hurry")

    def __init__(self) -> None:
        self._pools: list[Pool] = []
        self._is_hurried = False
        self.on_hurry: Callable[[], object] | None = None

    def add(self, pool: Pool) -> None:
        pool.is_listed = True
        self._pools.append(pool)

    def hurry(self) -> None:
        if not self._is_hurried:
            self._is_hurried = True
            if self.on_hurry is not None:
                self.on_hurry()

    def take(self, now_ms: int, interval_ms: int = CHARGE_INTERVAL_MS) -> list[Pool]:
        """Returns the pools to send now. Contended ones stay listed, so that what is known of them stays recent."""
        self._is_hurried = False
        due: list[Pool] = []
        kept: list[Pool] = []
        for pool in self._pools:
            is_contended = pool.contended_until_ms > now_ms
            is_due = pool.is_due(now_ms, interval_ms if is_contended else IDLE_CHARGE_INTERVAL_MS)
            if is_due:
                due.append(pool)
            if is_contended or not is_due:
                kept.append(pool)
            else:
                pool.is_listed = False
        self._pools = kept
        return due

    def contended(self, now_ms: int) -> int:
        """Number of pools with bytes to send that somebody waits for."""
        return sum(1 for pool in self._pools if pool.unsent_bytes and pool.contended_until_ms > now_ms)

    def __len__(self) -> int:
        return len(self._pools)
