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


def judge_records(acknowledged: set[int], read: Iterable[int]) -> Verdict:
    """Returns the judgement of records that were `read` in the order of the log."""
    seen_numbers: set[int] = set()
    reordered, repeated = [], []
    latest = -1
    for number in read:
        if number in seen_numbers:
            repeated.append(number)
            continue
        seen_numbers.add(number)
        if number < latest:
            reordered.append(number)
        latest = max(latest, number)
    lost = tuple(sorted(acknowledged - seen_numbers))
    return Verdict(len(acknowledged), lost, tuple(reordered), tuple(repeated))


@dataclass(frozen=True, slots=True)
class TransformResult:
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


def judge_transformed(source: Sequence[int], sink: Sequence[int], function: Callable[[int], int]) -> TransformResult:
    """Compares committed records of the sink with `function` of the source's records, both in log order."""
    expected = [function(number) for number in source]
    position_by_value = {value: position for position, value in enumerate(expected)}
    counts = Counter(sink)
    reordered = []
    latest = -1
    for value in sink:
        position = position_by_value.get(value, latest)
        if position < latest:
            reordered.append(value)
        latest = max(latest, position)
    return TransformResult(
        len(sink),
        tuple(value for value in expected if not counts[value]),
        tuple(value for value, count in counts.items() if count > 1),
        tuple(value for value in counts if value not in position_by_value),
        tuple(reordered),
    )


def first_difference(live_values: Sequence[int], final_values: Sequence[int]) -> int | None:
    """Returns the first position at which the values of a live reader differ from those read afterwards; None if they
    are equal or the beginning of them.
    """
    for position, value in enumerate(live_values):
        if position >= len(final_values) or final_values[position] != value:
            return position
    return None


def first_differing_offset(replicas: Sequence[Sequence[tuple[int, bytes]]]) -> int | None:
    """Returns the first base offset at which logs differ; None if they are equal. A log is a list of (base offset,
    batch) up to the high watermark.
    """
    first_log, *other_logs = replicas
    for other_log in other_logs:
        for first_batch, other_batch in zip(first_log, other_log, strict=False):
            if first_batch != other_batch:
                return min(first_batch[0], other_batch[0])
        if len(first_log) != len(other_log):
            shorter = min(len(first_log), len(other_log))
            longer = first_log if len(first_log) > len(other_log) else other_log
            return longer[shorter][0]
    return None
