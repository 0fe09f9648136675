"""Usage counters: cumulative since this broker incarnation began, one per (topic, user, client id, direction) of an
instance.

A report names the counters that changed since the one before; repeating or losing a report changes nothing, because the
latest value of a counter tells the whole story (brokers.contract.usage).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from brokers.contract.usage import OTHER, USAGE_KEYS_PER_INSTANCE_MAX, Direction, Level, UsageEvent, counted_name

Key = tuple[str, str, str, Direction | Level]


# Where a counter keeps its numbers: bytes, requests, and requests as of the last confirmed report.
NUMBERS: Final = 3
BYTES: Final = 0
REQUESTS: Final = 1
REPORTED: Final = 2
NumbersFor = Callable[[Key], memoryview]


def own_numbers(key: Key) -> memoryview:
    """Numbers that end with the process."""
    return memoryview(bytearray(8 * NUMBERS)).cast("q")


class UsageCounter:
    """`bytes` are record-batch bytes: accepted by the leader (produce) or written to the socket (consume); or a level.

    The numbers lie where whoever made the counter wants them, as three 64-bit integers. `moved_ms` is the time of the
    last report that found it changed, 0 before the first.
    """

    __slots__ = ("key", "moved_ms", "numbers")

    def __init__(self, key: Key, numbers: memoryview) -> None:
        self.key = key
        self.numbers = numbers
        self.moved_ms = 0

    @property
    def bytes(self) -> int:
        return int(self.numbers[BYTES])

    @property
    def requests(self) -> int:
        return int(self.numbers[REQUESTS])

    @property
    def is_reported(self) -> bool:
        return bool(self.numbers[REQUESTS] == self.numbers[REPORTED])

    def add(self, count: int) -> None:
        numbers = self.numbers
        numbers[BYTES] += count
        numbers[REQUESTS] += 1

    def confirm(self, requests: int) -> None:
        """What it was when it had counted `requests` has been reported."""
        self.numbers[REPORTED] = requests


class UsageAccounting:
    """The counters of one instance. They live as long as the incarnation does: a counter may never run backwards."""

    __slots__ = ("_counters", "_numbers_for")

    def __init__(self, numbers_for: NumbersFor = own_numbers) -> None:
        self._counters: dict[Key, UsageCounter] = {}
        self._numbers_for = numbers_for

    def __len__(self) -> int:
        return len(self._counters)

    def counter(self, topic: str, user: str, client_id: str, direction: Direction | Level) -> UsageCounter:
        """`topic` is the tenant's name. Keys beyond the limit are counted together, under `OTHER`."""
        key: Key = (topic, counted_name(user), counted_name(client_id), direction)
        counter = self._counters.get(key)
        if counter is None:
            if len(self._counters) >= USAGE_KEYS_PER_INSTANCE_MAX:
                key = (OTHER, OTHER, OTHER, direction)
                counter = self._counters.get(key)
            if counter is None:
                counter = self._counters[key] = UsageCounter(key, self._numbers_for(key))
        return counter

    def counters(self) -> Iterable[UsageCounter]:
        return self._counters.values()

    def changed(self) -> list[UsageCounter]:
        return [counter for counter in self._counters.values() if not counter.is_reported]


class UsageReport:
    """Events to be written, and the word that they are: `confirm` after the append, never before."""

    def __init__(self, events: list[UsageEvent], counters: list[tuple[UsageCounter, int]]) -> None:
        self.events = events
        self._counters = counters

    def confirm(self) -> None:
        for counter, requests in self._counters:
            counter.confirm(requests)


def report(
    accountings: dict[str, UsageAccounting], *, broker_id: int, broker_epoch: int, sequence: int, at_ms: int
) -> UsageReport:
    """What changed in all `accountings` (by instance id) since the last confirmed report. `at_ms` is wall time."""
    events: list[UsageEvent] = []
    counters: list[tuple[UsageCounter, int]] = []
    for instance_id, accounting in accountings.items():
        for counter in accounting.changed():
            topic, user, client_id, direction = counter.key
            counter.moved_ms = at_ms
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
