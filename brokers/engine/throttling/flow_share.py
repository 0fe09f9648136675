"""This broker's share of one limit: by partitions, or as the flow master gave it (CKA-22, CKA-34, CKA-35). Pure; times
are monotonic milliseconds.

What the flow master gives holds for `LEASE_MS` from when it was asked for. Without an answer for so long the share is
the smaller one of the last and the static one: each broker falls back at a moment of its own, and whoever has the
larger part by partitions must not take it while another one still has what the master gave it.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from brokers.engine.throttling.charging import Limiter
from brokers.engine.throttling.demand import wanted_bps
from brokers.engine.throttling.layout import POOLED, STATIC
from brokers.engine.throttling.pool import Pool

INTERVAL_MS: Final = 1_000
# Where demand moves, reports are so far apart: a share follows it sooner, and what moves is little of all there is.
REPORT_MS: Final = INTERVAL_MS // 2
LEASE_MS: Final = 3 * INTERVAL_MS
# Less than this of an interval goes on into the next one: what began in its midst says little.
MEASURED_MS_MIN: Final = REPORT_MS * 4 // 5
UNMEASURED: Final = -1
# By then nobody has a share of a basis that was left: it was not answered any more.
REMEMBERED_MS: Final = LEASE_MS + INTERVAL_MS
# A share that moves by less than this part of it is reported with the next interval: 1 in so many.
CHANGE_PART: Final = 64

Reason = Literal["static", "follows_demand", "layout_changed", "no_answer", "not_reported"]


class ReportedFlow(NamedTuple):
    """As a broker reports it. `share_bps` is in force there; `admitted_bps` and `wanted_bps` of the last interval that
    it measured whole, `UNMEASURED` before the first one.
    """

    basis: int
    limit_bps: int
    share_bps: int
    admitted_bps: int
    wanted_bps: int


class FlowShare:
    """This broker's side of one limit. `limiter` None: no client here is under this limit so far.

    The limiter has the share that is in force. With the policy that pools, it has the broker's static part and the pool
    of the whole limit instead, and the share says what the flow master reckons to this broker by demand.
    """

    __slots__ = (
        "_admitted_bytes_before",
        "_answered_ms",
        "_began_ms",
        "_cap_bps",
        "_is_unheard",
        "_left",
        "_waited_ms_before",
        "admitted_bps",
        "basis",
        "given_bps",
        "has_moved",
        "has_to_say",
        "is_lost",
        "is_waiting",
        "limit_bps",
        "limiter",
        "policy",
        "pool",
        "share_bps",
        "static_bps",
        "wanted_bps",
        "whole_limit_per_s",
    )

    def __init__(self, limiter: Limiter | None, now_ms: int, pool: Pool | None = None) -> None:
        self.limiter = limiter
        self.pool = pool
        self.limit_bps = -1
        self.whole_limit_per_s = -1.0
        self.static_bps: float = 0
        # What the flow master gave, None while nothing is.
        self.given_bps: int | None = None
        self.share_bps: float = 0
        # Until the master answers, more than this may be somebody else's.
        self._cap_bps: float | None = None
        # What was in force with other bases lately, and until when.
        self._left: dict[int, tuple[float, int]] = {}
        self.basis = -1
        self.policy = STATIC
        self.admitted_bps = self.wanted_bps = 0
        # Not answered for too long.
        self.is_lost = False
        # What was reported last may be lost.
        self._is_unheard = False
        # More is due when others have given it up.
        self.is_waiting = False
        # The share is another one than the master knows of.
        self.has_to_say = False
        # The basis changed, and nothing was answered since.
        self.has_moved = False
        self._answered_ms = 0
        self._begin(now_ms)

    def rebase(self, limit_per_s: float, static_bps: float, basis: int, policy: str, now_ms: int) -> None:
        """The limit, who leads the partitions, or the policy is another one: back to the static share. Where a basis
        comes again, not beyond what was in force in it: a broker that saw nothing in between may have the rest.
        """
        if basis == self.basis and policy == self.policy and limit_per_s == self.whole_limit_per_s:
            return
        self.has_moved = self.basis != -1 and policy != STATIC
        self._left[self.basis] = self.share_bps, now_ms
        self._left = {left: kept for left, kept in self._left.items() if now_ms - kept[1] < REMEMBERED_MS}
        is_same_limit = limit_per_s == self.whole_limit_per_s
        if not is_same_limit and self.limiter is not None and self.given_bps is not None:
            # What was admitted under the share counts as the same part of the static one, before the limit changes.
            self.limiter.limit(self.static_bps, now_ms, self.whole_limit_per_s)
        self.limit_bps, self.whole_limit_per_s, self.static_bps = int(limit_per_s), limit_per_s, static_bps
        if self.pool is not None:
            self.pool.limit(limit_per_s, now_ms)
        self.basis, self.policy = basis, policy
        self.given_bps = None
        self.is_lost = self.is_waiting = self.has_to_say = self._is_unheard = False
        self.admitted_bps = self.wanted_bps = UNMEASURED if self.has_moved else 0
        left = self._left.get(basis)
        self._cap_bps = None if left is None or policy == STATIC else left[0]
        self._put_in_force(self._without_answer_bps, now_ms)
        self._begin(now_ms)

    @property
    def _without_answer_bps(self) -> float:
        return self.static_bps if self._cap_bps is None else min(self.static_bps, self._cap_bps)

    def use(self, limiter: Limiter, now_ms: int) -> None:
        """Somebody is under this limit here."""
        if self.limiter is not limiter:
            self.limiter = limiter
            self._put_in_force(self.share_bps, now_ms)
            self._begin(now_ms)

    def _put_in_force(self, share_bps: float, now_ms: int) -> None:
        self.share_bps = share_bps
        limiter = self.limiter
        if limiter is None:
            return
        if self.pool is not None and self.policy == POOLED and limiter.pace is not None:
            limiter.use_pool(self.pool)
            limiter.limit(self.static_bps, now_ms, self.whole_limit_per_s)
        else:
            limiter.use_pool(None)
            limiter.limit(share_bps, now_ms, self.whole_limit_per_s)

    def close(self) -> None:
        """Leaves the limiter to this broker's part alone."""
        if self.limiter is not None:
            self.limiter.use_pool(None)

    def _begin(self, now_ms: int) -> None:
        self._began_ms = now_ms
        limiter = self.limiter
        self._admitted_bytes_before = 0 if limiter is None else limiter.admitted_bytes
        self._waited_ms_before = 0 if limiter is None else waited_until(limiter, now_ms)

    # -- reports -------------------------------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Nobody moved or wanted anything in the last interval, and the master has nothing to hear."""
        is_unknown = self.given_bps is not None or self._cap_bps is not None or self.is_lost or self._is_unheard
        return not self.admitted_bps and not self.wanted_bps and not is_unknown

    @property
    def is_moving(self) -> bool:
        """Somebody waited for it here since the last report, or the flow master gave another one than the static."""
        limiter = self.limiter
        if limiter is None or self.policy == STATIC:
            return False
        is_given = self.given_bps is not None and self.given_bps != int(self.static_bps)
        return is_given or limiter.waits_until_ms > self._began_ms

    def measure(self, now_ms: int) -> bool:
        """Closes the interval; whether there is something to report."""
        limiter = self.limiter
        if limiter is None or (
            limiter.admitted_bytes == self._admitted_bytes_before and limiter.waits_until_ms <= self._began_ms
        ):
            if now_ms - self._began_ms >= MEASURED_MS_MIN:
                was_idle = self.is_idle
                self.admitted_bps = self.wanted_bps = 0
                self._began_ms = now_ms
                return not was_idle and self.policy != STATIC
            return not self.is_idle and self.policy != STATIC
        self._close(limiter, now_ms)
        return self.policy != STATIC

    def _close(self, limiter: Limiter | None, now_ms: int) -> None:
        interval_ms = now_ms - self._began_ms
        if limiter is None or interval_ms < MEASURED_MS_MIN:
            return
        admitted = limiter.admitted_bytes - self._admitted_bytes_before
        waited_ms = waited_until(limiter, now_ms) - self._waited_ms_before
        self.admitted_bps = max(0, admitted) * 1000 // interval_ms
        self.wanted_bps = wanted_bps(self.admitted_bps, waited_ms, interval_ms, int(self.share_bps))
        self._begin(now_ms)

    def report(self) -> ReportedFlow:
        self.has_to_say = False
        self._is_unheard = True
        return ReportedFlow(self.basis, self.limit_bps, int(self.share_bps), self.admitted_bps, self.wanted_bps)

    def answered(self, basis: int, share_bps: int, is_waiting: bool, asked_ms: int, now_ms: int) -> None:
        """The flow master's word, asked for at `asked_ms`. Of another basis, or too late, it says nothing."""
        if basis != self.basis or self.policy == STATIC or now_ms - asked_ms >= LEASE_MS:
            return
        is_at_rest = share_bps == int(self.share_bps) == int(self.static_bps)
        change_bps = abs(share_bps - int(self.share_bps))
        self.has_to_say = self.given_bps is None or change_bps * CHANGE_PART > share_bps
        self.is_waiting = is_waiting
        self.is_lost = self.has_moved = self._is_unheard = False
        self._cap_bps = None
        self._answered_ms = asked_ms
        if is_at_rest and not self.admitted_bps and not self.wanted_bps:
            # Nothing is wanted here, and the master knows that this is in force: it need not hear of it again.
            self.given_bps = None
            return
        self.given_bps = share_bps
        self._put_in_force(share_bps, now_ms)

    def expire(self, now_ms: int) -> bool:
        """CKA-35: whether the last answer is too old by now. Call often."""
        if self.given_bps is None or now_ms - self._answered_ms < LEASE_MS:
            return False
        self.is_lost, self.is_waiting = True, False
        self._cap_bps, self.given_bps = self.given_bps, None
        self._put_in_force(self._without_answer_bps, now_ms)
        return True

    @property
    def reason(self) -> Reason:
        """Why the share is what it is."""
        if self.policy == STATIC:
            return "static"
        if self.is_lost:
            return "no_answer"
        if self.given_bps is not None:
            return "follows_demand"
        return "layout_changed" if self.has_moved else "not_reported"


def waited_until(limiter: Limiter, now_ms: int) -> int:
    """Of the time that somebody waits for this limit, what has passed."""
    return limiter.waited_ms - max(0, limiter.waits_until_ms - now_ms)
