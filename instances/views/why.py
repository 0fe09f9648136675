""" "Why am I slow?": the throttle ledger grouped by rule and put into sentences. Reads nothing, decides nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from django.utils.translation import gettext as _

from instances.interfaces import Throttle, Throttles
from quotas.addresses import CONNECTION_CREATION_RATE
from tenants.formatting import delay, rate_limit

ENDED_SHOWN_MS = 60_000
WAITERS_SHOWN_MAX = 3
ANONYMOUS = "ANONYMOUS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule clients wait for (or waited for a moment ago), summed over brokers and clients.

    `limit` is what was bought or set, in words; `brokers` has the share of each in an instance's bandwidth.
    """

    title: str
    sentence: str
    level: str
    limit: str
    delay_ms: float
    p95_ms: float
    waiters: tuple[str, ...]
    waiters_more: int
    brokers: tuple[tuple[int, float, float | None], ...]
    """Broker id, mean delay in ms, and the broker's share in bytes/s where the limit is shared out."""
    since_ms: int
    seconds: float
    active: bool
    is_client_quota: bool
    is_bandwidth: bool
    user: str | None
    client_id: str | None


def level_words(level: int) -> str:
    """What the entity of a quota level consists of, first match wins."""
    return {
        1: _("user and client"),
        2: _("user, any client"),
        3: _("user"),
        4: _("any user, client"),
        5: _("any user, any client"),
        6: _("any user"),
        7: _("client"),
        8: _("any client"),
    }.get(level, "")


def who(user: str, client_id: str) -> str:
    """A client as people call it; a connection without authentication has only its client id."""
    if user in ("", ANONYMOUS):
        return client_id or _("clients without a name")
    return _(", ").join((user, client_id)) if client_id else user


def entity_words(entity: Mapping[str, str | None]) -> str:
    """The clients a quota is set for: `user etl-sink, any client`."""
    parts = []
    if "user" in entity:
        name = entity["user"]
        parts.append(_("any user") if name is None else _("user %(name)s") % {"name": name})
    if "client_id" in entity:
        name = entity["client_id"]
        parts.append(_("any client") if name is None else _("client %(name)s") % {"name": name})
    return _(", ").join(parts)


def rules_now(ledger: Throttles, bandwidth_bytes_per_s: int) -> list[Rule]:
    """Rules that hold clients back, or did within the last minute; largest delay first.

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
    is_client_quota, is_bandwidth = first.kind == "client_quota", first.kind == "instance_bandwidth"
    by_broker: dict[int, list[Throttle]] = {}
    for entry in entries:
        by_broker.setdefault(entry.broker_id, []).append(entry)
    waiting = sorted(entries, key=lambda entry: -entry.delay_ms_mean)
    names = list(dict.fromkeys(who(entry.user, entry.client_id) for entry in waiting))
    since_ms = min(entry.since_ms for entry in entries)
    end_ms = now_ms if any(entry.active for entry in entries) else max(entry.last_ms for entry in entries)
    mean_ms = _mean(entries)
    shares = {broker: _share(result) for broker, result in sorted(by_broker.items())} if is_bandwidth else {}
    if is_client_quota:
        limit = rate_limit(first.limit_bytes_per_s or 0)
        sentence = _quota_sentence(first, mean_ms, sorted(by_broker))
    elif is_bandwidth:
        limit = rate_limit(bandwidth_bytes_per_s)
        sentence = _bandwidth_sentence(first, mean_ms, bandwidth_bytes_per_s, shares)
    else:
        limit = limit_words(_cause(first))
        sentence = _broker_sentence(_cause(first), mean_ms, sorted(by_broker))
    return Rule(
        title=_title(first),
        sentence=sentence,
        level=_level(first),
        limit=limit,
        delay_ms=mean_ms,
        p95_ms=max(entry.delay_ms_p95 for entry in entries),
        waiters=tuple(names[:WAITERS_SHOWN_MAX]),
        waiters_more=max(0, len(names) - WAITERS_SHOWN_MAX),
        brokers=tuple((broker, _mean(result), shares.get(broker)) for broker, result in sorted(by_broker.items())),
        since_ms=since_ms,
        seconds=max(0, end_ms - since_ms) / 1_000,
        active=any(entry.active for entry in entries),
        is_client_quota=is_client_quota,
        is_bandwidth=is_bandwidth,
        user=first.entity.get("user"),
        client_id=first.entity.get("client_id"),
    )


def _is_produce(entry: Throttle) -> bool:
    return entry.quota.startswith("produce")


def _cause(entry: Throttle) -> str:
    """The kind of a rule, or the quota where a kind has several."""
    return entry.quota if entry.quota == CONNECTION_CREATION_RATE else entry.kind


def kind_words(kind: str) -> str:
    """The name of a rule that is neither a quota of clients nor bandwidth."""
    return {
        "request_time": _("Request time"),
        "change_rate": _("Rate of changes"),
        "connection_limit": _("Connections"),
        "connection_rate": _("New connections"),
        CONNECTION_CREATION_RATE: _("New connections of an address"),
        "authentication": _("Failed sign-ins of clients"),
    }.get(kind, "")


def limit_words(kind: str) -> str:
    """Its limit, which is no number of bytes."""
    return {
        "request_time": _("a quarter of each broker's time"),
        "change_rate": _("changes a second on each broker"),
        "connection_limit": _("connections to one broker"),
        "connection_rate": _("new connections a second"),
        CONNECTION_CREATION_RATE: _("new connections a second of one address"),
        "authentication": _("wrong passwords of a user or an address"),
    }.get(kind, "")


def _title(entry: Throttle) -> str:
    if name := kind_words(_cause(entry)):
        return name
    if entry.kind != "client_quota":
        return _("Instance produce bandwidth") if _is_produce(entry) else _("Instance consume bandwidth")
    words = {"who": entity_words(entry.entity)}
    return (_("Produce quota of %(who)s") if _is_produce(entry) else _("Consume quota of %(who)s")) % words


def _level(entry: Throttle) -> str:
    if entry.level is None:
        return _("level: instance")
    return _("level %(level)d of 8: %(words)s") % {"level": entry.level, "words": level_words(entry.level)}


def _share(entries: list[Throttle]) -> float:
    """What a broker has of the instance's bandwidth: it changes when leaders move, so the latest entry says it."""
    return max(entries, key=lambda entry: entry.last_ms).limit_bytes_per_s or 0.0


