"""Causes of an instance's delays on this broker by minute, for the last quarter of an hour.

The control plane reads them every few seconds and stores them for a week; the quarter of an hour covers the times at
which it does not read them.
"""

from __future__ import annotations

from typing import Any, Final

from brokers.engine.throttling.charging import Rule

MINUTE_MS: Final = 60_000
MINUTES_KEPT: Final = 16
# Rules recorded separately in one minute; further client quotas are summed by quota.
RULES_PER_MINUTE_MAX: Final = 8
# Clients recorded separately for one rule in one minute; beyond, the client that waited least is dropped.
CLIENTS_PER_RULE_MAX: Final = 8
# Number of clients reported for one rule: those that waited longest.
CLIENTS_SHOWN_MAX: Final = 3

Client = tuple[str, str]


class _Cause:
    """Delays by one rule in one minute. `clients` has `[count, waited_ms]` of each client."""

    __slots__ = ("clients", "count", "longest_ms", "waited_ms", "whole_limit_per_s")

    def __init__(self) -> None:
        self.whole_limit_per_s: float | None = None
        self.count = self.waited_ms = self.longest_ms = 0
        self.clients: dict[Client, list[int]] = {}

    def record(self, client: Client, count: int, delay_ms: int) -> None:
        self.count += count
        self.waited_ms += delay_ms
        self.longest_ms = max(self.longest_ms, delay_ms)
        totals = self.clients.get(client)
        if totals is None:
            if len(self.clients) >= CLIENTS_PER_RULE_MAX:
                shortest = min(self.clients, key=lambda client: (self.clients[client][1], self.clients[client][0]))
                del self.clients[shortest]
            totals = self.clients[client] = [0, 0]
        totals[0] += count
        totals[1] += delay_ms


class _Minute:
    """Causes of the delays of one minute; `last_recorded_ms` is the time of the latest record."""

    __slots__ = ("causes", "last_recorded_ms")

    def __init__(self) -> None:
        self.causes: dict[Rule, _Cause] = {}
        self.last_recorded_ms = 0

    def cause(self, rule: Rule) -> _Cause:
        cause = self.causes.get(rule)
        if cause is None:
            if len(self.causes) >= RULES_PER_MINUTE_MAX and rule.entity is not None:
                rule = Rule(rule.kind, rule.quota, None, None)
                cause = self.causes.get(rule)
            if cause is None:
                cause = self.causes[rule] = _Cause()
        return cause


class ThrottledMinutes:
    """Delays and refusals of one instance by minute, rule and client. Times are wall milliseconds."""

    __slots__ = ("_minutes",)

    def __init__(self) -> None:
        self._minutes: dict[int, _Minute] = {}

    def record(
        self, key: tuple[Rule, str, str], whole_limit_per_s: float | None, count: int, delay_ms: int, now_ms: int
    ) -> None:
        """Records `count` delays, `delay_ms` in total, or refusals."""
        rule, user, client_id = key
        minute_ms = now_ms - now_ms % MINUTE_MS
        minute = self._minutes.get(minute_ms)
        if minute is None:
            minute = self._minutes[minute_ms] = _Minute()
            if len(self._minutes) > MINUTES_KEPT:
                del self._minutes[min(self._minutes)]
        minute.last_recorded_ms = now_ms
        cause = minute.cause(rule)
        cause.whole_limit_per_s = whole_limit_per_s
        cause.record((user, client_id), count, delay_ms)

    def list_minutes(self, since_ms: int, until_ms: int) -> list[dict[str, Any]]:
        """Returns the minutes whose last record is in `[since_ms, until_ms)`, in order, each with all its records."""
        return [
            {"minute_ms": minute_ms, "causes": [_cause_json(rule, cause) for rule, cause in minute.causes.items()]}
            for minute_ms, minute in sorted(self._minutes.items())
            if since_ms <= minute.last_recorded_ms < until_ms
        ]


def rule_json(rule: Rule) -> dict[str, object]:
    """Returns a rule for the admin port. `entity` has the parts that the quota names; None is the default entity."""
    entity: dict[str, str | None] = {}
    if rule.entity is not None:
        if rule.entity.has_user:
            entity["user"] = rule.entity.user
        if rule.entity.has_client:
            entity["client_id"] = rule.entity.client_id
    return {"kind": rule.kind, "quota": rule.quota, "level": rule.level, "entity": entity}


def _cause_json(rule: Rule, cause: _Cause) -> dict[str, object]:
    clients = sorted(cause.clients.items(), key=lambda client: (-client[1][1], -client[1][0], client[0]))[
        :CLIENTS_SHOWN_MAX
    ]
    return {
        **rule_json(rule),
        "whole_limit_per_s": cause.whole_limit_per_s,
        "count": cause.count,
        "waited_ms": cause.waited_ms,
        "longest_ms": cause.longest_ms,
        "clients": [[user, client_id, count, waited_ms] for (user, client_id), (count, waited_ms) in clients],
    }
