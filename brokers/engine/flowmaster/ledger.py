"""The flow master's side: which broker may admit how much of a limit (CKA-22, CKA-34…38). Pure.

The shares in force never sum up to more than the limit, however late reports and answers are and whichever are lost.
For each broker the ledger keeps the most that can be in force there: what it reported, or what it was offered since. A
share is lowered at once. It is raised only by what the others have reported to be free. A broker that falls back by
itself never takes more than it had, so a silent one needs no clock: its part stays reserved.

A share is made of a *basis* (`layout.Layout.basis`): the limit, the policy, and which live broker leads how many
partitions. With another basis everything begins again with the static shares, which sum up to the limit by themselves.
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

# By then whatever an earlier master gave, or was given for another basis, is in force nowhere.
WAIT_MS: Final = LEASE_MS + INTERVAL_MS
# Whoever says nothing for so long keeps its last share, and the others share the rest (CKA-35).
SILENT_MS: Final = 2 * INTERVAL_MS + INTERVAL_MS // 2
# Shares are computed again after an interval, and at once where somebody wants more or less by 1 part in so many.
DECIDED_MS: Final = REPORT_MS * 9 // 10
CHANGE_PART: Final = 8
# While nobody wants so much of its static share, everybody has it (CKA-28).
BUSY_PERCENT: Final = 80
# Of their static shares, brokers share at least so much beside a silent one, or keep what they have: 1 part in so many.
LEFT_PART: Final = 20
# Whoever has a share that was given reports it each second.
UNREPORTED_MS: Final = 10 * INTERVAL_MS
# Limits of which one answer tells without being asked.
REVIEWED_MAX: Final = 200

# Instance id, direction, and the clients that share a client quota ("": the instance's bandwidth).
FlowKey = tuple[str, int, str]


class GivenShare(NamedTuple):
    """The answer to a line. `is_waiting`: more is due when others have given it up."""

    basis: int
    limit_bps: int
    share_bps: int
    is_waiting: bool


@dataclass(slots=True)
class _Part:
    """One broker's. `in_force_bps` as it reported last, `offered_bps` as it was answered since; `decided_bps` is what
    was wanted when shares were computed last.
    """

    in_force_bps: int
    offered_bps: int
    demand: Demand
    is_heard: bool = False
    is_measured: bool = True
    decided_bps: int = 0

    @property
    def bound_bps(self) -> int:
        """The most that can be in force there."""
        return max(self.in_force_bps, self.offered_bps)


@dataclass(slots=True)
class _Account:
    """One limit. `targets` None: not all that is needed for computing is known yet."""

    basis: int
    limit_bps: int
    layout: Layout
    static_bps: dict[int, int]
    began_ms: int
    parts: dict[int, _Part]
    targets: dict[int, int] | None = None
    decided_ms: int = 0
    reported_ms: int = 0

    @property
    def budget_bps(self) -> int:
        """`literal` may promise more than was bought (CKA-31)."""
        return max(self.limit_bps, sum(self.targets.values()) if self.targets is not None else 0)


@dataclass(slots=True)
class _Reporter:
    """A live broker."""

    epoch: int
    sequence: int
    reported_ms: int
    # Limits of which it is to be told though it may report nothing of them.
    to_review: set[FlowKey] = field(default_factory=set)


class FlowLedger:
    """Of one epoch of a flow master: a new epoch begins with an empty one. Times are monotonic milliseconds."""

    def __init__(self, began_ms: int) -> None:
        self._began_ms = began_ms
        self._accounts: dict[FlowKey, _Account] = {}
        self._reporters: dict[int, _Reporter] = {}
        self._client_keys: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._accounts)

    def on_brokers(self, live: Collection[int]) -> None:
        """Who has gone has no part any more: the layouts do not name it either (CKA-35)."""
        for broker_id in [known for known in self._reporters if known not in live]:
            del self._reporters[broker_id]

    def sweep(self, now_ms: int) -> None:
        """Call now and then: drops what nobody reports any more. Whoever had a share of it has fallen back by now."""
        for key in [key for key, account in self._accounts.items() if now_ms - account.reported_ms >= UNREPORTED_MS]:
            self._forget(key)

    def begin(self, broker_id: int, epoch: int, sequence: int, now_ms: int) -> bool:
        """A report is here; its lines are taken next. False: it is older than another one, and is to be ignored."""
        reporter = self._reporters.get(broker_id)
        if reporter is None or epoch > reporter.epoch:
            self._reporters[broker_id] = _Reporter(epoch, sequence, now_ms)
            return True
        if epoch < reporter.epoch or sequence <= reporter.sequence:
            return False
        reporter.sequence, reporter.reported_ms = sequence, now_ms
        return True

    def take(self, broker_id: int, key: FlowKey, flow: ReportedFlow, layout: Layout, now_ms: int) -> GivenShare | None:
        """The answer to a line. None where broker and master see the cluster differently: the broker falls back."""
        if broker_id not in layout.leaders or flow.basis != layout.basis(flow.limit_bps):
            return None
        account = self._accounts.get(key)
        if account is None or account.basis != flow.basis:
            static_bps = layout.static_bps(flow.limit_bps)
            if account is None and _is_at_rest(flow, static_bps[broker_id]):
                return GivenShare(flow.basis, flow.limit_bps, flow.share_bps, False)
            account = self._open(key, flow, layout, static_bps, now_ms)
            if account is None:
                return None
        account.reported_ms = now_ms
        part = account.parts[broker_id]
        part.in_force_bps = part.offered_bps = flow.share_bps
        part.is_heard, part.is_measured = True, flow.admitted_bps >= 0
        admitted_bps = max(0, flow.admitted_bps)
        part.demand = Demand(part.demand.leaders, admitted_bps, max(admitted_bps, flow.wanted_bps))
        self._decide(account, part, now_ms)
        given = self._give(account, broker_id, now_ms)
        part.offered_bps = given.share_bps
        if self._is_over(account):
            self._forget(key)
        else:
            self._note_reviews(key, account, broker_id)
        return given

    def to_review(self, broker_id: int) -> list[FlowKey]:
        """Limits of which the broker that reports is told after its lines, for `review`."""
        reporter = self._reporters[broker_id]
        result = sorted(reporter.to_review)[:REVIEWED_MAX]
        reporter.to_review.difference_update(result)
        return result

    def review(self, broker_id: int, key: FlowKey, now_ms: int) -> GivenShare | None:
        """What a broker is told of a limit that it reported nothing of."""
        account = self._accounts.get(key)
        part = None if account is None else account.parts.get(broker_id)
        if account is None or part is None:
            return None
        self._decide(account, part, now_ms)
        given = self._give(account, broker_id, now_ms)
        # What it was offered before may be in force by now, or be lost.
        part.offered_bps = max(part.offered_bps, given.share_bps)
        return given

    # -- accounts ------------------------------------------------------------------------------------------------------

    def _open(
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

    def _forget(self, key: FlowKey) -> None:
        del self._accounts[key]
        if key[2]:
            self._client_keys[key[0]] -= 1
            self._client_keys += Counter()

    def _note_reviews(self, key: FlowKey, account: _Account, reporting: int) -> None:
        for broker_id, part in account.parts.items():
            reporter = self._reporters.get(broker_id)
            if broker_id == reporting or reporter is None:
                continue
            target_bps = None if account.targets is None else account.targets[broker_id]
            if not part.is_heard or target_bps not in (None, part.in_force_bps):
                reporter.to_review.add(key)

    @staticmethod
    def _is_over(account: _Account) -> bool:
        """Nobody wants anything, and everybody has its static share: as if nothing had been reported."""
        return all(
            part.is_measured and not part.demand.wanted_bps and part.bound_bps == account.static_bps[broker_id]
            for broker_id, part in account.parts.items()
        )

    # -- decisions -----------------------------------------------------------------------------------------------------

    def _decide(self, account: _Account, part: _Part, now_ms: int) -> None:
        change_bps = abs(part.demand.wanted_bps - part.decided_bps)
        if (
            account.targets is not None
            and now_ms - account.decided_ms < DECIDED_MS
            and change_bps * CHANGE_PART <= part.decided_bps
        ):
            return
        if not self._is_known(account, now_ms):
            account.targets = None
            return
        account.decided_ms = now_ms
        for each in account.parts.values():
            each.decided_bps = each.demand.wanted_bps
        account.targets = self._targets(account, now_ms)

    def _has_waited(self, account: _Account, now_ms: int) -> bool:
        return now_ms - max(self._began_ms, account.began_ms) >= WAIT_MS

    def _is_known(self, account: _Account, now_ms: int) -> bool:
        """CKA-36: whether every broker of the limit reported since it is looked at; who is silent is not waited for."""
        if self._has_waited(account, now_ms):
            return True
        reporters = (self._reporters.get(broker_id) for broker_id in account.parts)
        return all(reporter is not None and reporter.reported_ms >= account.began_ms for reporter in reporters)

    def _targets(self, account: _Account, now_ms: int) -> dict[int, int]:
        static_bps, parts = account.static_bps, account.parts
        if not all(part.is_measured for part in parts.values()):
            # CKA-34: the layout is another one, and what clients do in it is not known yet.
            return static_bps
        silent = {id: part.bound_bps for id, part in parts.items() if self._is_silent(id, now_ms)}
        if not silent and self._has_room(account):
            return static_bps
        others = [id for id in sorted(parts) if id not in silent]
        left_bps = account.limit_bps - sum(silent.values())
        if left_bps * LEFT_PART < sum(static_bps[id] for id in others):
            # `literal` has promised it already.
            return {id: part.bound_bps for id, part in parts.items()}
        shares = share_out(
            cast(Policy, account.layout.policy),
            left_bps,
            [parts[id].demand for id in others],
            [parts[id].in_force_bps for id in others],
        )
        return silent | dict(zip(others, shares, strict=True))

    @staticmethod
    def _has_room(account: _Account) -> bool:
        """Whether everybody has enough with its static share. `adaptive` goes back to it in its own time."""
        is_static = all(part.in_force_bps == account.static_bps[id] for id, part in account.parts.items())
        return (is_static or account.layout.policy != "adaptive") and all(
            part.demand.wanted_bps * 100 < account.static_bps[id] * BUSY_PERCENT for id, part in account.parts.items()
        )

    def _is_silent(self, broker_id: int, now_ms: int) -> bool:
        reporter = self._reporters.get(broker_id)
        return reporter is None or now_ms - reporter.reported_ms >= SILENT_MS

    def _give(self, account: _Account, broker_id: int, now_ms: int) -> GivenShare:
        part = account.parts[broker_id]
        share_bps = part.in_force_bps
        target_bps = share_bps if account.targets is None else account.targets[broker_id]
        if target_bps <= share_bps:
            share_bps = target_bps
        elif self._has_waited(account, now_ms) or all(each.is_heard for each in account.parts.values()):
            others_bps = sum(each.bound_bps for id, each in account.parts.items() if id != broker_id)
            share_bps = max(share_bps, min(target_bps, account.budget_bps - others_bps))
        return GivenShare(account.basis, account.limit_bps, share_bps, share_bps < target_bps)


def _is_at_rest(flow: ReportedFlow, static_bps: int) -> bool:
    return flow.share_bps == static_bps and not flow.admitted_bps and not flow.wanted_bps
