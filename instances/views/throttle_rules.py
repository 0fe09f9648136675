"""Context of "Why am I slow?": the throttles grouped by rule, as texts. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from instances.interfaces import Bandwidth, Throttle, Throttles
from instances.views.throttle_texts import (
    bandwidth_sentence,
    broker_sentence,
    client_name,
    is_produce,
    limit_text,
    quota_sentence,
    refusal_sentence,
    rule_title,
    scope_text,
)
from tenants.formatting import quota_limit

ENDED_SHOWN_MS = 60_000
# Delays that are further apart are two bursts, as in a broker's throttle ledger.
BURST_GAP_MS = 10_000
# Shares that were reported further apart belong to different allocations, and do not add up to the limit.
SAME_ALLOCATION_MS = 2_000
WAITERS_SHOWN_MAX = 3
QUOTA_KINDS = ("client_quota", "topic_quota")
REFUSING_KINDS = ("capacity", "frozen")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule that delays clients or did within the last minute, summed over brokers and clients.

    `limit` is the bought or set limit in words; `brokers` has the share of each broker.
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
    """Start of the current or last burst, in ms since 1970."""
    burst_duration_s: float
    bursts: int
    first_ms: int
    active: bool
    is_client_quota: bool
    is_bandwidth: bool
    is_refusal: bool
    count: int
    user: str | None
    client_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRow:
    """An entry of the throttles in words: owner and amount of the limit, and the broker's share if it differs."""

    entry: Throttle
    title: str
    level: str
    limit: str
    share: str


def ledger_rows(ledger: Throttles, bandwidth_bytes_per_s: int) -> list[LedgerRow]:
    """Returns all causes since the brokers' start, the longest total delay first."""
    ordered = sorted(ledger.entries, key=lambda entry: (-entry.waited_ms_total, -entry.count))
    return [_row(entry, bandwidth_bytes_per_s) for entry in ordered]


def _row(entry: Throttle, bandwidth_bytes_per_s: int) -> LedgerRow:
    is_bandwidth = entry.kind == "instance_bandwidth"
    whole_limit = float(bandwidth_bytes_per_s) if is_bandwidth else entry.whole_limit_per_s
    is_shared = entry.limit_per_s is not None and entry.limit_per_s != whole_limit
    return LedgerRow(
        entry=entry,
        title=rule_title(entry.kind, entry.quota, entry.entity),
        level=scope_text(entry.kind, entry.quota, entry.level),
        limit=limit_text(entry.kind, entry.quota) or quota_limit(whole_limit, entry.quota),
        share=quota_limit(entry.limit_per_s, entry.quota) if is_shared else "",
    )


def rules_now(ledger: Throttles, bandwidth_bytes_per_s: int, shares: Bandwidth | None = None) -> list[Rule]:
    """Returns the rules that delay or refuse clients, or did within the last minute; largest delay first.

    `bandwidth_bytes_per_s` is the limit that the instance bought in each direction: a broker knows only its share.
    `shares` are those of one query of all brokers.
    """
    groups: dict[tuple[object, ...], list[Throttle]] = {}
    for entry in ledger.entries:
        if entry.active or ledger.now_ms - entry.last_ms < ENDED_SHOWN_MS:
            key = (entry.kind, entry.quota, entry.level, tuple(sorted(entry.entity.items(), key=str)))
            groups.setdefault(key, []).append(entry)
    result = [_rule(entries, ledger.now_ms, bandwidth_bytes_per_s, shares) for entries in groups.values()]
    return sorted(result, key=lambda rule: (not rule.active, -rule.delay_ms))


def _mean(entries: Iterable[Throttle]) -> float:
    delays_and_counts = [(entry.delay_ms_mean, entry.count) for entry in entries]
    total = sum(count for _delay_ms, count in delays_and_counts)
    return sum(delay_ms * count for delay_ms, count in delays_and_counts) / total if total else 0.0


