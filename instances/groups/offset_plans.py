"""What a reset of a group's offsets would do, partition by partition, before it does it. Pure.

Nothing is moved past what a log holds: an offset before its start or behind its end is clipped to it, and said.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from instances.groups.interfaces import Committed, Partition


class Aim(StrEnum):
    """Where the offsets go."""

    EARLIEST = "earliest"
    LATEST = "latest"
    TIME = "time"
    OFFSET = "offset"
    SHIFT = "shift"
    GIVEN = "given"


class Clip(StrEnum):
    """Which end of the log an offset was moved to because it lay outside."""

    NONE = ""
    START = "start"
    END = "end"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """An aim and its value: `at_ms` (ms since 1970) of TIME, `offset` of OFFSET, `by` of SHIFT, `given` of GIVEN.

    In `given`, None forgets the offset.
    """

    aim: Aim
    at_ms: int | None = None
    offset: int | None = None
    by: int | None = None
    given: Mapping[Partition, int | None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """What the leader of a partition holds: `start` is the first offset, `end` the next to be written.

    `at_time` is the first offset as young as the instant asked for; -1 when all is older, None when nobody asked.
    """

    start: int
    end: int
    at_time: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One line of the table. `before` None: nothing was committed; `after` None: the offset is forgotten.

    `edge` is the end of the log that it goes to, wherever that end is by then.
    """

    topic: str
    partition: int
    before: int | None
    after: int | None
    start: int
    end: int
    clipped: Clip = Clip.NONE
    edge: Clip = Clip.NONE

    @property
    def place(self) -> Partition:
        return self.topic, self.partition

    @property
    def is_change(self) -> bool:
        return self.before != self.after

    @property
    def lag_before(self) -> int | None:
        return None if self.before is None else max(0, self.end - self.before)

    @property
    def lag_after(self) -> int | None:
        return None if self.after is None else max(0, self.end - self.after)

    @property
    def moved(self) -> int | None:
        """Messages skipped (positive) or read again (negative), at most."""
        if self.before is None or self.after is None:
            return None
        return self.after - self.before


def instant_ms(at: datetime) -> int:
    """Milliseconds since 1970; never negative, because ListOffsets means the ends of the log by that."""
    return max(0, round(at.timestamp() * 1_000))


class NoOffsetToShift(Exception):
    """SHIFT of partitions of which nothing is committed; they are in `places`."""

    def __init__(self, places: tuple[Partition, ...]) -> None:
        super().__init__(f"{len(places)} partitions without an offset")
        self.places = places


def plan(
    target: Target, places: Iterable[Partition], committed: Mapping[Partition, Committed], logs: Mapping[Partition, Log]
) -> tuple[Change, ...]:
    """A line for each partition, in order. `logs` knows every one of `places`.

    Raises `NoOffsetToShift`.
    """
    wanted = sorted(set(places))
    if target.aim is Aim.SHIFT:
        bare = tuple(place for place in wanted if place not in committed)
        if bare:
            raise NoOffsetToShift(bare)
    return tuple(_change(target, place, committed.get(place), logs[place]) for place in wanted)


def _change(target: Target, place: Partition, committed: Committed | None, log: Log) -> Change:
    before = committed.offset if committed else None
    wanted = _wanted(target, place, before, log)
    after, clipped = clip(wanted, log) if wanted is not None else (None, Clip.NONE)
    return Change(
        topic=place[0],
        partition=place[1],
        before=before,
        after=after,
        start=log.start,
        end=log.end,
        clipped=clipped,
        edge=clipped or _edge(target, log),
    )


def _edge(target: Target, log: Log) -> Clip:
    """Which end of the log is asked for by name, not by number."""
    if target.aim is Aim.EARLIEST:
        return Clip.START
    is_after_all = target.aim is Aim.TIME and log.at_time is not None and log.at_time < 0
    return Clip.END if target.aim is Aim.LATEST or is_after_all else Clip.NONE


def _wanted(target: Target, place: Partition, before: int | None, log: Log) -> int | None:
    if target.aim is Aim.EARLIEST:
        return log.start
    if target.aim is Aim.LATEST:
        return log.end
    if target.aim is Aim.TIME:
        assert log.at_time is not None
        return log.end if log.at_time < 0 else log.at_time
    if target.aim is Aim.OFFSET:
        return target.offset
    if target.aim is Aim.SHIFT:
        assert before is not None and target.by is not None
        return before + target.by
    assert target.given is not None
    return target.given[place]


def clip(offset: int, log: Log) -> tuple[int, Clip]:
    """An offset inside of the log, and which end it had to be moved to."""
    if offset < log.start:
        return log.start, Clip.START
    if offset > log.end:
        return log.end, Clip.END
    return offset, Clip.NONE
