"""Throttle ledger: every delay and refusal with its cause, summed by rule, user and client id.

It answers "why am I slow". `throttled_minutes` has the sums by minute, `Ledger.totals` those by kind of rule.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from brokers.contract.usage import counted_name
from brokers.engine.throttling.charging import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, Rule
from brokers.engine.throttling.throttled_minutes import ThrottledMinutes, rule_json

ENTRIES_MAX: Final = 1_000
# Number of latest delays over which a percentile is computed.
RECENT_MAX: Final = 128
# A refusal has no duration; a rule counts as active for this long after its last refusal.
REFUSAL_ACTIVE_MS: Final = 5_000
# A pause longer than this ends a burst of delays; the next delay begins another one.
BURST_GAP_MS: Final = 10_000
BYTE_RATE_QUOTAS: Final = frozenset((PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE))

Key = tuple[Rule, str, str]


@dataclass(slots=True)
class ThrottleEntry:
    """Delays and refusals of one rule for one client. Times are wall milliseconds.

    `until_ms` is the end of the latest delay. `since_ms` is the begin of the first burst of delays, `burst_since_ms`
    the begin of the latest burst. Limits are in the unit of the rule's quota, None if it has none: `limit_per_s` is
    this broker's part of `whole_limit_per_s`, the limit of all brokers together.
    """

    limit_per_s: float | None
    whole_limit_per_s: float | None
    since_ms: int
    burst_since_ms: int
    bursts: int = 1
    last_ms: int = 0
    until_ms: int = 0
    count: int = 0
    waited_ms: int = 0
    longest_ms: int = 0
    recent_delays_ms: list[int] = field(default_factory=list)

    def percentile_ms(self, fraction: float) -> int:
        """Returns the percentile of the latest delays at `fraction` (0 to 1); 0 before the first delay."""
        if not self.recent_delays_ms:
            return 0
        ordered = sorted(self.recent_delays_ms)
        return ordered[min(len(ordered) - 1, int(fraction * len(ordered)))]


@dataclass(slots=True)
class Total:
    """Number of delays and refusals of one kind of rule, and the time waited, since the start of this process."""

    count: int = 0
    waited_ms: int = 0


Totals = dict[str, Total]


class Ledger:
    """Throttle ledger of one instance. When it is full the entry whose last delay is oldest is dropped.

    `all_totals` are the totals of all instances, which the caller shares among ledgers.
    """

    __slots__ = ("_all_totals", "_entry_by_key", "minutes", "totals")

    def __init__(self, all_totals: Totals | None = None) -> None:
        self._entry_by_key: dict[Key, ThrottleEntry] = {}
        self._all_totals: Totals = {} if all_totals is None else all_totals
        self.totals: Totals = {}
        self.minutes = ThrottledMinutes()

    def __len__(self) -> int:
        return len(self._entry_by_key)

    def record(
        self,
        rule: Rule,
        limit_per_s: float | None,
        user: str,
        client_id: str,
        delay_ms: int,
        now_ms: int,
        whole_limit_per_s: float | None = None,
    ) -> None:
        """Records one delay. Without `whole_limit_per_s`, `limit_per_s` is the whole limit."""
        if whole_limit_per_s is None:
            whole_limit_per_s = limit_per_s
        key = (rule, user, counted_name(client_id))
        entry = self._get_or_create_entry(key, limit_per_s, whole_limit_per_s, now_ms)
        entry.until_ms = max(entry.until_ms, now_ms + delay_ms)
        entry.waited_ms += delay_ms
        entry.longest_ms = max(entry.longest_ms, delay_ms)
        if len(entry.recent_delays_ms) < RECENT_MAX:
            entry.recent_delays_ms.append(delay_ms)
        else:
            entry.recent_delays_ms[entry.count % RECENT_MAX] = delay_ms
        entry.count += 1
        self._count(rule.kind, 1, delay_ms)
        self.minutes.record(key, whole_limit_per_s, 1, delay_ms, now_ms)

    def record_refusals(
        self, rule: Rule, limit_per_s: float | None, user: str, client_id: str, count: int, now_ms: int
    ) -> None:
        """Records that `count` requests, or parts of a request, were refused without a wait."""
        key = (rule, user, counted_name(client_id))
        entry = self._get_or_create_entry(key, limit_per_s, limit_per_s, now_ms)
        entry.until_ms = now_ms + REFUSAL_ACTIVE_MS
        entry.count += count
        self._count(rule.kind, count, 0)
        self.minutes.record(key, limit_per_s, count, 0, now_ms)

    def _get_or_create_entry(
        self, key: Key, limit_per_s: float | None, whole_limit_per_s: float | None, now_ms: int
    ) -> ThrottleEntry:
        entry = self._entry_by_key.get(key)
        if entry is None:
            if len(self._entry_by_key) >= ENTRIES_MAX:
                oldest_key = min(self._entry_by_key, key=lambda candidate: self._entry_by_key[candidate].last_ms)
                del self._entry_by_key[oldest_key]
            entry = self._entry_by_key[key] = ThrottleEntry(limit_per_s, whole_limit_per_s, now_ms, now_ms)
        elif now_ms - max(entry.last_ms, entry.until_ms) > BURST_GAP_MS:
            entry.burst_since_ms = now_ms
            entry.bursts += 1
        entry.limit_per_s, entry.whole_limit_per_s = limit_per_s, whole_limit_per_s
        entry.last_ms = now_ms
        return entry

    def _count(self, kind: str, count: int, delay_ms: int) -> None:
        for totals in (self.totals, self._all_totals):
            total = totals.get(kind)
            if total is None:
                total = totals[kind] = Total()
            total.count += count
            total.waited_ms += delay_ms

    def as_json(self, now_ms: int) -> list[dict[str, object]]:
        """Returns the entries for the admin port, the latest delay first."""
        ordered = sorted(self._entry_by_key.items(), key=lambda pair: -pair[1].last_ms)
        return [_entry_json(key, entry, now_ms) for key, entry in ordered]

    def totals_json(self) -> dict[str, list[int]]:
        """Returns `[count, waited_ms]` by kind of rule."""
        return {kind: [total.count, total.waited_ms] for kind, total in sorted(self.totals.items())}


def _entry_json(key: Key, entry: ThrottleEntry, now_ms: int) -> dict[str, object]:
    rule, user, client_id = key
    return {
        "rule": rule_json(rule),
        "limit_bytes_per_s": entry.limit_per_s if rule.quota in BYTE_RATE_QUOTAS else None,
        "limit_per_s": entry.limit_per_s,
        "whole_limit_per_s": entry.whole_limit_per_s,
        "user": user,
        "client_id": client_id,
        "count": entry.count,
        "delay_ms_mean": entry.waited_ms / entry.count,
        "delay_ms_p95": entry.percentile_ms(0.95),
        "delay_ms_max": entry.longest_ms,
        "waited_ms_total": entry.waited_ms,
        "since_ms": entry.since_ms,
        "burst_since_ms": entry.burst_since_ms,
        "bursts": entry.bursts,
        "last_ms": entry.last_ms,
        "active": entry.until_ms > now_ms,
    }
