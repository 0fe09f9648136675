"""A broker's view of the pace of a limit that several brokers share (decision 110). Pure; times are monotonic
milliseconds.

The flow master keeps one pace for the whole limit. A broker sums up the bytes that it admits, sends the sum after a
short interval, and the answer is the time at which everything that all brokers have charged so far is paid. Between two
answers the broker adds only its own bytes.

    pool.charge(bytes)                         each admission
    outbox.take_due_pools(now_ms)              pools whose sums are due, for a request to the flow master
    pool.apply_answer(due_in_us, ...)              its answer
    pool.debt_ms(now_ms)                       time until the whole limit is paid; DELAY_MS_MAX while it is not known
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Final

from quotas.throttle import DELAY_MS_MAX

# Interval between requests for a limit that clients wait for, and for any other limit in use.
CHARGE_INTERVAL_MS: Final = 20
IDLE_CHARGE_INTERVAL_MS: Final = 1_000
# A limit counts as contended for this long after a client waited for it, on any broker.
CONTENDED_MS: Final = 3_000
# An answer that takes longer, or is older, is ignored: the broker's own part applies alone.
ANSWER_MS_MAX: Final = 250
ANSWER_VALID_MS: Final = 1_500
NEVER_MS: Final = -(2**62)

# Instance id, direction (0 produce, 1 consume), and the sharing group of a client quota ("" for the instance itself).
PoolKey = tuple[str, int, str]
# Prefix of the last part of a key for the limit of a topic.
TOPIC_PREFIX: Final = "topic:"
# Function that makes a pool of an instance for a direction and a sharing group.
NewPool = Callable[[int, str], "Pool"]


class Pool:
    """Pace of one shared limit on this broker. `limit_per_s` is the whole limit in bytes/s.

    The burst of `burst_ms` is divided: the whole limit gets two thirds, and the part of each broker one third, since
    these parts add to the burst when several brokers begin together.
    """

    __slots__ = (
        "_answered_ms",
        "_due_ms",
        "_outbox",
        "_sent_ms",
        "burst_ms",
        "contended_until_ms",
        "in_flight_bytes",
        "is_in_outbox",
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
        # Time on this broker's clock at which all known charges are paid; valid after an answer.
        self._due_ms = 0.0
        self._answered_ms = NEVER_MS
        self._sent_ms = NEVER_MS
        self.unsent_bytes = 0
        self.in_flight_bytes = 0
        self.contended_until_ms = NEVER_MS
        # Set by the outbox.
        self.is_in_outbox = False
        # Called after an answer, which may change the debt.
        self.on_answer: Callable[[int], object] | None = None

    def set_limit(self, limit_per_s: float, now_ms: int) -> None:
        """Sets another whole limit. The debt stays the same in bytes, so its time is scaled."""
        previous_limit = self.limit_per_s
        if 0 < previous_limit != limit_per_s > 0 and self._due_ms > now_ms:
            self._due_ms = now_ms + (self._due_ms - now_ms) * previous_limit / limit_per_s
        self.limit_per_s = limit_per_s

    def charge(self, amount_bytes: int) -> None:
        """Adds admitted bytes, which are sent to the flow master with the next request."""
        self.unsent_bytes += amount_bytes
        if not self.is_in_outbox:
            self._outbox.add(self)

    def mark_contended(self, now_ms: int) -> None:
        """Marks the limit as contended because the broker's own part does not suffice; a request follows soon."""
        if self.contended_until_ms < now_ms + CONTENDED_MS:
            self.contended_until_ms = now_ms + CONTENDED_MS
        if not self.is_in_outbox:
            self._outbox.add(self)
        self._outbox.request_soon()

    def is_current(self, now_ms: int) -> bool:
        """True while the flow master's answers are recent enough to rely on."""
        if self.limit_per_s <= 0 or now_ms - self._answered_ms > ANSWER_VALID_MS:
            return False
        return not self.in_flight_bytes or now_ms - self._sent_ms <= ANSWER_MS_MAX

    def debt_ms(self, now_ms: int, excluded_bytes: int = 0) -> int:
        """Returns the time until the whole limit has paid for all but the last `excluded_bytes`, in milliseconds."""
        if not self.is_current(now_ms):
            return DELAY_MS_MAX
        due_ms, earliest_ms = self._due_ms, float(now_ms - pool_burst_ms(self.burst_ms))
        if due_ms < earliest_ms:
            due_ms = earliest_ms
        own_bytes = self.unsent_bytes + self.in_flight_bytes - excluded_bytes
        debt_ms = due_ms + own_bytes * 1000 / self.limit_per_s - now_ms
        return 0 if debt_ms <= 0 else min(ceil(debt_ms), DELAY_MS_MAX)

    # -- requests to the flow master -----------------------------------------------------------------------------------

    def is_due(self, now_ms: int, interval_ms: int) -> bool:
        """True if a request is due: after `interval_ms` with bytes to charge, after a longer interval without."""
        return now_ms - self._sent_ms >= (interval_ms if self.unsent_bytes else IDLE_CHARGE_INTERVAL_MS)

    def begin_request(self, now_ms: int) -> int:
        """Marks the unsent bytes as in flight and returns them, for the request that leaves now."""
        self.in_flight_bytes, self.unsent_bytes, self._sent_ms = self.unsent_bytes, 0, now_ms
        return self.in_flight_bytes

    def on_request_failed(self) -> None:
        """Returns the bytes of an unanswered request to the unsent ones."""
        self.unsent_bytes += self.in_flight_bytes
        self.in_flight_bytes = 0

    def apply_answer(self, due_in_us: int, is_contended: bool, now_ms: int) -> None:
        """Applies an answer: the time until all charges are paid, in microseconds, negative if bytes are left over."""
        self.in_flight_bytes = 0
        self._due_ms = now_ms + due_in_us / 1000
        self._answered_ms = now_ms
        if is_contended and self.contended_until_ms < now_ms + CONTENDED_MS:
            self.contended_until_ms = now_ms + CONTENDED_MS
        if self.on_answer is not None:
            self.on_answer(now_ms)