def _bandwidth_sentence(entry: Throttle, mean_ms: float, limit: float, shares: Mapping[int, float]) -> str:
    words = {"limit": rate_limit(limit), "delay": delay(mean_ms), "brokers": _shares_words(shares)}
    if all(share >= limit for share in shares.values()):
        if _is_produce(entry):
            return (
                _(
                    "This instance has %(limit)s for producers, so each produce waits %(delay)s on average."
                    " Nothing is lost and nothing is refused."
                )
                % words
            )
        return (
            _(
                "This instance has %(limit)s for consumers, so each fetch waits %(delay)s on average."
                " Nothing is lost and nothing is refused."
            )
            % words
        )
    if _is_produce(entry):
        return (
            _(
                "This instance has %(limit)s for producers, shared out over the brokers that lead its partitions."
                " Now at its share: %(brokers)s. Each produce there waits %(delay)s on average."
                " Nothing is lost and nothing is refused."
            )
            % words
        )
    return (
        _(
            "This instance has %(limit)s for consumers, shared out over the brokers that lead its partitions."
            " Now at its share: %(brokers)s. Each fetch there waits %(delay)s on average."
            " Nothing is lost and nothing is refused."
        )
        % words
    )


def _shares_words(shares: Mapping[int, float]) -> str:
    """`broker 1 (1.4 MB/s), broker 3 (1.8 MB/s)`."""
    described = [
        _("broker %(id)d (%(share)s)") % {"id": broker, "share": rate_limit(share)} for broker, share in shares.items()
    ]
    return _(", ").join(described)


def _broker_sentence(kind: str, mean_ms: float, brokers: list[int]) -> str:
    words = {"delay": delay(mean_ms), "brokers": ", ".join(str(broker) for broker in brokers)}
    if kind == "change_rate":
        return (
            _(
                "This instance creates or deletes partitions, or changes configurations and quotas, faster than brokers"
                " %(brokers)s take it. Each waits %(delay)s on average. Fewer of them at a time end that."
            )
            % words
        )
    if kind == "connection_limit":
        return (
            _(
                "Connections were closed at once, because this instance, or one address of it, has as many as it may"
                " have to these brokers: %(brokers)s. Clients that share connections, or close those they do not use,"
                " end that."
            )
            % words
        )
    if kind == "connection_rate":
        return (
            _(
                "Clients open connections faster than these brokers accept them from one instance: %(brokers)s."
                " A new connection waits %(delay)s on average. Clients that keep their connections end that."
            )
            % words
        )
    if kind == CONNECTION_CREATION_RATE:
        return (
            _(
                "Connections come from an address faster than its limit lets in, at these brokers: %(brokers)s. Each is"
                " kept unread for %(delay)s on average and closed. Clients that keep their connections end that."
            )
            % words
        )
    if kind == "authentication":
        return (
            _(
                "Somebody gave wrong passwords too often to these brokers: %(brokers)s. Further ones of the same user"
                " or address are refused for some minutes, without a look at them. Connections that are open go on."
            )
            % words
        )
    return (
        _(
            "This instance's requests take more than a quarter of the time of these brokers: %(brokers)s."
            " Each waits %(delay)s on average. Fewer requests that name many topics, partitions or groups,"
            " and smaller compressed batches, end that."
        )
        % words
    )


def _quota_sentence(entry: Throttle, mean_ms: float, brokers: list[int]) -> str:
    words = {
        "limit": rate_limit(entry.limit_bytes_per_s or 0),
        "delay": delay(mean_ms),
        "brokers": ", ".join(str(broker) for broker in brokers),
        "who": entity_words(entry.entity).capitalize(),
        "level": _level(entry),
    }
    if len(brokers) == 1:
        if _is_produce(entry):
            return _("%(who)s may produce %(limit)s (%(level)s). It waits %(delay)s on broker %(brokers)s.") % words
        return _("%(who)s may consume %(limit)s (%(level)s). It waits %(delay)s on broker %(brokers)s.") % words
    if _is_produce(entry):
        return _("%(who)s may produce %(limit)s (%(level)s). It waits %(delay)s on brokers %(brokers)s.") % words
    return _("%(who)s may consume %(limit)s (%(level)s). It waits %(delay)s on brokers %(brokers)s.") % words
