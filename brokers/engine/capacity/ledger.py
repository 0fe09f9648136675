"""The controller's side of storage credits: allocates the bought storage of instances to brokers (CKA-26).

Each broker reports the size of the partitions that it leads (`used_bytes`, all replicas counted) and the bytes that it
may still append (`left_bytes`); the answer raises or lowers the latter. A broker's part never exceeds the sum of the
two, so the total of all brokers is bounded even if reports are late or lost. Nothing is allocated before every live
broker has reported to this controller.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final, NamedTuple

# The bought bytes divided by this are allocated in addition, so that all of the bought storage can be used.
SLACK_DIVISOR: Final = 100
# A full instance accepts records again when less than this percentage is used.
RESUME_PERCENT: Final = 98
# A broker that appends gets 1/2 of the free bytes, an idle one 1/8, each divided by the number of brokers.
BUSY_DIVISOR: Final = 2
IDLE_DIVISOR: Final = 8
# A change smaller than a broker's left bytes divided by this is not made.
CHANGE_DIVISOR: Final = 8
# A partition that changes its leader counts for the previous leader's broker until others have had this time to report
# it.
LEADER_MOVE_MS: Final = 1_000
# The part of a dead broker counts for this long, until others lead its partitions. A new controller, which does not
# know that part, allocates nothing for this long.
DEAD_BROKER_MS: Final = 5_000
# Maximum age of a report in `StorageGrant.reported_bytes`, which must not be too high.
REPORT_AGE_MS_MAX: Final = 3_000
# Value of fields that a controller of an earlier version does not send.
UNKNOWN: Final = -1
# Maximum number of decreases of one broker's use that are recorded separately; further ones are added to the last.
DECREASES_MAX: Final = 8
# Maximum number of instances in one answer that the broker did not report.
REVIEWS_PER_ANSWER_MAX: Final = 200


class Bought(NamedTuple):
    """Storage that an instance bought, replicas included, and the number of brokers that serve it."""

    bytes: int
    brokers: int


class ReportedUse(NamedTuple):
    """A broker's report on one instance.

    `applied` is the number of the last change that it has applied, `wanted_bytes` the largest append that did not fit.
    `is_busy` is True if records were appended since the last report.
    """

    instance_id: str
    used_bytes: int
    left_bytes: int
    applied: int
    wanted_bytes: int
    is_busy: bool


class StorageGrant(NamedTuple):
    """The controller's answer to a report on one instance.

    `delta_bytes` is added to the broker's left bytes. `used_bytes` and `free_bytes` are those of the whole instance.
    `reported_bytes` is the sum of the last reports of live brokers and at most the real use; `used_bytes` also has
    amounts that are counted only to prevent double allocation. `counted_bytes` is this broker's part of
    `reported_bytes`.
    """

    instance_id: str
    number: int
    delta_bytes: int
    used_bytes: int
    free_bytes: int
    is_full: bool
    reported_bytes: int = UNKNOWN
    counted_bytes: int = UNKNOWN


class FilledInstance(NamedTuple):
    """An instance whose use of storage is above a percentage."""

    instance_id: str
    used_bytes: int
    is_full: bool


@dataclass(slots=True)
class _Share:
    """One broker's part of one instance.

    `pending_bytes` were granted by change `number` and are not reported as applied yet; `delta_bytes` is the whole
    delta of that change, which may be negative. `decreases` has decreases of use that still count, as `(bytes, time)`,
    oldest first.
    """

    used_bytes: int = 0
    left_bytes: int = 0
    number: int = 0
    pending_bytes: int = 0
    delta_bytes: int = 0
    decreases: list[tuple[int, int]] = field(default_factory=list)

    def record_decrease(self, by_bytes: int, now_ms: int) -> None:
        """Records a decrease of use, which counts as used until `_counted_use_bytes` drops it."""
        if len(self.decreases) >= DECREASES_MAX:
            by_bytes += self.decreases.pop()[0]
        self.decreases.append((by_bytes, now_ms))


@dataclass(slots=True)
class _Reporter:
    """A broker that reports.

    `is_complete` is True once it has reported all its instances. `left_cluster_ms` is the time at which it left the
    cluster, None while it is alive.
    """

    epoch: int
    is_complete: bool = False
    reported_ms: int = 0
    left_cluster_ms: int | None = None
    # Instances to be reviewed for this broker even if it does not report them.
    to_review: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Account:
    """State of one instance: the parts of the brokers, by broker id, and the figures of the last answer."""

    shares: dict[int, _Share] = field(default_factory=dict)
    is_full: bool = False
    used_bytes: int = 0
    bought_bytes: int = 0


class StorageLedger:
    """Allocation of storage by one controller; a new controller begins with an empty ledger."""

    def __init__(self, began_ms: int) -> None:
        """Creates an empty ledger at `began_ms`. All times are monotonic milliseconds."""
        self._began_ms = began_ms
        self._accounts: dict[str, _Account] = {}
        self._reporters: dict[int, _Reporter] = {}
        # Instances with decreases that still count; they are reviewed until none is left.
        self._instances_with_decreases: set[str] = set()

    def set_live_brokers(self, live: Collection[int], now_ms: int) -> None:
        """Sets the live brokers, this one included. Call it before `begin_report` and `handle_report`."""
        for broker_id in live:
            reporter = self._reporters.setdefault(broker_id, _Reporter(epoch=-1))
            reporter.left_cluster_ms = None
        for broker_id, reporter in tuple(self._reporters.items()):
            if broker_id in live:
                continue
            if reporter.left_cluster_ms is None:
                reporter.left_cluster_ms = now_ms
            elif now_ms - reporter.left_cluster_ms >= DEAD_BROKER_MS:
                self._forget(broker_id)

    def _forget(self, broker_id: int) -> None:
        del self._reporters[broker_id]
        for account in self._accounts.values():
            account.shares.pop(broker_id, None)

    def forget_instances(self, existing_ids: Collection[str]) -> None:
        """Drops instances that are not in `existing_ids`. Call it from time to time."""
        for instance_id in [id for id in self._accounts if id not in existing_ids]:
            del self._accounts[instance_id]
            self._instances_with_decreases.discard(instance_id)

    def begin_report(self, broker_id: int, epoch: int, is_complete: bool, now_ms: int) -> None:
        """Begins the reports of a broker, which are passed to `handle_report` next, instance by instance.

        `is_complete` is True if the broker has reported all its instances with these reports.
        """
        reporter = self._reporters.setdefault(broker_id, _Reporter(epoch=epoch))
        if reporter.epoch != epoch:
            # A new incarnation, which knows no grants. The parts of the previous one, with the bytes that it may have
            # appended, count until the new one reports the instances.
            reporter.epoch, reporter.is_complete = epoch, False
            for account in self._accounts.values():
                share = account.shares.get(broker_id)
                if share is not None:
                    share.record_decrease(max(0, share.left_bytes) + share.pending_bytes, now_ms)
                    share.left_bytes = share.pending_bytes = share.delta_bytes = share.number = 0
        reporter.is_complete = reporter.is_complete or is_complete
        reporter.reported_ms = now_ms

    def handle_report(self, broker_id: int, report: ReportedUse, bought: Bought, now_ms: int) -> StorageGrant:
        """Returns the answer to the report on one instance of the broker for which `begin_report` was called."""
        account = self._accounts.setdefault(report.instance_id, _Account())
        share = account.shares.setdefault(broker_id, _Share())
        self._apply_report(share, report, now_ms)
        for peer_id in account.shares:
            if peer_id != broker_id and peer_id in self._reporters:
                self._reporters[peer_id].to_review.add(report.instance_id)
        return self._make_grant(account, broker_id, report, bought, now_ms)

    def instances_to_review(self, broker_id: int) -> list[str]:
        """Removes and returns the instances to `review` for a broker after its reports."""
        reporter = self._reporters[broker_id]
        result = sorted(reporter.to_review | self._instances_with_decreases)[:REVIEWS_PER_ANSWER_MAX]
        reporter.to_review.difference_update(result)
        return result

    def review(self, broker_id: int, instance_id: str, bought: Bought, now_ms: int) -> StorageGrant | None:
        """Returns the answer for an instance that a broker did not report because its figures have not changed.

        Returns None while the broker has not reported the last change as applied, which would be granted twice.
        """
        account = self._accounts.get(instance_id)
        share = None if account is None else account.shares.get(broker_id)
        if account is None or share is None or share.delta_bytes:
            return None
        report = ReportedUse(instance_id, share.used_bytes, share.left_bytes, share.number, 0, False)
        return self._make_grant(account, broker_id, report, bought, now_ms)

    def _make_grant(
        self, account: _Account, broker_id: int, report: ReportedUse, bought: Bought, now_ms: int
    ) -> StorageGrant:
        """Computes the new figures of an instance, and the change of this broker's credit."""
        share = account.shares[broker_id]
        used_bytes = sum(self._counted_use_bytes(account, id, peer_share) for id, peer_share in account.shares.items())
        if any(peer_share.decreases for peer_share in account.shares.values()):
            self._instances_with_decreases.add(report.instance_id)
        else:
            self._instances_with_decreases.discard(report.instance_id)
        if used_bytes >= bought.bytes:
            account.is_full = True
        elif used_bytes * 100 < bought.bytes * RESUME_PERCENT:
            account.is_full = False
        account.used_bytes, account.bought_bytes = used_bytes, bought.bytes
        budget_bytes = bought.bytes + bought.bytes // SLACK_DIVISOR
        free_bytes = 0 if account.is_full else max(0, budget_bytes - used_bytes)
        delta_bytes = self._compute_delta_bytes(account, report, free_bytes, budget_bytes)
        if delta_bytes > 0 and bought.brokers > 1 and now_ms - self._began_ms < DEAD_BROKER_MS:
            delta_bytes = 0
        if delta_bytes:
            share.number += 1
            share.pending_bytes, share.delta_bytes = max(0, delta_bytes), delta_bytes
        return StorageGrant(
            report.instance_id,
            share.number,
            delta_bytes,
            used_bytes,
            free_bytes,
            account.is_full,
            self._recently_reported_bytes(account, now_ms),
            share.used_bytes,
        )

    def _recently_reported_bytes(self, account: _Account, now_ms: int) -> int:
        """Returns the use in recent reports; a broker with an older one may no longer lead the partitions in it."""
        fresh = {
            id
            for id, reporter in self._reporters.items()
            if reporter.left_cluster_ms is None and now_ms - reporter.reported_ms <= REPORT_AGE_MS_MAX
        }
        return sum(share.used_bytes for id, share in account.shares.items() if id in fresh)

    @staticmethod
    def _apply_report(share: _Share, report: ReportedUse, now_ms: int) -> None:
        expected_left_bytes = share.left_bytes + (share.delta_bytes if report.applied == share.number else 0)
        # Includes bytes appended since the last report, whose partition may have another leader by now.
        used_bytes = share.used_bytes + max(0, expected_left_bytes - report.left_bytes)
        if report.used_bytes < used_bytes:
            share.record_decrease(used_bytes - report.used_bytes, now_ms)
        share.used_bytes, share.left_bytes = report.used_bytes, report.left_bytes
        # There is one report at a time, so a change that this one does not confirm was lost.
        share.number, share.pending_bytes, share.delta_bytes = report.applied, 0, 0

    def _counted_use_bytes(self, account: _Account, broker_id: int, share: _Share) -> int:
        """Returns the use of a broker. A decrease applies once all other brokers have reported after it, because they
        may have become leaders of its partitions.
        """
        if share.decreases:
            peer_reports_ms = [
                reporter.reported_ms
                for id, reporter in self._reporters.items()
                if id != broker_id and reporter.left_cluster_ms is None
            ]
            oldest_ms = min(peer_reports_ms, default=None)
            while share.decreases and (oldest_ms is None or oldest_ms >= share.decreases[0][1] + LEADER_MOVE_MS):
                del share.decreases[0]
        return share.used_bytes + sum(by_bytes for by_bytes, _ in share.decreases)

    def _compute_delta_bytes(self, account: _Account, report: ReportedUse, free_bytes: int, budget_bytes: int) -> int:
        """Returns the bytes to add to the left bytes of the reporting broker; negative to take some back."""
        brokers = len(account.shares)
        divisor = BUSY_DIVISOR if report.is_busy or report.wanted_bytes else IDLE_DIVISOR
        target_bytes = max(free_bytes // (divisor * brokers), min(report.wanted_bytes, free_bytes))
        delta_bytes = target_bytes - report.left_bytes
        if delta_bytes <= 0:
            is_small_change = -delta_bytes * CHANGE_DIVISOR <= report.left_bytes and target_bytes > 0
            return 0 if is_small_change else delta_bytes
        if not self.is_complete:
            return 0
        bound_bytes = sum(
            self._counted_use_bytes(account, id, share) + max(0, share.left_bytes) + share.pending_bytes
            for id, share in account.shares.items()
        )
        delta_bytes = max(0, min(delta_bytes, budget_bytes - bound_bytes))
        return 0 if delta_bytes * CHANGE_DIVISOR <= report.left_bytes and not report.wanted_bytes else delta_bytes

    @property
    def is_complete(self) -> bool:
        """True if every live broker has reported all its instances."""
        return all(reporter.is_complete for reporter in self._reporters.values() if reporter.left_cluster_ms is None)

    def filled_instances(self, percent: int, now_ms: int) -> list[FilledInstance] | None:
        """Returns the instances that use at least `percent` of their storage; None while a new controller does not know
        all instances.
        """
        if not self.is_complete or now_ms - self._began_ms < DEAD_BROKER_MS:
            return None
        return [
            FilledInstance(instance_id, account.used_bytes, account.is_full)
            for instance_id, account in sorted(self._accounts.items())
            if account.is_full or account.used_bytes * 100 >= account.bought_bytes * percent
        ]
