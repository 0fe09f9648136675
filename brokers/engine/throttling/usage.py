"""Usage counters: cumulative since this broker incarnation began, one per (topic, user, client id, direction) of an
instance.

A report names the counters that changed since the one before; repeating or losing a report changes nothing, because the
latest value of a counter tells the whole story (brokers.contract.usage).
"""

from __future__ import annotations

from brokers.contract.usage import OTHER, USAGE_KEYS_PER_INSTANCE_MAX, Direction, UsageEvent

Key = tuple[str, str, str, Direction]


class UsageCounter:
    """`bytes` are record-batch bytes: accepted by the leader (produce) or written to the socket (consume)."""

    __slots__ = ("bytes", "key", "reported_requests", "requests")

    def __init__(self, key: Key) -> None:
        self.key = key
        self.bytes = 0
        self.requests = 0
        self.reported_requests = 0

    def add(self, count: int) -> None:
        self.bytes += count
        self.requests += 1


class UsageBook:
    """The counters of one instance. They live as long as the incarnation does: a counter may never run backwards."""

    __slots__ = ("_counters",)

    def __init__(self) -> None:
        self._counters: dict[Key, UsageCounter] = {}

    def __len__(self) -> int:
        return len(self._counters)

    def counter(self, topic: str, user: str, client_id: str, direction: Direction) -> UsageCounter:
        """`topic` is the tenant's name. Keys beyond the limit are counted together, under `OTHER`."""
        key: Key = (topic, user, client_id, direction)
        counter = self._counters.get(key)
        if counter is None:
            if len(self._counters) >= USAGE_KEYS_PER_INSTANCE_MAX:
                key = (OTHER, OTHER, OTHER, direction)
                counter = self._counters.get(key)
            if counter is None:
                counter = self._counters[key] = UsageCounter(key)
        return counter

    def changed(self) -> list[UsageCounter]:
        return [counter for counter in self._counters.values() if counter.requests != counter.reported_requests]


class UsageReport:
    """Events to be written, and the word that they are: `confirm` after the append, never before."""

    def __init__(self, events: list[UsageEvent], counters: list[tuple[UsageCounter, int]]) -> None:
        self.events = events
        self._counters = counters

    def confirm(self) -> None:
        for counter, requests in self._counters:
            counter.reported_requests = requests


def report(books: dict[str, UsageBook], *, broker_id: int, broker_epoch: int, sequence: int, at_ms: int) -> UsageReport:
    """What changed in all `books` (by instance id) since the last confirmed report. `at_ms` is wall time."""
    events: list[UsageEvent] = []
    counters: list[tuple[UsageCounter, int]] = []
    for instance_id, book in books.items():
        for counter in book.changed():
            topic, user, client_id, direction = counter.key
            counters.append((counter, counter.requests))
            events.append(
                UsageEvent(
                    broker_id=broker_id,
                    broker_epoch=broker_epoch,
                    sequence=sequence,
                    at_ms=at_ms,
                    instance_id=instance_id,
                    topic=topic,
                    user=user,
                    client_id=client_id,
                    direction=direction,
                    bytes=counter.bytes,
                    requests=counter.requests,
                )
            )
    return UsageReport(events, counters)
