"""Audit events of administrative requests, on their way to the cluster's audit topic (decision 107).

A change is written before its request is answered. Frequent events are counted and reported together (`Tallies`):
failed sign-ins, denied changes, offsets committed outside of groups, and changes beyond an instance's limit of single
events. While no partition of the topic is writable, events wait in memory.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import structlog

from brokers.contract.audit import DENIED, DONE, SEVERAL, SIGN_IN_FAILED, SIGN_IN_REFUSED, AuditEvent, AuditItem
from brokers.contract.audit_limits import (
    CHANGES_LISTED_BURST,
    CHANGES_LISTED_PER_MINUTE,
    COMMITS_REPORTED_EVERY_S,
    COMMITS_REPORTED_KEYS_MAX,
    TALLIES_PER_INSTANCE_MAX,
    TALLIES_REPORTED_EVERY_S,
    TALLY_REPORTED_AFTER_S,
)
from brokers.engine.clock import Clock
from brokers.engine.scheduling.time_slice import yield_to_others

# Maximum number of names that one tally keeps as examples.
NAMES_MAX: Final = 20
NEVER_MS: Final = 1 << 62
# Interval in which waiting events and tallies are processed.
TICK_S: Final = 1.0
# Maximum number of events that wait while this broker leads no partition of the topic, and maximum of their bytes;
# beyond them the oldest events are dropped.
WAITING_MAX: Final = 2_000
WAITING_BYTES_MAX: Final = 8 * 1024 * 1024
# Number of events written in one turn of the event loop, about 0.2 ms each.
WRITTEN_PER_TURN: Final = 10
_ID_BYTES: Final = 8
_MINUTE_MS: Final = 60_000

log = structlog.get_logger(__name__)


class TallyRule(NamedTuple):
    """Intervals of reports: events with one key are reported `first_ms` after the first of them, then each
    `interval_ms` as long as there are more. Beyond `keys_max` keys of one instance, events are counted together for
    each user, without the attributes that a client may choose freely; beyond twice that number, without the user.
    """

    first_ms: int
    interval_ms: int
    keys_max: int


class TallyKey(NamedTuple):
    """Attributes that events counted together have in common. `name` is the resource, if all events have the same;
    `denied_action` the action that was denied, `reason` a word for the cause.
    """

    action: str
    kind: str
    name: str
    user: str
    address: str
    client_id: str
    route: str
    denied_action: str = ""
    reason: str = ""

    @property
    def without_client_attributes(self) -> TallyKey:
        """Key without the attributes that a client may choose freely."""
        return self._replace(name="", client_id="", reason="")

    @property
    def without_user(self) -> TallyKey:
        """Key without the attributes of a user."""
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

    def take(self) -> Tally:
        """Returns a copy of the counts, which start again at 0."""
        counts = replace(self)
        self.requests = self.items = 0
        self.names, self.last = {}, None
        return counts


class Tallies:
    """Tallies of one instance under one rule: events of one kind, user and address are counted and reported together,
    at first after a while and then at regular intervals. Pure; times are in milliseconds.
    """

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
            key = self._coarser_key(key)
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

    def _coarser_key(self, key: TallyKey) -> TallyKey:
        """Returns the coarser key under which an event is counted if there are too many keys."""
        without_client_attributes = key.without_client_attributes
        if without_client_attributes != key and (
            without_client_attributes in self._tallies or len(self._tallies) < 2 * self._rule.keys_max
        ):
            return without_client_attributes
        return key.without_user

    def take_due(self, now_ms: int) -> Iterator[tuple[TallyKey, Tally]]:
        """Yields the counts of tallies that are due. Others may count events between two of them."""
        if now_ms < self._due_ms:
            return
        for key, tally in list(self._tallies.items()):
            if tally.due_ms <= now_ms:
                yield from self.take(key, now_ms)
        self._due_ms = min((tally.due_ms for tally in self._tallies.values()), default=NEVER_MS)

    def take(self, key: TallyKey, now_ms: int) -> Iterator[tuple[TallyKey, Tally]]:
        """Yields the counts of one key if they are due."""
        tally = self._tallies.get(key)
        if tally is None or tally.due_ms > now_ms:
            return
        if not tally.requests:
            # No event for an interval: the next one starts a new tally.
            del self._tallies[key]
            return
        # Before the caller gets them: it may let others run, who count the next events.
        counts = tally.take()
        tally.due_ms = now_ms + self._rule.interval_ms
        yield key, counts

    def take_all(self) -> Iterator[tuple[TallyKey, Tally]]:
        """Yields all tallies with unreported events, at the end of the process."""
        for key, tally in self._tallies.items():
            if tally.requests:
                yield key, tally


_FREQUENT_EVENTS: Final = TallyRule(
    TALLY_REPORTED_AFTER_S * 1000, TALLIES_REPORTED_EVERY_S * 1000, TALLIES_PER_INSTANCE_MAX
)
# The first commit is reported at once: it may be an administrator who resets a group.
_COMMITS: Final = TallyRule(0, COMMITS_REPORTED_EVERY_S * 1000, COMMITS_REPORTED_KEYS_MAX)

# Takes an instance id and an event. Returns False if no partition is writable at the moment.
Append = Callable[[str, bytes], bool]


class Source(NamedTuple):
    """User, address and route of a request."""

    user: str
    address: str
    client_id: str = ""
    route: str = ""


@dataclass(slots=True)
class AuditCounts:
    """Counters since the start. `merged` events were reported together with others, `lost` ones were dropped."""

    written: int = 0
    merged: int = 0
    lost: int = 0


class _InstanceTallies:
    """Tallies of one instance. `tokens` is the number of changes that may be reported one by one."""

    __slots__ = ("commits", "denied", "merged", "sign_ins", "tokens", "updated_ms")

    def __init__(self, now_ms: int) -> None:
        self.tokens = float(CHANGES_LISTED_BURST)
        self.updated_ms = now_ms
        self.sign_ins = Tallies(_FREQUENT_EVENTS)
        self.denied = Tallies(_FREQUENT_EVENTS)
        self.merged = Tallies(_FREQUENT_EVENTS)
        self.commits = Tallies(_COMMITS)

    @property
    def tallies(self) -> tuple[Tallies, ...]:
        return self.sign_ins, self.denied, self.merged, self.commits

    def take(self, count: int, now_ms: int) -> bool:
        """True if this number of changes may be reported one by one; then tokens are taken for them. A request is
        reported as a whole if any tokens are left.
        """
        self._refill(now_ms)
        if self.tokens <= 0:
            return False
        self.tokens -= count
        return True

    def is_idle(self, now_ms: int) -> bool:
        self._refill(now_ms)
        return self.tokens >= CHANGES_LISTED_BURST and not any(map(len, self.tallies))

    def _refill(self, now_ms: int) -> None:
        added = (now_ms - self.updated_ms) * CHANGES_LISTED_PER_MINUTE / _MINUTE_MS
        self.tokens = min(float(CHANGES_LISTED_BURST), self.tokens + added)
        self.updated_ms = now_ms


class AuditTrail:
    """Audit events of one broker."""

    def __init__(self, broker_id: int, clock: Clock) -> None:
        # Rejects all events until the assembly sets the topic.
        self.append: Append = lambda _instance_id, _value: False
        self.counts = AuditCounts()
        self._broker_id = broker_id
        self._clock = clock
        self._by_instance: dict[str, _InstanceTallies] = {}
        self._waiting: deque[tuple[str, bytes]] = deque()
        self._waiting_bytes = 0

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    # -- events -------------------------------------------------------------------------------------------------------

    def report_changes(
        self, instance_id: str, source: Source, items: Sequence[AuditItem], *, more: int = 0, failed: int = 0
    ) -> None:
        """Reports the changes of one request."""
        if not items:
            return
        instance_tallies, now_ms = self._tallies_of(instance_id), self._clock.monotonic_ms()
        if instance_tallies.take(len(items), now_ms):
            at_ms = self._clock.now_ms()
            event = self._event(instance_id, source, tuple(items), at_ms, at_ms)
            self._write(replace(event, more=more, failed=failed))
            return
        self.counts.merged += 1
        first = items[0]
        # The client id, which the client chooses, must not multiply tallies.
        source = source._replace(client_id="")
        key = TallyKey(first.action, first.kind, "", *source)
        self._count(instance_tallies.merged, key, items=len(items) + more, names=_names(items))

    def report_denial(self, instance_id: str, source: Source, action: str, kind: str, names: Iterable[str]) -> None:
        """Reports a request that the rights of its user did not allow."""
        shown, source = [name for name in names if name], source._replace(client_id="")
        denied = self._tallies_of(instance_id).denied
        key = TallyKey(DENIED, kind, "", *source, denied_action=action)
        self._count(denied, key, items=max(len(shown), 1), names=shown)

    def report_commit(self, instance_id: str, source: Source, item: AuditItem) -> None:
        """Reports offsets committed by a client that is no member of the group: an administrator, or a consumer without
        group management, which commits every few seconds.
        """
        commits = self._tallies_of(instance_id).commits
        key = TallyKey(item.action, item.kind, item.name, *source)
        key = self._count(commits, key, names=(item.name,), last=item.after)
        for due, tally in commits.take(key, self._clock.monotonic_ms()):
            self._write_tally(instance_id, due, tally)

    def report_failed_sign_in(
        self, instance_id: str, source: Source, mechanism: str, *, is_refused: bool, reason: str = ""
    ) -> None:
        """Reports a failed sign-in. `source.user` is a user of the instance or `NOBODY`: the name that a stranger sends
        may be a password. `is_refused` is True if the attempt was not checked, since too many had failed. `reason` is
        a code such as `user_shut_out`, or empty.
        """
        action = SIGN_IN_REFUSED if is_refused else SIGN_IN_FAILED
        instance_tallies = self._tallies_of(instance_id)
        key = TallyKey(action, "user", "", *source, reason=reason)
        self._count(instance_tallies.sign_ins, key, last={"mechanism": mechanism})

    # -- periodic work ------------------------------------------------------------------------------------------------

    async def tick(self) -> None:
        """Writes waiting events and due tallies; runs every `TICK_S`."""
        written = 0
        while self._write_first():
            written += 1
            if not written % WRITTEN_PER_TURN:
                await yield_to_others()
        now_ms = self._clock.monotonic_ms()
        for instance_id, instance_tallies in list(self._by_instance.items()):
            for tallies in instance_tallies.tallies:
                for key, tally in tallies.take_due(now_ms):
                    self._write_tally(instance_id, key, tally)
                    written += 1
                    if not written % WRITTEN_PER_TURN:
                        await yield_to_others()
            if instance_tallies.is_idle(now_ms):
                del self._by_instance[instance_id]

    def finish(self) -> None:
        """Reports all tallies when the process stops."""
        while self._write_first():
            pass
        for instance_id, instance_tallies in self._by_instance.items():
            for tallies in instance_tallies.tallies:
                for key, tally in tallies.take_all():
                    self._write_tally(instance_id, key, tally)
        if self._waiting:
            log.error("audit_events_lost", count=len(self._waiting), reason="no partition of the audit topic is led")

    # -- internals ----------------------------------------------------------------------------------------------------

    def _count(
        self,
        tallies: Tallies,
        key: TallyKey,
        *,
        items: int = 1,
        names: Iterable[str] = (),
        last: Mapping[str, Any] | None = None,
    ) -> TallyKey:
        """Counts one event. Returns the key it was counted under, which is coarser if there are too many keys."""
        at_ms, now_ms = self._clock.now_ms(), self._clock.monotonic_ms()
        return tallies.add(key, at_ms=at_ms, now_ms=now_ms, items=items, names=names, last=last)

    def _write_tally(self, instance_id: str, key: TallyKey, tally: Tally) -> None:
        after: dict[str, Any] = {}
        if tally.items != tally.requests:
            after["items"] = tally.items
        if tally.names and not key.name:
            after["names"] = list(tally.names)
        if key.denied_action:
            after["asked"] = key.denied_action
        if key.reason:
            after["reason"] = key.reason
        if tally.last:
            after |= tally.last
        is_sign_in = key.action in (SIGN_IN_FAILED, SIGN_IN_REFUSED) and key.user != SEVERAL
        name = key.user if is_sign_in else key.name
        item = AuditItem(action=key.action, kind=key.kind, name=name, after=after or None)
        source = Source(key.user, key.address, key.client_id, key.route)
        event = self._event(instance_id, source, (item,), tally.first_at_ms, tally.last_at_ms)
        self._write(replace(event, requests=tally.requests))

    def _event(
        self, instance_id: str, source: Source, items: tuple[AuditItem, ...], at_ms: int, until_ms: int
    ) -> AuditEvent:
        return AuditEvent(
            id=secrets.token_hex(_ID_BYTES),
            broker_id=self._broker_id,
            instance_id=instance_id,
            at_ms=at_ms,
            until_ms=until_ms,
            **source._asdict(),
            items=items,
        )

    def _write(self, event: AuditEvent) -> None:
        """Writes an event, or appends it to the waiting events."""
        value = event.to_json()
        if not self._waiting and self.append(event.instance_id, value):
            self.counts.written += 1
            return
        self._waiting.append((event.instance_id, value))
        self._waiting_bytes += len(value)
        while len(self._waiting) > WAITING_MAX or self._waiting_bytes > WAITING_BYTES_MAX:
            self._waiting_bytes -= len(self._waiting.popleft()[1])
            if not self.counts.lost:
                log.error("audit_events_lost", reason="too many wait for a partition of the audit topic")
            self.counts.lost += 1

    def _write_first(self) -> bool:
        """Writes the event that waits longest. Returns False if none waits or no partition is writable."""
        if not self._waiting or not self.append(*self._waiting[0]):
            return False
        self._waiting_bytes -= len(self._waiting.popleft()[1])
        self.counts.written += 1
        return True

    def _tallies_of(self, instance_id: str) -> _InstanceTallies:
        instance_tallies = self._by_instance.get(instance_id)
        if instance_tallies is None:
            instance_tallies = self._by_instance[instance_id] = _InstanceTallies(self._clock.monotonic_ms())
        return instance_tallies


def _names(items: Iterable[AuditItem]) -> Iterable[str]:
    return (item.name for item in items if item.outcome == DONE)
