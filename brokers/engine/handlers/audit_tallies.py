"""Tallies of frequent events: events of one kind, user and address are counted and reported together, at first after a
while and then at regular intervals. Pure; times are in milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from brokers.contract.audit import SEVERAL

# Maximum number of names that one tally keeps as examples.
NAMES_MAX: Final = 20
NEVER_MS: Final = 1 << 62


class TallyRule(NamedTuple):
    """Intervals of reports: a kind is reported `first_ms` after its first event, then each `interval_ms` while it goes
    on. Beyond `keys_max` kinds of one instance, events are counted together for each user, without the parts that a
    client may choose freely; beyond as many again, without the user.
    """

    first_ms: int
    interval_ms: int
    keys_max: int


class TallyKey(NamedTuple):
    """Attributes that events counted together have in common. `name` is the resource, if all events have the same;
    `asked` the action that was denied, `reason` a word for the cause.
    """

    action: str
    kind: str
    name: str
    user: str
    address: str
    client_id: str
    route: str
    asked: str = ""
    reason: str = ""

    @property
    def of_user(self) -> TallyKey:
        return self._replace(name="", client_id="", reason="")

    @property
    def anonymised(self) -> TallyKey:
        return self._replace(name="", user=SEVERAL, address="", client_id="", route="", reason="")


@dataclass(slots=True)
class Tally:
    """Counts since the last report: `items` in `requests` requests, some of their names, the last details."""

    due_ms: int
    requests: int = 0
    items: int = 0
    first_at_ms: int = 0
    last_at_ms: int = 0
    names: dict[str, None] = field(default_factory=dict)
    last: Any = None

    def clear(self) -> None:
        self.requests = self.items = 0
        self.names, self.last = {}, None


class Tallies:
    """Tallies of one instance under one rule."""

    __slots__ = ("_due_ms", "_rule", "_tallies")

    def __init__(self, rule: TallyRule) -> None:
        self._rule = rule
        self._tallies: dict[TallyKey, Tally] = {}
        self._due_ms = NEVER_MS

    def __len__(self) -> int:
        return len(self._tallies)

    def add(
        self, key: TallyKey, *, at_ms: int, now_ms: int, items: int = 1, names: Iterable[str] = (), last: Any = None
    ) -> TallyKey:
        """Counts an event and returns the key it was counted under. `at_ms` is wall time, `now_ms` monotonic."""
        tally = self._tallies.get(key)
        if tally is None and len(self._tallies) >= self._rule.keys_max:
            key = self._shared(key)
            tally = self._tallies.get(key)
        if tally is None:
            tally = self._tallies[key] = Tally(now_ms + self._rule.first_ms)
        if not tally.requests:
            tally.first_at_ms = at_ms
        tally.requests += 1
        tally.items += items
        tally.last_at_ms = at_ms
        tally.last = last
        for name in names:
            if len(tally.names) >= NAMES_MAX:
                break
            tally.names[name] = None
        self._due_ms = min(self._due_ms, tally.due_ms)
        return key

    def _shared(self, key: TallyKey) -> TallyKey:
        """Returns the coarser key for a kind that there is no room for."""
        of_user = key.of_user
        if of_user != key and (of_user in self._tallies or len(self._tallies) < 2 * self._rule.keys_max):
            return of_user
        return key.anonymised

    def take_due(self, now_ms: int) -> Iterator[tuple[TallyKey, Tally]]:
        """Yields the tallies that are due; each is reset when the next one is requested."""
        if now_ms < self._due_ms:
            return
        for key, tally in list(self._tallies.items()):
            if tally.due_ms <= now_ms:
                yield from self.take(key, now_ms)
        self._due_ms = min((tally.due_ms for tally in self._tallies.values()), default=NEVER_MS)

    def take(self, key: TallyKey, now_ms: int) -> Iterator[tuple[TallyKey, Tally]]:
        """Yields the tally of one key if it is due."""
        tally = self._tallies.get(key)
        if tally is None or tally.due_ms > now_ms:
            return
        if not tally.requests:
            # No event for an interval: the next one starts a new tally.
            del self._tallies[key]
            return
        yield key, tally
        tally.clear()
        tally.due_ms = now_ms + self._rule.interval_ms

    def take_all(self) -> Iterator[tuple[TallyKey, Tally]]:
        """Yields all tallies with unreported events, at the end of the process."""
        for key, tally in self._tallies.items():
            if tally.requests:
                yield key, tally
