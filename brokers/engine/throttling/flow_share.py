"""This broker's share of one limit: by partitions, or assigned by the flow master (CKA-22, CKA-34, CKA-35). Pure.

Times are monotonic milliseconds. A share from the flow master is valid for `LEASE_MS` from the request for it. Without
a newer answer by then, the smaller one of this share and the static share applies. Brokers fall back at different
times, so a broker whose static share is larger must not use it while another broker still has its share from the flow
master.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from brokers.engine.throttling.charging import Limiter
from brokers.engine.throttling.demand import estimate_demand_bps
from brokers.engine.throttling.layout import POOLED, STATIC
from brokers.engine.throttling.pool import Pool

INTERVAL_MS: Final = 1_000
# Interval between reports of limits whose demand changes, so that their shares follow sooner; few limits do so at a
# time.
REPORT_MS: Final = INTERVAL_MS // 2
LEASE_MS: Final = 3 * INTERVAL_MS
# A shorter measurement is continued into the next interval, because its rates would be too inaccurate.
MEASURED_MS_MIN: Final = REPORT_MS * 4 // 5
UNMEASURED: Final = -1
# After this time every lease of a share under a former basis has expired, on every broker.
REMEMBERED_MS: Final = LEASE_MS + INTERVAL_MS
# A change of a share by less than 1/64 of it waits for the next interval's report.
CHANGE_PART: Final = 64

Reason = Literal["static", "follows_demand", "layout_changed", "no_answer", "not_reported"]


class ReportedFlow(NamedTuple):
    """Report of a broker on one limit.

    `share_bps` is the share in force there. `admitted_bps` and `wanted_bps` are those of the last complete measurement,
    `UNMEASURED` before the first one.
    """

    basis: int
    limit_bps: int
    share_bps: int
    admitted_bps: int
    wanted_bps: int


class FlowShare:
    """This broker's share of one limit, and its exchange with the flow master about it.

    The share in force is set on the limiter. With the pooled policy the limiter has the broker's static part and the
    pool of the whole limit instead, and the share is only what the flow master attributes to this broker by demand.

    Attributes:
        limiter: the limiter on this broker, None until a client uses the limit here.
        assigned_bps: the share from the flow master, None without a valid one.
        share_bps: the share in force.
        static_bps: the share by partitions.
        has_lease_expired: True if the lease of the last share ran out without an answer.
        is_waiting: True if the flow master will raise the share once other brokers have lowered theirs.
        has_unreported_change: True if the share in force differs from the one that the flow master knows.
        has_basis_changed: True from a change of the basis until the next answer.
    """

    __slots__ = (
        "_admitted_bytes_before",
        "_answered_ms",
        "_began_ms",
        "_cap_bps",
        "_former_shares",
        "_is_report_unanswered",
        "_waited_ms_before",
        "admitted_bps",
        "assigned_bps",
        "basis",
        "has_basis_changed",
        "has_lease_expired",
        "has_unreported_change",
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
        self.assigned_bps: int | None = None
        self.share_bps: float = 0
        # Upper bound of the share until the flow master answers: more may belong to another broker.
        self._cap_bps: float | None = None
        # Shares in force under former bases, with the time at which each basis was left.
        self._former_shares: dict[int, tuple[float, int]] = {}
        self.basis = -1
        self.policy = STATIC
        self.admitted_bps = self.wanted_bps = 0
        self.has_lease_expired = False
        # True after a report until it is answered: it may have been lost.
        self._is_report_unanswered = False
        self.is_waiting = False
        self.has_unreported_change = False
        self.has_basis_changed = False
        self._answered_ms = 0
        self._begin_measuring(now_ms)

    def rebase(self, limit_per_s: float, static_bps: float, basis: int, policy: str, now_ms: int) -> None:
        """Returns to the static share after a change of the limit, of the partitions' leaders or of the policy.

        If a former basis comes back, the share is at most the one that was in force under it: a broker that did not see
        the change may still use the rest.
        """
        if basis == self.basis and policy == self.policy and limit_per_s == self.whole_limit_per_s:
            return
        self.has_basis_changed = self.basis != -1 and policy != STATIC
        self._former_shares[self.basis] = self.share_bps, now_ms
        self._former_shares = {
            former: former_share
            for former, former_share in self._former_shares.items()
            if now_ms - former_share[1] < REMEMBERED_MS
        }
        is_same_limit = limit_per_s == self.whole_limit_per_s
        if not is_same_limit and self.limiter is not None and self.assigned_bps is not None:
            # Scales the samples from the assigned share to the static one, before the whole limit changes.
            self.limiter.set_limit(self.static_bps, now_ms, self.whole_limit_per_s)
        self.limit_bps, self.whole_limit_per_s, self.static_bps = int(limit_per_s), limit_per_s, static_bps
        if self.pool is not None:
            self.pool.set_limit(limit_per_s, now_ms)
        self.basis, self.policy = basis, policy
        self.assigned_bps = None
        self.has_lease_expired = self.is_waiting = self.has_unreported_change = self._is_report_unanswered = False
        self.admitted_bps = self.wanted_bps = UNMEASURED if self.has_basis_changed else 0
        former = self._former_shares.get(basis)
        self._cap_bps = None if former is None or policy == STATIC else former[0]
        self._apply_share(self._fallback_bps, now_ms)
        self._begin_measuring(now_ms)

    @property
    def _fallback_bps(self) -> float:
        return self.static_bps if self._cap_bps is None else min(self.static_bps, self._cap_bps)

    def attach_limiter(self, limiter: Limiter, now_ms: int) -> None:
        """Attaches the limiter of this broker's clients."""
        if self.limiter is not limiter:
            self.limiter = limiter
            self._apply_share(self.share_bps, now_ms)
            self._begin_measuring(now_ms)

    def _apply_share(self, share_bps: float, now_ms: int) -> None:
        self.share_bps = share_bps
        limiter = self.limiter
        if limiter is None:
            return
        if self.pool is not None and self.policy == POOLED and limiter.pace is not None:
            limiter.use_pool(self.pool)
            limiter.set_limit(self.static_bps, now_ms, self.whole_limit_per_s)
        else:
            limiter.use_pool(None)
            limiter.set_limit(share_bps, now_ms, self.whole_limit_per_s)

    def close(self) -> None:
        """Detaches the pool from the limiter, so that this broker's part applies alone."""
        if self.limiter is not None:
            self.limiter.use_pool(None)

    def _begin_measuring(self, now_ms: int) -> None:
        self._began_ms = now_ms
        limiter = self.limiter
        self._admitted_bytes_before = 0 if limiter is None else limiter.admitted_bytes
        self._waited_ms_before = 0 if limiter is None else waited_ms_until(limiter, now_ms)

    # -- reports -------------------------------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """True if there was no traffic and no demand in the last interval, and nothing to report."""
        is_unknown = (
            self.assigned_bps is not None
            or self._cap_bps is not None
            or self.has_lease_expired
            or self._is_report_unanswered
        )
        return not self.admitted_bps and not self.wanted_bps and not is_unknown

    @property
    def reports_often(self) -> bool:
        """True if the limit is reported every `REPORT_MS`: a client waited for it since the last report, or the share
        differs from the static one.
        """
        limiter = self.limiter
        if limiter is None or self.policy == STATIC:
            return False
        is_assigned = self.assigned_bps is not None and self.assigned_bps != int(self.static_bps)
        return is_assigned or limiter.waits_until_ms > self._began_ms

    def measure(self, now_ms: int) -> bool:
        """Ends the measuring interval if it is long enough; returns True if there is something to report."""
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
        self._end_measuring(limiter, now_ms)
        return self.policy != STATIC

    def _end_measuring(self, limiter: Limiter | None, now_ms: int) -> None:
        interval_ms = now_ms - self._began_ms
        if limiter is None or interval_ms < MEASURED_MS_MIN:
            return
        admitted = limiter.admitted_bytes - self._admitted_bytes_before
        waited_ms = waited_ms_until(limiter, now_ms) - self._waited_ms_before
        self.admitted_bps = max(0, admitted) * 1000 // interval_ms
        self.wanted_bps = estimate_demand_bps(self.admitted_bps, waited_ms, interval_ms, int(self.share_bps))
        self._begin_measuring(now_ms)

    def report(self) -> ReportedFlow:
        """Returns the report to send to the flow master, with the last complete measurement."""
        self.has_unreported_change = False
        self._is_report_unanswered = True
        return ReportedFlow(self.basis, self.limit_bps, int(self.share_bps), self.admitted_bps, self.wanted_bps)

    def apply_answer(self, basis: int, share_bps: int, is_waiting: bool, requested_ms: int, now_ms: int) -> None:
        """Applies the flow master's answer to the request that was sent at `requested_ms`. An answer that is too late,
        or of another basis, is ignored.
        """
        if basis != self.basis or self.policy == STATIC or now_ms - requested_ms >= LEASE_MS:
            return
        is_at_rest = share_bps == int(self.share_bps) == int(self.static_bps)
        change_bps = abs(share_bps - int(self.share_bps))
        self.has_unreported_change = self.assigned_bps is None or change_bps * CHANGE_PART > share_bps
        self.is_waiting = is_waiting
        self.has_lease_expired = self.has_basis_changed = self._is_report_unanswered = False
        self._cap_bps = None
        self._answered_ms = requested_ms
        if is_at_rest and not self.admitted_bps and not self.wanted_bps:
            # There is no demand here, and the flow master knows the share in force, so no report is needed.
            self.assigned_bps = None
            return
        self.assigned_bps = share_bps
        self._apply_share(share_bps, now_ms)

    def expire(self, now_ms: int) -> bool:
        """Falls back if the lease of the last answer has run out (CKA-35), and returns True then.

        The caller repeats this several times within a lease.
        """
        if self.assigned_bps is None or now_ms - self._answered_ms < LEASE_MS:
            return False
        self.has_lease_expired, self.is_waiting = True, False
        self._cap_bps, self.assigned_bps = self.assigned_bps, None
        self._apply_share(self._fallback_bps, now_ms)
        return True

    @property
    def reason(self) -> Reason:
        """Reason for the share in force."""
        if self.policy == STATIC:
            return "static"
        if self.has_lease_expired:
            return "no_answer"
        if self.assigned_bps is not None:
            return "follows_demand"
        return "layout_changed" if self.has_basis_changed else "not_reported"


def waited_ms_until(limiter: Limiter, now_ms: int) -> int:
    """Returns the time that clients have waited for a limit up to now, without the future part of their waits."""
    return limiter.waited_ms - max(0, limiter.waits_until_ms - now_ms)