def _rule(entries: list[Throttle], now_ms: int, bandwidth_bytes_per_s: int, current_shares: Bandwidth | None) -> Rule:
    first_entry = entries[0]
    kind, quota = first_entry.kind, first_entry.quota
    by_broker: dict[int, list[Throttle]] = {}
    for entry in entries:
        by_broker.setdefault(entry.broker_id, []).append(entry)
    by_delay = sorted(entries, key=lambda entry: -entry.delay_ms_mean)
    names = list(dict.fromkeys(client_name(entry.user, entry.client_id) for entry in by_delay))
    since_ms, end_ms = _latest_burst(entries, now_ms)
    mean_ms, count = _mean(entries), sum(entry.count for entry in entries)
    latest = max(entries, key=lambda entry: entry.last_ms)
    is_bandwidth = kind == "instance_bandwidth"
    whole_limit = float(bandwidth_bytes_per_s) if is_bandwidth else latest.whole_limit_per_s
    shares = (
        _bandwidth_shares(sorted(by_broker), quota, whole_limit, current_shares)
        if is_bandwidth
        else _quota_shares(by_broker, whole_limit)
    )
    if is_bandwidth:
        is_shared = any(entry.limit_per_s is not None and entry.limit_per_s < (whole_limit or 0) for entry in entries)
        sentence = bandwidth_sentence(quota, mean_ms, float(bandwidth_bytes_per_s), shares, is_shared=is_shared)
    elif kind in QUOTA_KINDS:
        sentence = quota_sentence(latest, mean_ms, sorted(by_broker))
    elif kind in REFUSING_KINDS:
        sentence = refusal_sentence(kind, quota, count, sorted(by_broker))
    else:
        sentence = broker_sentence(kind, quota, mean_ms, sorted(by_broker))
    return Rule(
        title=rule_title(kind, quota, first_entry.entity),
        sentence=sentence,
        level=scope_text(kind, quota, first_entry.level),
        limit=limit_text(kind, quota) or quota_limit(whole_limit, quota),
        delay_ms=mean_ms,
        p95_ms=max(entry.delay_ms_p95 for entry in entries),
        waiters=tuple(names[:WAITERS_SHOWN_MAX]),
        waiters_more=max(0, len(names) - WAITERS_SHOWN_MAX),
        brokers=tuple(
            (
                broker,
                _mean(by_broker[broker]),
                "" if share is None or share == whole_limit else quota_limit(share, quota),
            )
            for broker, share in shares.items()
        ),
        since_ms=since_ms,
        burst_duration_s=max(0, end_ms - since_ms) / 1_000,
        bursts=max(entry.bursts for entry in entries),
        first_ms=min(entry.since_ms for entry in entries),
        active=any(entry.active for entry in entries),
        is_client_quota=kind == "client_quota",
        is_bandwidth=is_bandwidth,
        is_refusal=kind in REFUSING_KINDS,
        count=count,
        user=first_entry.entity.get("user"),
        client_id=first_entry.entity.get("client_id"),
    )


def _latest_burst(entries: Iterable[Throttle], now_ms: int) -> tuple[int, int]:
    """Returns start and end of the current or last burst: delays on several brokers, or of several clients, without a
    pause between them count as one burst.
    """
    spans = [(entry.burst_since_ms, now_ms if entry.active else entry.last_ms) for entry in entries]
    spans.sort(key=lambda span: -span[1])
    since_ms, end_ms = spans[0]
    for start_ms, last_ms in spans[1:]:
        if since_ms - last_ms <= BURST_GAP_MS:
            since_ms = min(since_ms, start_ms)
    return since_ms, end_ms


def _bandwidth_shares(
    brokers: Iterable[int], quota: str, whole_limit: float | None, current_shares: Bandwidth | None
) -> dict[int, float | None]:
    """Returns the current share of each broker; None for all if it is unknown."""
    part_by_broker = current_shares.brokers if current_shares is not None else {}
    share_by_broker = {
        number: float((part.produce if is_produce(quota) else part.consume).share_bytes_per_s)
        for number in brokers
        if (part := part_by_broker.get(number)) is not None
    }
    return _unless_inconsistent({number: share_by_broker.get(number) for number in brokers}, whole_limit)


def _quota_shares(by_broker: Mapping[int, list[Throttle]], whole_limit: float | None) -> dict[int, float | None]:
    """Returns the share that each broker had of a quota when it last delayed a client; None if that was more than
    `SAME_ALLOCATION_MS` before the last delay on any broker.
    """
    latest = {number: max(entries, key=lambda entry: entry.last_ms) for number, entries in sorted(by_broker.items())}
    newest_ms = max(entry.last_ms for entry in latest.values())
    shares = {
        number: entry.limit_per_s if newest_ms - entry.last_ms <= SAME_ALLOCATION_MS else None
        for number, entry in latest.items()
    }
    if all(share == whole_limit for share in shares.values()):
        return shares  # a quota that holds on each broker
    return _unless_inconsistent(shares, whole_limit)


def _unless_inconsistent(shares: Mapping[int, float | None], whole_limit: float | None) -> dict[int, float | None]:
    """Returns the shares, or None for each if they add up to more than the limit, because they are of different
    moments.
    """
    total = sum(share for share in shares.values() if share is not None)
    is_too_much = whole_limit is not None and total > whole_limit
    return dict.fromkeys(shares) if is_too_much else dict(shares)
