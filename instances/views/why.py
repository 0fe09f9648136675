""" "Why am I slow?": the throttle ledger grouped by rule and put into sentences. Reads nothing, decides nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from instances.interfaces import Throttle, Throttles
from instances.views.throttle_words import (
    bandwidth_sentence,
    broker_sentence,
    limit_words,
    quota_sentence,
    refusal_sentence,
    scope_words,
    title_words,
    who,
)
from tenants.formatting import quota_limit

ENDED_SHOWN_MS = 60_000
WAITERS_SHOWN_MAX = 3
QUOTA_KINDS = ("client_quota", "topic_quota")
REFUSING_KINDS = ("capacity", "frozen")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule clients wait for (or waited for a moment ago), summed over brokers and clients.

    `limit` is what was bought or set, in words; `brokers` has the share that each has of it.
    """

    title: str
    sentence: str
    level: str
    limit: str
    delay_ms: float
    p95_ms: float
    waiters: tuple[str, ...]
    waiters_more: int
    brokers: tuple[tuple[int, float, str], ...]
    """Broker id, mean delay in ms, and the broker's share in words where the limit is shared out."""
    since_ms: int
    seconds: float
    active: bool
    is_client_quota: bool
    is_bandwidth: bool
    is_refusal: bool
    count: int
    user: str | None
    client_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRow:
    """An entry of the ledger in words: whose limit it is, how high, and the broker's share where it is another."""

    entry: Throttle
    title: str
    level: str
    limit: str
    share: str


def ledger_rows(ledger: Throttles, bandwidth_bytes_per_s: int) -> list[LedgerRow]:
    """Every cause since the brokers started; who waited longest in all comes first."""
    ordered = sorted(ledger.entries, key=lambda entry: (-entry.waited_ms_total, -entry.count))
    return [_row(entry, bandwidth_bytes_per_s) for entry in ordered]


def _row(entry: Throttle, bandwidth_bytes_per_s: int) -> LedgerRow:
    is_bandwidth = entry.kind == "instance_bandwidth"
    whole = float(bandwidth_bytes_per_s) if is_bandwidth else entry.whole_limit_per_s
    is_shared = entry.limit_per_s is not None and entry.limit_per_s != whole
    return LedgerRow(
        entry=entry,
        title=title_words(entry.kind, entry.quota, entry.entity),
        level=scope_words(entry.kind, entry.quota, entry.level),
        limit=limit_words(entry.kind, entry.quota) or quota_limit(whole, entry.quota),
        share=quota_limit(entry.limit_per_s, entry.quota) if is_shared else "",
    )


def rules_now(ledger: Throttles, bandwidth_bytes_per_s: int) -> list[Rule]:
    """Rules that hold clients back or refuse them, or did within the last minute; largest delay first.

    `bandwidth_bytes_per_s` is what the instance bought in each direction: a broker knows only its share.
    """
    groups: dict[tuple[object, ...], list[Throttle]] = {}
    for entry in ledger.entries:
        if entry.active or ledger.now_ms - entry.last_ms < ENDED_SHOWN_MS:
            key = (entry.kind, entry.quota, entry.level, tuple(sorted(entry.entity.items(), key=str)))
            groups.setdefault(key, []).append(entry)
    result = [_rule(entries, ledger.now_ms, bandwidth_bytes_per_s) for entries in groups.values()]
    return sorted(result, key=lambda rule: (not rule.active, -rule.delay_ms))


def _mean(entries: Iterable[Throttle]) -> float:
    waits = [(entry.delay_ms_mean, entry.count) for entry in entries]
    total = sum(count for _delay, count in waits)
    return sum(wait * count for wait, count in waits) / total if total else 0.0


def _rule(entries: list[Throttle], now_ms: int, bandwidth_bytes_per_s: int) -> Rule:
    first = entries[0]
    kind, quota = first.kind, first.quota
    by_broker: dict[int, list[Throttle]] = {}
    for entry in entries:
        by_broker.setdefault(entry.broker_id, []).append(entry)
    waiting = sorted(entries, key=lambda entry: -entry.delay_ms_mean)
    names = list(dict.fromkeys(who(entry.user, entry.client_id) for entry in waiting))
    since_ms = min(entry.since_ms for entry in entries)
    end_ms = now_ms if any(entry.active for entry in entries) else max(entry.last_ms for entry in entries)
    mean_ms, count = _mean(entries), sum(entry.count for entry in entries)
    latest = max(entries, key=lambda entry: entry.last_ms)
    is_bandwidth = kind == "instance_bandwidth"
    whole = float(bandwidth_bytes_per_s) if is_bandwidth else latest.whole_limit_per_s
    shares = {broker: _share(result) for broker, result in sorted(by_broker.items())}
    if is_bandwidth:
        sentence = bandwidth_sentence(quota, mean_ms, float(bandwidth_bytes_per_s), shares)
    elif kind in QUOTA_KINDS:
        sentence = quota_sentence(latest, mean_ms, sorted(by_broker))
    elif kind in REFUSING_KINDS:
        sentence = refusal_sentence(kind, quota, count, sorted(by_broker))
    else:
        sentence = broker_sentence(kind, quota, mean_ms, sorted(by_broker))
    return Rule(
        title=title_words(kind, quota, first.entity),
        sentence=sentence,
        level=scope_words(kind, quota, first.level),
        limit=limit_words(kind, quota) or quota_limit(whole, quota),
        delay_ms=mean_ms,
        p95_ms=max(entry.delay_ms_p95 for entry in entries),
        waiters=tuple(names[:WAITERS_SHOWN_MAX]),
        waiters_more=max(0, len(names) - WAITERS_SHOWN_MAX),
        brokers=tuple(
            (broker, _mean(by_broker[broker]), quota_limit(share, quota) if is_bandwidth or share != whole else "")
            for broker, share in shares.items()
        ),
        since_ms=since_ms,
        seconds=max(0, end_ms - since_ms) / 1_000,
        active=any(entry.active for entry in entries),
        is_client_quota=kind == "client_quota",
        is_bandwidth=is_bandwidth,
        is_refusal=kind in REFUSING_KINDS,
        count=count,
        user=first.entity.get("user"),
        client_id=first.entity.get("client_id"),
    )


def _share(entries: list[Throttle]) -> float | None:
    """What a broker has of a limit: it changes when leaders move or demand does, so the latest entry says it."""
    return max(entries, key=lambda entry: entry.last_ms).limit_per_s
