"""Plans a reset of a group's offsets, partition by partition. Pure.

No offset is moved out of its log: an offset before its start or after its end is clipped to it, and marked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from instances.groups.interfaces import CommittedOffset, Partition


class ResetMode(StrEnum):
    """The kind of target of the offsets."""

    EARLIEST = "earliest"
    LATEST = "latest"
    TIME = "time"
    OFFSET = "offset"
    SHIFT = "shift"
    GIVEN = "given"


class ClampedTo(StrEnum):
    """The end of the log to which an offset was clipped."""

    NONE = ""
    START = "start"
    END = "end"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetTarget:
    """An aim and its value: `at_ms` (ms since 1970) of TIME, `offset` of OFFSET, `by` of SHIFT, `given` of GIVEN.

    In `given`, None forgets the offset.
    """

    aim: ResetMode
    at_ms: int | None = None
    offset: int | None = None
    by: int | None = None
    given: Mapping[Partition, int | None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """The log of a partition at its leader: `start` is the first offset, `end` the next to be written.

    `at_time` is the first offset as young as the requested instant; -1 if all messages are older, None if not
    requested.
    """

    start: int
    end: int
    at_time: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One row of the table. `before` None: nothing was committed; `after` None: the offset is deleted.

    `edge` is the end of the log to which it moves, wherever that end is by then.
    """

    topic: str
    partition: int
    before: int | None
    after: int | None
    start: int
    end: int
    clipped: ClampedTo = ClampedTo.NONE
    edge: ClampedTo = ClampedTo.NONE

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
        """The number of messages skipped (positive) or read again (negative), at most."""
        if self.before is None or self.after is None:
            return None
        return self.after - self.before


def instant_ms(at: datetime) -> int:
    """Returns milliseconds since 1970; never negative, because negative values mean the ends of the log in
    ListOffsets.
    """
    return max(0, round(at.timestamp() * 1_000))


class NoOffsetToShift(Exception):
    """Raised for SHIFT of partitions without a committed offset; they are in `places`."""

    def __init__(self, places: tuple[Partition, ...]) -> None:
        super().__init__(f"{len(places)} partitions without an offset")
        self.places = places


def plan(
    target: ResetTarget,
    places: Iterable[Partition],
    committed: Mapping[Partition, CommittedOffset],
    logs: Mapping[Partition, Log],
) -> tuple[Change, ...]:
    """Returns a change for each partition, in order. `logs` contains all of `places`.

    Raises `NoOffsetToShift`.
    """
    wanted = sorted(set(places))
    if target.aim is ResetMode.SHIFT:
        bare = tuple(place for place in wanted if place not in committed)
        if bare:
            raise NoOffsetToShift(bare)
    return tuple(_change(target, place, committed.get(place), logs[place]) for place in wanted)


def _change(target: ResetTarget, place: Partition, committed: CommittedOffset | None, log: Log) -> Change:
    before = committed.offset if committed else None
    wanted = _wanted(target, place, before, log)
    after, clipped = clip(wanted, log) if wanted is not None else (None, ClampedTo.NONE)
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


def _edge(target: ResetTarget, log: Log) -> ClampedTo:
    """Returns the end of the log that is requested by name, not by number."""
    if target.aim is ResetMode.EARLIEST:
        return ClampedTo.START
    is_after_all = target.aim is ResetMode.TIME and log.at_time is not None and log.at_time < 0
    return ClampedTo.END if target.aim is ResetMode.LATEST or is_after_all else ClampedTo.NONE


def _wanted(target: ResetTarget, place: Partition, before: int | None, log: Log) -> int | None:
    if target.aim is ResetMode.EARLIEST:
        return log.start
    if target.aim is ResetMode.LATEST:
        return log.end
    if target.aim is ResetMode.TIME:
        assert log.at_time is not None
        return log.end if log.at_time < 0 else log.at_time
    if target.aim is ResetMode.OFFSET:
        return target.offset
    if target.aim is ResetMode.SHIFT:
        assert before is not None and target.by is not None
        return before + target.by
    assert target.given is not None
    return target.given[place]


def clip(offset: int, log: Log) -> tuple[int, ClampedTo]:
    """Returns an offset inside of the log, and the end to which it was clipped."""
    if offset < log.start:
        return log.start, ClampedTo.START
    if offset > log.end:
        return log.end, ClampedTo.END
    return offset, ClampedTo.NONE
