"""Shares of bandwidth limits on the flow master (CKA-22, CKA-34 to CKA-38). Pure.

The shares in force never exceed the limit in total, however late reports and responses are, and even if some are lost.
For each broker the ledger has the maximum that can be in force there: the larger of its reported share and the share
that it was offered since. A share is lowered at once. It is raised only by bandwidth that other brokers have reported
to be free. A broker that falls back on its own never uses more than it had; so the part of a silent broker stays
reserved, without any timeout.

A share has a *basis* (`layout.Layout.basis`): the limit, the policy, and the number of partitions that each live broker
leads. A new basis starts again with the static shares, whose total is the limit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final, NamedTuple, cast

from brokers.engine.throttling.client_shares import KEYS_MAX
from brokers.engine.throttling.flow_share import INTERVAL_MS, LEASE_MS, REPORT_MS, ReportedFlow
from brokers.engine.throttling.layout import Layout
from quotas.adaptive import Demand
from quotas.policies import Policy, share_out

# Time after which a share from an earlier flow master, or for another basis, is no longer in force anywhere.
WAIT_MS: Final = LEASE_MS + INTERVAL_MS
# A broker without a report for this time keeps its last share, and the others share the rest (CKA-35).
SILENT_MS: Final = 2 * INTERVAL_MS + INTERVAL_MS // 2
# Shares are recomputed after an interval, and at once if a demand changes by more than 1 part in CHANGE_PART.
DECISION_INTERVAL_MS: Final = REPORT_MS * 9 // 10
CHANGE_DIVISOR: Final = 8
# While every demand is below this percentage of the static share, the static shares apply (CKA-28).
BUSY_PERCENT: Final = 80
# If a silent broker leaves the others less than 1 part in REMAINDER_PART of their static shares, no share changes.
REMAINDER_DIVISOR: Final = 20
# Time without reports after which a limit is forgotten; brokers with an assigned share report it every second.
UNREPORTED_MS: Final = 10 * INTERVAL_MS
# Maximum number of unreported limits in one response.
REVIEWS_PER_ANSWER_MAX: Final = 200

# Instance id, direction, and the clients that share a client quota ("": the instance's bandwidth).
FlowKey = tuple[str, int, str]


class ShareAnswer(NamedTuple):
    """Response to one reported limit; `is_waiting` is True if the share rises once other brokers release theirs."""

    basis: int
    limit_bps: int
    share_bps: int
    is_waiting: bool


@dataclass(slots=True)
class _Part:
    """One broker's part of a limit.

    `in_force_bps` is the last reported share, and `offered_bps` the last share that the broker was sent since.
    `has_reported` is True if the broker has reported since the account was opened, `is_measured` if its last report has
    a measured rate. `demand_at_decision_bps` is the demand for which shares were last computed.
    """

    in_force_bps: int
    offered_bps: int
    demand: Demand
    has_reported: bool = False
    is_measured: bool = True
    demand_at_decision_bps: int = 0

    @property
    def bps_max(self) -> int:
        """Maximum share that can be in force on the broker."""
        return max(self.in_force_bps, self.offered_bps)


@dataclass(slots=True)
class _Account:
    """State of one limit; `targets_bps` is None until everything needed to compute shares is known."""

    basis: int
    limit_bps: int
    layout: Layout
    static_bps: dict[int, int]
    began_ms: int
    parts: dict[int, _Part]
    targets_bps: dict[int, int] | None = None
    decided_ms: int = 0
    reported_ms: int = 0

    @property
    def budget_bps(self) -> int:
        """Bandwidth to distribute; the policy `literal` may promise more than was bought (CKA-31)."""
        return max(self.limit_bps, sum(self.targets_bps.values()) if self.targets_bps is not None else 0)


@dataclass(slots=True)
class _Reporter:
    """Last report of a live broker."""

    epoch: int
    sequence: int
    reported_ms: int
    # Limits to include in its response even if it does not report them.
    to_review: set[FlowKey] = field(default_factory=set)


class FlowLedger:
    """Shares of all limits in one epoch of a flow master; a new epoch starts empty.

    Times are monotonic milliseconds.
    """

    def __init__(self, began_ms: int) -> None:
        self._began_ms = began_ms
        self._accounts: dict[FlowKey, _Account] = {}
        self._reporters: dict[int, _Reporter] = {}
        self._client_keys: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._accounts)

    def set_live_brokers(self, live: Collection[int]) -> None:
        """Forgets brokers that are gone; the layouts do not name them either (CKA-35)."""
        for broker_id in [known for known in self._reporters if known not in live]:
            del self._reporters[broker_id]

    def sweep(self, now_ms: int) -> None:
        """Forgets limits that are no longer reported; all their shares have expired by then. Called periodically."""
        for key in [key for key, account in self._accounts.items() if now_ms - account.reported_ms >= UNREPORTED_MS]:
            self._remove_account(key)

    def begin_report(self, broker_id: int, epoch: int, sequence: int, now_ms: int) -> bool:
        """Begins a report, whose lines follow; returns False if it is older than the last one and must be ignored."""
        reporter = self._reporters.get(broker_id)
        if reporter is None or epoch > reporter.epoch:
            self._reporters[broker_id] = _Reporter(epoch, sequence, now_ms)
            return True
        if epoch < reporter.epoch or sequence <= reporter.sequence:
            return False
        reporter.sequence, reporter.reported_ms = sequence, now_ms
        return True

    def handle_report(
        self, broker_id: int, key: FlowKey, flow: ReportedFlow, layout: Layout, now_ms: int
    ) -> ShareAnswer | None:
        """Handles one reported limit and returns the broker's share.

        Returns None, so that the broker falls back to a share of its own, if the broker and the flow master see the
        cluster differently, or if the instance has limits for too many clients.
        """
        if broker_id not in layout.leaders or flow.basis != layout.basis(flow.limit_bps):
            return None
        account = self._accounts.get(key)
        if account is None or account.basis != flow.basis:
            static_bps = layout.static_bps(flow.limit_bps)
            if account is None and _is_at_rest(flow, static_bps[broker_id]):
                return ShareAnswer(flow.basis, flow.limit_bps, flow.share_bps, False)
            account = self._open_account(key, flow, layout, static_bps, now_ms)
            if account is None:
                return None
        account.reported_ms = now_ms
        part = account.parts[broker_id]
        part.in_force_bps = part.offered_bps = flow.share_bps
        part.has_reported, part.is_measured = True, flow.admitted_bps >= 0
        admitted_bps = max(0, flow.admitted_bps)
        part.demand = Demand(part.demand.leaders, admitted_bps, max(admitted_bps, flow.wanted_bps))
        self._update_targets(account, part, now_ms)
        answer = self._next_share(account, broker_id, now_ms)
        part.offered_bps = answer.share_bps
        if self._is_idle(account):
            self._remove_account(key)
        else:
            self._mark_for_review(key, account, broker_id)
        return answer

    def limits_to_review(self, broker_id: int) -> list[FlowKey]:
        """Removes and returns limits that the broker did not report and whose share it must get, for `review`."""
        reporter = self._reporters[broker_id]
        result = sorted(reporter.to_review)[:REVIEWS_PER_ANSWER_MAX]
        reporter.to_review.difference_update(result)
        return result

    def review(self, broker_id: int, key: FlowKey, now_ms: int) -> ShareAnswer | None:
        """Returns the share of a limit that the broker did not report."""
        account = self._accounts.get(key)
        part = None if account is None else account.parts.get(broker_id)
        if account is None or part is None:
            return None
        self._update_targets(account, part, now_ms)
        answer = self._next_share(account, broker_id, now_ms)
        # The previous offer may be in force by now, or lost.
        part.offered_bps = max(part.offered_bps, answer.share_bps)
        return answer

    # -- accounts ------------------------------------------------------------------------------------------------------

    def _open_account(
        self, key: FlowKey, flow: ReportedFlow, layout: Layout, static_bps: dict[int, int], now_ms: int
    ) -> _Account | None:
        instance_id, _, clients = key
        if clients and key not in self._accounts:
            if self._client_keys[instance_id] >= KEYS_MAX:
                return None
            self._client_keys[instance_id] += 1
        parts = {
            id: _Part(static_bps[id], static_bps[id], Demand(leaders, 0, 0)) for id, leaders in layout.leaders.items()
        }
        account = _Account(flow.basis, flow.limit_bps, layout, static_bps, now_ms, parts)
        self._accounts[key] = account
        return account

    def _remove_account(self, key: FlowKey) -> None:
        del self._accounts[key]
        if key[2]:
            self._client_keys[key[0]] -= 1
            self._client_keys += Counter()

    def _mark_for_review(self, key: FlowKey, account: _Account, reporting: int) -> None:
        """Marks the limit for the responses of other brokers that have not reported it, or whose share has changed."""
        for broker_id, part in account.parts.items():
            reporter = self._reporters.get(broker_id)
            if broker_id == reporting or reporter is None:
                continue
            target_bps = None if account.targets_bps is None else account.targets_bps[broker_id]
            if not part.has_reported or target_bps not in (None, part.in_force_bps):
                reporter.to_review.add(key)

    @staticmethod
    def _is_idle(account: _Account) -> bool:
        """True if there is no demand and every share is static, as if nothing had been reported."""
        return all(
            part.is_measured and not part.demand.wanted_bps and part.bps_max == account.static_bps[broker_id]
            for broker_id, part in account.parts.items()
        )

    # -- decisions -----------------------------------------------------------------------------------------------------

    def _update_targets(self, account: _Account, part: _Part, now_ms: int) -> None:
        """Computes the target shares of all brokers, unless they are recent and the demand of `part` is unchanged."""
        change_bps = abs(part.demand.wanted_bps - part.demand_at_decision_bps)
        if (
            account.targets_bps is not None
            and now_ms - account.decided_ms < DECISION_INTERVAL_MS
            and change_bps * CHANGE_DIVISOR <= part.demand_at_decision_bps
        ):
            return
        if not self._is_demand_known(account, now_ms):
            account.targets_bps = None
            return
        account.decided_ms = now_ms
        for member_part in account.parts.values():
            member_part.demand_at_decision_bps = member_part.demand.wanted_bps
        account.targets_bps = self._compute_targets(account, now_ms)

    def _has_waited(self, account: _Account, now_ms: int) -> bool:
        return now_ms - max(self._began_ms, account.began_ms) >= WAIT_MS

    def _is_demand_known(self, account: _Account, now_ms: int) -> bool:
        """True if every broker of the limit has reported since it was opened, or the waiting time is over (CKA-36)."""
        if self._has_waited(account, now_ms):
            return True
        reporters = (self._reporters.get(broker_id) for broker_id in account.parts)
        return all(reporter is not None and reporter.reported_ms >= account.began_ms for reporter in reporters)

    def _compute_targets(self, account: _Account, now_ms: int) -> dict[int, int]:
        static_bps, parts = account.static_bps, account.parts
        if not all(part.is_measured for part in parts.values()):
            # The layout has changed, and the demand under it is not known yet (CKA-34).
            return static_bps
        silent_bps = {id: part.bps_max for id, part in parts.items() if self._is_silent(id, now_ms)}
        if not silent_bps and self._has_room(account):
            return static_bps
        others = [id for id in sorted(parts) if id not in silent_bps]
        remaining_bps = account.limit_bps - sum(silent_bps.values())
        if remaining_bps * REMAINDER_DIVISOR < sum(static_bps[id] for id in others):
            # The policy `literal` has promised the rest already.
            return {id: part.bps_max for id, part in parts.items()}
        shares = share_out(
            cast(Policy, account.layout.policy),
            remaining_bps,
            [parts[id].demand for id in others],
            [parts[id].in_force_bps for id in others],
        )
        return silent_bps | dict(zip(others, shares, strict=True))

    @staticmethod
    def _has_room(account: _Account) -> bool:
        """True if static shares are sufficient for every broker; the policy `adaptive` returns to them at its own
        pace.
        """
        is_static = all(part.in_force_bps == account.static_bps[id] for id, part in account.parts.items())
        return (is_static or account.layout.policy != "adaptive") and all(
            part.demand.wanted_bps * 100 < account.static_bps[id] * BUSY_PERCENT for id, part in account.parts.items()
        )

    def _is_silent(self, broker_id: int, now_ms: int) -> bool:
        reporter = self._reporters.get(broker_id)
        return reporter is None or now_ms - reporter.reported_ms >= SILENT_MS

    def _next_share(self, account: _Account, broker_id: int, now_ms: int) -> ShareAnswer:
        """Returns the share to send to a broker: its target as far as other brokers have released the bandwidth."""
        part = account.parts[broker_id]
        share_bps = part.in_force_bps
        target_bps = share_bps if account.targets_bps is None else account.targets_bps[broker_id]
        if target_bps <= share_bps:
            share_bps = target_bps
        elif self._has_waited(account, now_ms) or all(peer_part.has_reported for peer_part in account.parts.values()):
            others_bps = sum(peer_part.bps_max for id, peer_part in account.parts.items() if id != broker_id)
            share_bps = max(share_bps, min(target_bps, account.budget_bps - others_bps))
        return ShareAnswer(account.basis, account.limit_bps, share_bps, share_bps < target_bps)


def _is_at_rest(flow: ReportedFlow, static_bps: int) -> bool:
    return flow.share_bps == static_bps and not flow.admitted_bps and not flow.wanted_bps
