"""The throttle ledger: every delay with its cause, summed per (rule, user, client id), so that "why am I slow" has an
answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from brokers.contract.usage import counted_name
from brokers.engine.throttling.charging import Rule

ENTRIES_MAX: Final = 1_000
# The delays a percentile is taken over: the latest ones.
RECENT_MAX: Final = 128

Key = tuple[Rule, str, str]


@dataclass(slots=True)
class Entry:
    """Times are wall milliseconds; `until_ms` is when the latest delay ends. `limit_per_s` None: not one of bytes."""

    limit_per_s: float | None
    since_ms: int
    last_ms: int = 0
    until_ms: int = 0
    count: int = 0
    waited_ms: int = 0
    longest_ms: int = 0
    recent_ms: list[int] = field(default_factory=list)

    def percentile_ms(self, part: float) -> int:
        """Of the latest delays; 0 before the first."""
        if not self.recent_ms:
            return 0
        ordered = sorted(self.recent_ms)
        return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


class Ledger:
    """The entries of one instance. When it is full the entry that was quiet longest makes room."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[Key, Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def record(
        self, rule: Rule, limit_per_s: float | None, user: str, client_id: str, delay_ms: int, now_ms: int
    ) -> None:
        key = (rule, user, counted_name(client_id))
        entry = self._entries.get(key)
        if entry is None:
            entry = self._add(key, limit_per_s, now_ms)
        entry.limit_per_s = limit_per_s
        entry.last_ms = now_ms
        entry.until_ms = max(entry.until_ms, now_ms + delay_ms)
        entry.waited_ms += delay_ms
        entry.longest_ms = max(entry.longest_ms, delay_ms)
        if len(entry.recent_ms) < RECENT_MAX:
            entry.recent_ms.append(delay_ms)
        else:
            entry.recent_ms[entry.count % RECENT_MAX] = delay_ms
        entry.count += 1

    def _add(self, key: Key, limit_per_s: float | None, now_ms: int) -> Entry:
        if len(self._entries) >= ENTRIES_MAX:
            quietest = min(self._entries, key=lambda known: self._entries[known].last_ms)
            del self._entries[quietest]
        entry = self._entries[key] = Entry(limit_per_s, now_ms)
        return entry

    def as_json(self, now_ms: int) -> list[dict[str, object]]:
        """As the admin port answers it, the latest delay first."""
        ordered = sorted(self._entries.items(), key=lambda item: -item[1].last_ms)
        return [self._entry_json(key, entry, now_ms) for key, entry in ordered]

    def _entry_json(self, key: Key, entry: Entry, now_ms: int) -> dict[str, object]:
        rule, user, client_id = key
        entity: dict[str, str | None] = {}
        if rule.entity is not None:
            if rule.entity.has_user:
                entity["user"] = rule.entity.user
            if rule.entity.has_client:
                entity["client_id"] = rule.entity.client_id
        return {
            "rule": {"kind": rule.kind, "quota": rule.quota, "level": rule.level, "entity": entity},
            "limit_bytes_per_s": entry.limit_per_s,
            "user": user,
            "client_id": client_id,
            "count": entry.count,
            "delay_ms_mean": entry.waited_ms / entry.count,
            "delay_ms_p95": entry.percentile_ms(0.95),
            "delay_ms_max": entry.longest_ms,
            "waited_ms_total": entry.waited_ms,
            "since_ms": entry.since_ms,
            "last_ms": entry.last_ms,
            "active": entry.until_ms > now_ms,
        }
