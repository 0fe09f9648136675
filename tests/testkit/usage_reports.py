"""Usage records, valid as brokers append them, and invalid ones."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby

from billing.pipeline.doubts import ClockBounds
from brokers.contract import usage_columns
from brokers.contract.usage import COUNTED_THINGS, ReportHead, UsageEvent

NOW_MS = 1_795_000_000_000
BOUNDS = ClockBounds(NOW_MS - 60_000, NOW_MS)
NAMES = (
    "orders",
    "",
    "x" * 249,
    "\u00fcmlaut",
    "\U0001f600" * 200,
    'a"b\\c',
    "\t\n\\.\n",
    "[1,",
    '"],[1',
    "a\x00b",
    "\ud800",
)
GARBAGE = (b"", b"[]", b"[2,1]", b"[3,1]", b"\xff", b"{}", b"[1,2,3]", b"null", b"[1" + b",1" * 11 + b"]", None)


@dataclass
class Processes:
    """Broker processes with random reports: counters of changing names that grow; lost, repeated (also with more or
    less) and late reports; wrong clocks; and restarts with or without an epoch of their own.
    """

    random: random.Random
    brokers: int = 3
    counters: int = 6
    hostile: bool = True
    _state: dict[int, tuple[int, int, dict[tuple[str, ...], list[int]]]] = field(default_factory=dict)
    _at_ms: int = NOW_MS - 50_000

    def reports(self, count: int) -> Iterator[bytes | None]:
        """Yields the records of this number of reports, each of several counters."""
        for _ in range(count):
            yield from self._report(self.random.randrange(self.brokers))

    def _report(self, broker: int) -> list[bytes | None]:
        epoch, sequence, counters = self._state.get(broker, (broker + 7, 0, {}))
        drawn = self.random.random
        if self.hostile and drawn() < 0.05:
            epoch, sequence, counters = epoch + 100, 0, {}
        elif self.hostile and drawn() < 0.02:
            sequence, counters = 0, {}
        if self.hostile:
            sequence = max(0, sequence + self.random.choice((1, 1, 1, 1, 3, 0, -1)))
        else:
            sequence += 1
        self._at_ms += self.random.randrange(0, 30_000)
        at_ms = self._at_ms
        if self.hostile and drawn() < 0.05:
            at_ms += self.random.choice((-(10**10), 10**10, -200_000, 1))
        events: list[bytes | None] = []
        for _ in range(self.random.randrange(1, self.counters)):
            key = (
                f"ins-{self.random.randrange(3):08}", self.random.choice(NAMES), self.random.choice(NAMES[:4]),
                self.random.choice(NAMES[:5]), self.random.choice(COUNTED_THINGS),
            )  # fmt: skip
            counter_totals = counters.setdefault(key, [0, 0])
            counter_totals[0] += self.random.choice(
                (0, 1, 700, 10**6, -5 if self.hostile and counter_totals[0] > 5 else 3)
            )
            counter_totals[1] += self.random.choice((0, 1))
            events.append(event_of(broker, epoch, sequence, at_ms, key, counter_totals))
        if self.hostile and drawn() < 0.2:
            events.insert(self.random.randrange(len(events) + 1), self.random.choice(GARBAGE))
        if self.hostile and drawn() < 0.1:
            huge = [0, 3, 10**18, 2**63, -1][self.random.randrange(5)]
            events.append(
                event_of(broker, epoch, sequence, at_ms, ("ins-00000000", "t", "u", "c", "produce"), [huge, 1])
            )
        self._state[broker] = epoch, sequence, counters
        return events


def event_of(
    broker: int, epoch: int, sequence: int, at_ms: int, key: tuple[str, ...], counter_totals: Iterable[int]
) -> bytes:
    """Returns one record in a broker's form."""
    instance_id, topic, user, client_id, direction = key
    size, requests = counter_totals
    return UsageEvent(
        broker_id=broker, broker_epoch=epoch, sequence=sequence, at_ms=at_ms, instance_id=instance_id, topic=topic,
        user=user, client_id=client_id, direction=direction, bytes=size, requests=requests,  # type: ignore[arg-type]
    ).to_json()  # fmt: skip


def in_columns(raws: Iterable[bytes | None]) -> list[bytes | None]:
    """Returns the same reports with the counters of each in one record of version 2.

    A record stays as it is if it is no event, or if its count has no place in 64 bits.
    """
    result: list[bytes | None] = []
    for head, group in groupby(raws, key=_head_of):
        events = list(group)
        if head is None:
            result += events
        else:
            result.append(
                usage_columns.to_record(head, [UsageEvent.from_json(raw).counter for raw in events if raw is not None])
            )
    return result


def _head_of(raw: bytes | None) -> ReportHead | None:
    try:
        event = UsageEvent.from_json(raw or b"")
    except (ValueError, TypeError):
        return None
    if type(event.broker_id) is not int or not -(2**63) <= event.bytes < 2**63:
        return None
    return ReportHead(event.broker_id, event.broker_epoch, event.sequence, event.at_ms)
