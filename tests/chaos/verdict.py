"""Judgement of a run: pure functions over acknowledged and readable records (REP-5, REP-19).

A record is a number: each partition's records are numbered from 0 in the order in which they were handed to the client.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

# Shorter waits between two acknowledgements are a busy machine, not a partition without a leader.
PAUSE_MS_MIN: Final = 300.0


class Acknowledged:
    """Acknowledgements of one partition, and the times for which it blocked its producer."""

    def __init__(self) -> None:
        self._flags = bytearray()
        self.count = 0
        # (when it ended, how long it was) of every longer wait
        self.pauses_ms: list[tuple[float, float]] = []
        self._last_ms: float | None = None

    def add(self, number: int, now_ms: float) -> None:
        if number >= len(self._flags):
            self._flags.extend(bytes(max(number + 1 - len(self._flags), 4_096)))
        if not self._flags[number]:
            self._flags[number] = 1
            self.count += 1
        if self._last_ms is not None and now_ms - self._last_ms >= PAUSE_MS_MIN:
            self.pauses_ms.append((now_ms, now_ms - self._last_ms))
        self._last_ms = now_ms

    def numbers(self) -> set[int]:
        return {number for number, flag in enumerate(self._flags) if flag}


@dataclass(frozen=True, slots=True)
class Verdict:
    """Judgement of one partition. A producer that is not idempotent may write a record twice, but never in another
    order.
    """

    acknowledged: int
    lost: tuple[int, ...]
    reordered: tuple[int, ...]
    repeated: tuple[int, ...]

    def holds(self, *, idempotent: bool) -> bool:
        return not self.lost and not self.reordered and not (idempotent and self.repeated)


def judge(acknowledged: set[int], read: Iterable[int]) -> Verdict:
    """Returns the judgement of records that were `read` in the order of the log."""
    seen: set[int] = set()
    reordered, repeated = [], []
    latest = -1
    for number in read:
        if number in seen:
            repeated.append(number)
            continue
        seen.add(number)
        if number < latest:
            reordered.append(number)
        latest = max(latest, number)
    lost = tuple(sorted(acknowledged - seen))
    return Verdict(len(acknowledged), lost, tuple(reordered), tuple(repeated))


@dataclass(frozen=True, slots=True)
class Transformed:
    """Judgement of one output partition: records of the function of its input that are missing, repeated, foreign, or
    out of order.
    """

    count: int
    missing: tuple[int, ...]
    repeated: tuple[int, ...]
    foreign: tuple[int, ...]
    reordered: tuple[int, ...]

    @property
    def holds(self) -> bool:
        return not (self.missing or self.repeated or self.foreign or self.reordered)

    def describe(self) -> str:
        return (
            f"{self.count} transformed, {len(self.missing)} missing, {len(self.repeated)} more than once, "
            f"{len(self.foreign)} foreign, {len(self.reordered)} out of order"
        )


def judge_transformed(source: Sequence[int], sink: Sequence[int], function: Callable[[int], int]) -> Transformed:
    """Both in the order of their logs, the sink as readers of committed records are given it."""
    wanted = [function(number) for number in source]
    place = {value: at for at, value in enumerate(wanted)}
    counts = Counter(sink)
    reordered = []
    latest = -1
    for value in sink:
        at = place.get(value, latest)
        if at < latest:
            reordered.append(value)
        latest = max(latest, at)
    return Transformed(
        len(sink),
        tuple(value for value in wanted if not counts[value]),
        tuple(value for value, count in counts.items() if count > 1),
        tuple(value for value in counts if value not in place),
        tuple(reordered),
    )


def answered_otherwise(live: Sequence[int], afterwards: Sequence[int]) -> int | None:
    """The first place at which a reader that was there all along was given something else than who reads it all
    afterwards; None if it was given the beginning of the same.
    """
    for at, value in enumerate(live):
        if at >= len(afterwards) or afterwards[at] != value:
            return at
    return None


def differing(replicas: Sequence[Sequence[tuple[int, bytes]]]) -> int | None:
    """The first base offset at which logs, as (base offset, batch) lists up to the high watermark, are not the same;
    None if they are.
    """
    first, *others = replicas
    for other in others:
        for mine, theirs in zip(first, other, strict=False):
            if mine != theirs:
                return min(mine[0], theirs[0])
        if len(first) != len(other):
            shorter = min(len(first), len(other))
            longer = first if len(first) > len(other) else other
            return longer[shorter][0]
    return None