def pool_burst_ms(burst_ms: int) -> int:
    """Returns the part of a burst that the pace of the whole limit has."""
    return burst_ms * 2 // 3


def part_burst_ms(burst_ms: int) -> int:
    """Returns the part of a burst that the pace of one broker's part of a pooled limit has."""
    return burst_ms // 3


class PoolOutbox:
    """Pools of a broker that were used since their last request.

    `on_request_due` is called when a request must be sent soon.
    """

    __slots__ = ("_is_request_due", "_pools", "on_request_due")

    def __init__(self) -> None:
        self._pools: list[Pool] = []
        self._is_request_due = False
        self.on_request_due: Callable[[], object] | None = None

    def add(self, pool: Pool) -> None:
        """Lists a pool for the next request."""
        pool.is_in_outbox = True
        self._pools.append(pool)

    def request_soon(self) -> None:
        """Calls `on_request_due`, once until the next `take_due_pools`."""
        if not self._is_request_due:
            self._is_request_due = True
            if self.on_request_due is not None:
                self.on_request_due()

    def take_due_pools(self, now_ms: int, interval_ms: int = CHARGE_INTERVAL_MS) -> list[Pool]:
        """Returns the pools whose request is due. Contended pools stay listed, so that their answers stay recent."""
        self._is_request_due = False
        due_pools: list[Pool] = []
        remaining_pools: list[Pool] = []
        for pool in self._pools:
            is_contended = pool.contended_until_ms > now_ms
            is_due = pool.is_due(now_ms, interval_ms if is_contended else IDLE_CHARGE_INTERVAL_MS)
            if is_due:
                due_pools.append(pool)
            if is_contended or not is_due:
                remaining_pools.append(pool)
            else:
                pool.is_in_outbox = False
        self._pools = remaining_pools
        return due_pools

    def contended_count(self, now_ms: int) -> int:
        """Returns the number of contended pools that have bytes to send."""
        return sum(1 for pool in self._pools if pool.unsent_bytes and pool.contended_until_ms > now_ms)

    def __len__(self) -> int:
        return len(self._pools)
