"""The controller's side: who may append how much of what was bought (CKA-26).

Each broker tells what the partitions it leads take (`used_bytes`, all replicas) and what it may still append
(`left_bytes`), and is answered with more, or less. The two together are the most that a broker's part can grow to, so
however late a report is, and whichever are lost, the sum over all brokers is bounded. Nothing is handed out before
every live broker has reported to this controller.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final, NamedTuple

# What is handed out beyond what was bought, so that the last of it can be used: 1 in so many bytes.
SLACK_PART: Final = 100
# A full instance takes records again when less than this is used.
RESUME_PERCENT: Final = 98
# Of what is free, a broker that appends may have 1/2, and one that does not 1/8, each divided by the brokers.
BUSY_PART: Final = 2
IDLE_PART: Final = 8
# Less than this part of what a broker has left is not worth an answer.
CHANGE_PART: Final = 8
# A partition whose leader moves is counted by the broker that had it until the others have had time to see it.
MOVE_MS: Final = 1_000
# What a broker had that has gone is counted until others lead its partitions; and a new controller, which does not know
# what that was, hands out nothing for so long.
GONE_MS: Final = 5_000
# A report counts for so long where less must not be taken for more.
FRESH_MS: Final = 3_000
# What a controller of an earlier version does not say.
UNKNOWN: Final = -1
# Of one broker, what it used less is told apart so often; then the last ones are one.
LOWERED_MAX: Final = 8
# Instances of which one answer tells without being asked.
REVIEWED_MAX: Final = 200


class Bought(NamedTuple):
    """What an instance may store, replicas included, and how many brokers serve it."""

    bytes: int
    brokers: int


class ReportedUse(NamedTuple):
    """What a broker reports of an instance. `applied`: the last change it knows of. `wanted_bytes`: the largest append
    that did not fit. `is_busy`: something was appended since the last report.
    """

    instance_id: str
    used_bytes: int
    left_bytes: int
    applied: int
    wanted_bytes: int
    is_busy: bool


class Change(NamedTuple):
    """The answer to a line: `delta_bytes` comes to what is left. `used_bytes` and `free_bytes` are the instance's.
    `reported_bytes` is no more than what it uses, `counted_bytes` of them by the broker that is answered: as live
    brokers reported last, without what is counted only so that nothing is handed out twice.
    """

    instance_id: str
    number: int
    delta_bytes: int
    used_bytes: int
    free_bytes: int
    is_full: bool
    reported_bytes: int = UNKNOWN
    counted_bytes: int = UNKNOWN


class Filled(NamedTuple):
    """An instance of which somebody has to know."""

    instance_id: str
    used_bytes: int
    is_full: bool


@dataclass(slots=True)
class _Share:
    """One broker's part of one instance. `pending_bytes`: granted by change `number`, not reported as applied yet;
    `delta_bytes`: all that this change made of what is left. `lowered`: by how much its use went down and when, oldest
    first, as far as that is not believed yet.
    """

    used_bytes: int = 0
    left_bytes: int = 0
    number: int = 0
    pending_bytes: int = 0
    delta_bytes: int = 0
    lowered: list[tuple[int, int]] = field(default_factory=list)

    def lower(self, by_bytes: int, now_ms: int) -> None:
        if len(self.lowered) >= LOWERED_MAX:
            by_bytes += self.lowered.pop()[0]
        self.lowered.append((by_bytes, now_ms))


@dataclass(slots=True)
class _Reporter:
    """A broker. `is_complete`: it has told of all its instances. `gone_ms`: since when it is not in the cluster."""

    epoch: int
    is_complete: bool = False
    reported_ms: int = 0
    gone_ms: int | None = None
    # Instances of which it is to be told something though it reports nothing of them.
    to_review: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Account:
    shares: dict[int, _Share] = field(default_factory=dict)
    is_full: bool = False
    # As of the last answer.
    used_bytes: int = 0
    bought_bytes: int = 0


class StorageLedger:
    """Of one term of a controller: a new term begins with an empty one."""

    def __init__(self, began_ms: int) -> None:
        """`began_ms` is of a clock that never jumps, here and everywhere."""
        self._began_ms = began_ms
        self._accounts: dict[str, _Account] = {}
        self._reporters: dict[int, _Reporter] = {}
        # Instances of which somebody used more lately: they are looked at until the lower figure is believed.
        self._lowered: set[str] = set()

    def on_brokers(self, live: Collection[int], now_ms: int) -> None:
        """The brokers of the cluster, this one among them. Call before reports are taken."""
        for broker_id in live:
            reporter = self._reporters.setdefault(broker_id, _Reporter(epoch=-1))
            reporter.gone_ms = None
        for broker_id, reporter in tuple(self._reporters.items()):
            if broker_id in live:
                continue
            if reporter.gone_ms is None:
                reporter.gone_ms = now_ms
            elif now_ms - reporter.gone_ms >= GONE_MS:
                self._forget(broker_id)

    def _forget(self, broker_id: int) -> None:
        del self._reporters[broker_id]
        for account in self._accounts.values():
            account.shares.pop(broker_id, None)

    def forget_instances(self, known: Collection[str]) -> None:
        """Call now and then."""
        for instance_id in [name for name in self._accounts if name not in known]:
            del self._accounts[instance_id]
            self._lowered.discard(instance_id)

    def begin(self, broker_id: int, epoch: int, is_complete: bool, now_ms: int) -> None:
        """A report of `broker_id` is here; its lines are taken next. `is_complete`: with it everything was told."""
        reporter = self._reporters.setdefault(broker_id, _Reporter(epoch=epoch))
        if reporter.epoch != epoch:
            # Another process, which knows of no grant of ours. Its parts stand until it tells of them, with what the
            # one before may have appended.
            reporter.epoch, reporter.is_complete = epoch, False
            for account in self._accounts.values():
                share = account.shares.get(broker_id)
                if share is not None:
                    share.lower(max(0, share.left_bytes) + share.pending_bytes, now_ms)
                    share.left_bytes = share.pending_bytes = share.delta_bytes = share.number = 0
        reporter.is_complete = reporter.is_complete or is_complete
        reporter.reported_ms = now_ms

    def take(self, broker_id: int, line: ReportedUse, bought: Bought, now_ms: int) -> Change:
        """The answer to a line of the report that was begun."""
        account = self._accounts.setdefault(line.instance_id, _Account())
        share = account.shares.setdefault(broker_id, _Share())
        self._update(share, line, now_ms)
        for other in account.shares:
            if other != broker_id and other in self._reporters:
                self._reporters[other].to_review.add(line.instance_id)
        return self._change(account, broker_id, line, bought, now_ms)

    def to_review(self, broker_id: int) -> list[str]:
        """Instances of which the broker that reports is told after its lines, for `review`."""
        reporter = self._reporters[broker_id]
        result = sorted(reporter.to_review | self._lowered)[:REVIEWED_MAX]
        reporter.to_review.difference_update(result)
        return result

    def review(self, broker_id: int, instance_id: str, bought: Bought, now_ms: int) -> Change | None:
        """What a broker is told of an instance that it reported nothing of, as nothing has changed there. None while
        it has a change that it has not reported: the same would be given, or taken, twice.
        """
        account = self._accounts.get(instance_id)
        share = None if account is None else account.shares.get(broker_id)
        if account is None or share is None or share.delta_bytes:
            return None
        line = ReportedUse(instance_id, share.used_bytes, share.left_bytes, share.number, 0, False)
        return self._change(account, broker_id, line, bought, now_ms)

    def _change(self, account: _Account, broker_id: int, line: ReportedUse, bought: Bought, now_ms: int) -> Change:
        share = account.shares[broker_id]
        used_bytes = sum(self._used(account, id, each) for id, each in account.shares.items())
        if any(each.lowered for each in account.shares.values()):
            self._lowered.add(line.instance_id)
        else:
            self._lowered.discard(line.instance_id)
        if used_bytes >= bought.bytes:
            account.is_full = True
        elif used_bytes * 100 < bought.bytes * RESUME_PERCENT:
            account.is_full = False
        account.used_bytes, account.bought_bytes = used_bytes, bought.bytes
        budget_bytes = bought.bytes + bought.bytes // SLACK_PART
        free_bytes = 0 if account.is_full else max(0, budget_bytes - used_bytes)
        delta_bytes = self._delta(account, line, free_bytes, budget_bytes)
        if delta_bytes > 0 and bought.brokers > 1 and now_ms - self._began_ms < GONE_MS:
            delta_bytes = 0
        if delta_bytes:
            share.number += 1
            share.pending_bytes, share.delta_bytes = max(0, delta_bytes), delta_bytes
        return Change(
            line.instance_id,
            share.number,
            delta_bytes,
            used_bytes,
            free_bytes,
            account.is_full,
            self._reported(account, now_ms),
            share.used_bytes,
        )

    def _reported(self, account: _Account, now_ms: int) -> int:
        """Who has not reported for a while may lead nothing any more."""
        fresh = {
            id for id, each in self._reporters.items() if each.gone_ms is None and now_ms - each.reported_ms <= FRESH_MS
        }
        return sum(share.used_bytes for id, share in account.shares.items() if id in fresh)

    @staticmethod
    def _update(share: _Share, line: ReportedUse, now_ms: int) -> None:
        had_bytes = share.left_bytes + (share.delta_bytes if line.applied == share.number else 0)
        # What was appended since the last report, and may be in a partition that others lead by this one.
        used_bytes = share.used_bytes + max(0, had_bytes - line.left_bytes)
        if line.used_bytes < used_bytes:
            share.lower(used_bytes - line.used_bytes, now_ms)
        share.used_bytes, share.left_bytes = line.used_bytes, line.left_bytes
        # One report is under way at a time: a change that this one does not know of was lost, and never comes.
        share.number, share.pending_bytes, share.delta_bytes = line.applied, 0, 0

    def _used(self, account: _Account, broker_id: int, share: _Share) -> int:
        """What a broker uses, or used until lately: less is believed when all others have reported since."""
        if share.lowered:
            others = [each for id, each in self._reporters.items() if id != broker_id and each.gone_ms is None]
            known_ms = min((other.reported_ms for other in others), default=None)
            while share.lowered and (known_ms is None or known_ms >= share.lowered[0][1] + MOVE_MS):
                del share.lowered[0]
        return share.used_bytes + sum(by_bytes for by_bytes, _ in share.lowered)

    def _delta(self, account: _Account, line: ReportedUse, free_bytes: int, budget_bytes: int) -> int:
        brokers = len(account.shares)
        part = BUSY_PART if line.is_busy or line.wanted_bytes else IDLE_PART
        target_bytes = max(free_bytes // (part * brokers), min(line.wanted_bytes, free_bytes))
        delta_bytes = target_bytes - line.left_bytes
        if delta_bytes <= 0:
            is_little = -delta_bytes * CHANGE_PART <= line.left_bytes and target_bytes > 0
            return 0 if is_little else delta_bytes
        if not self.is_complete:
            return 0
        bound_bytes = sum(
            self._used(account, id, share) + max(0, share.left_bytes) + share.pending_bytes
            for id, share in account.shares.items()
        )
        delta_bytes = max(0, min(delta_bytes, budget_bytes - bound_bytes))
        return 0 if delta_bytes * CHANGE_PART <= line.left_bytes and not line.wanted_bytes else delta_bytes

    @property
    def is_complete(self) -> bool:
        """Whether every live broker has told of all its instances."""
        return all(reporter.is_complete for reporter in self._reporters.values() if reporter.gone_ms is None)

    def filled(self, percent: int, now_ms: int) -> list[Filled] | None:
        """The instances that use so much of what they bought; None while a new controller does not know them all."""
        if not self.is_complete or now_ms - self._began_ms < GONE_MS:
            return None
        return [
            Filled(instance_id, account.used_bytes, account.is_full)
            for instance_id, account in sorted(self._accounts.items())
            if account.is_full or account.used_bytes * 100 >= account.bought_bytes * percent
        ]
