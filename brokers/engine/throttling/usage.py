"""Usage counters, cumulative since this broker incarnation began: one per topic, user, client id and direction of an
instance.

A report has the counters that changed since the previous one. Repeated and lost reports do no harm, because only the
latest value of a counter matters (`brokers.contract.usage`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from brokers.contract.usage import (
    OTHER,
    USAGE_KEYS_PER_INSTANCE_MAX,
    CounterValue,
    Direction,
    Level,
    ReportHead,
    counted_name,
)

Key = tuple[str, str, str, Direction | Level]


# Numbers of a counter by index: bytes, requests, and requests as of the last confirmed report.
NUMBERS: Final = 3
BYTES: Final = 0
REQUESTS: Final = 1
REPORTED: Final = 2
# Limits of one part of a report: counters in it, characters of their names, and counters that were examined. A part
# takes about three milliseconds of a broker's event loop.
VALUES_PER_PART_MAX: Final = 100
NAME_CHARACTERS_PER_PART_MAX: Final = 100_000
COUNTERS_PER_PART_MAX: Final = 10_000
AllocateNumbers = Callable[[Key], memoryview]


def allocate_in_memory(key: Key) -> memoryview:
    """Allocates the numbers of a counter in the memory of this process, with which they are lost."""
    return memoryview(bytearray(8 * NUMBERS)).cast("q")


class UsageCounter:
    """A usage counter: bytes and requests.

    `bytes` are record-batch bytes, accepted by the leader (produce) or written to the socket (consume), or a gauge,
    such as stored bytes. `numbers` is a view of three 64-bit integers that the caller allocates. `changed_ms` is the
    time of the last report that found the counter changed, 0 before the first.
    """

    __slots__ = ("changed_ms", "key", "numbers")

    def __init__(self, key: Key, numbers: memoryview) -> None:
        self.key = key
        self.numbers = numbers
        self.changed_ms = 0

    @property
    def bytes(self) -> int:
        return int(self.numbers[BYTES])

    @property
    def requests(self) -> int:
        return int(self.numbers[REQUESTS])

    @property
    def is_reported(self) -> bool:
        """True if the current value was confirmed."""
        return bool(self.numbers[REQUESTS] == self.numbers[REPORTED])

    def add(self, count: int) -> None:
        """Adds one request and its bytes, or an increment of a gauge."""
        numbers = self.numbers
        numbers[BYTES] += count
        numbers[REQUESTS] += 1

    def confirm(self, requests: int) -> None:
        """Marks the value at `requests` requests as reported."""
        self.numbers[REPORTED] = requests


class UsageAccounting:
    """Usage counters of one instance. They are kept as long as the process runs: a counter must never decrease."""

    __slots__ = ("_allocate_numbers", "_counters")

    def __init__(self, allocate_numbers: AllocateNumbers = allocate_in_memory) -> None:
        self._counters: dict[Key, UsageCounter] = {}
        self._allocate_numbers = allocate_numbers

    def __len__(self) -> int:
        return len(self._counters)

    def counter(self, topic: str, user: str, client_id: str, direction: Direction | Level) -> UsageCounter:
        """Returns the counter of a key; keys beyond the limit share one under `OTHER`. `topic` is the tenant's name."""
        key: Key = (topic, counted_name(user), counted_name(client_id), direction)
        counter = self._counters.get(key)
        if counter is None:
            if len(self._counters) >= USAGE_KEYS_PER_INSTANCE_MAX:
                key = (OTHER, OTHER, OTHER, direction)
                counter = self._counters.get(key)
            if counter is None:
                counter = self._counters[key] = UsageCounter(key, self._allocate_numbers(key))
        return counter

    def counters(self) -> Iterable[UsageCounter]:
        return self._counters.values()

    @property
    def is_reported(self) -> bool:
        """True if nothing was counted since the last confirmed report."""
        return all(counter.is_reported for counter in self._counters.values())


class UsageReport:
    """Values of counters to be written; call `confirm` after their append, never before.

    `name_characters` is the length of all their names.
    """

    __slots__ = ("_counters", "name_characters", "values")

    def __init__(self) -> None:
        self.values: list[CounterValue] = []
        self.name_characters = 0
        self._counters: list[tuple[UsageCounter, int]] = []

    def add(self, at_ms: int, instance_id: str, counter: UsageCounter) -> None:
        """Adds the current value of a counter. `at_ms` is the time of the report."""
        topic, user, client_id, direction = counter.key
        requests = counter.requests
        counter.changed_ms = at_ms
        self.name_characters += len(topic) + len(user) + len(client_id)
        self._counters.append((counter, requests))
        self.values.append(CounterValue(instance_id, topic, user, client_id, direction, counter.bytes, requests))

    def confirm(self) -> None:
        """Marks the values of this report as reported."""
        for counter, requests in self._counters:
            counter.confirm(requests)


def reports(
    accountings: Mapping[str, UsageAccounting], head: ReportHead, values_max: int = VALUES_PER_PART_MAX
) -> Iterator[UsageReport]:
    """Yields the changes of all `accountings` (by instance id) since they were last confirmed, in parts of up to
    `values_max` counters and `NAME_CHARACTERS_PER_PART_MAX`. A part without values means that
    `COUNTERS_PER_PART_MAX` counters were examined, and none had changed.
    """
    report, examined_count = UsageReport(), 0
    for instance_id, accounting in accountings.items():
        for counter in list(accounting.counters()):
            examined_count += 1
            if not counter.is_reported:
                report.add(head.at_ms, instance_id, counter)
            if (
                len(report.values) >= values_max
                or report.name_characters >= NAME_CHARACTERS_PER_PART_MAX
                or examined_count >= COUNTERS_PER_PART_MAX
            ):
                yield report
                report, examined_count = UsageReport(), 0
    if report.values:
        yield report
