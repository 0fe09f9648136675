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
    """A reset mode and its value: `at_ms` (ms since 1970) of TIME, `offset` of OFFSET, `by` of SHIFT, `given` of GIVEN.

    In `given`, None deletes the offset.
    """

    mode: ResetMode
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

    `log_end` is the end of the log to which it moves, wherever that end is by then.
    """

    topic: str
    partition: int
    before: int | None
    after: int | None
    start: int
    end: int
    clipped: ClampedTo = ClampedTo.NONE
    log_end: ClampedTo = ClampedTo.NONE

    @property
    def topic_partition(self) -> Partition:
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


def time_ms(at: datetime) -> int:
    """Returns milliseconds since 1970; never negative, because negative values mean the ends of the log in
    ListOffsets.
    """
    return max(0, round(at.timestamp() * 1_000))


class NoOffsetToShift(Exception):
    """Raised for SHIFT of partitions without a committed offset; they are in `partitions`."""

    def __init__(self, partitions: tuple[Partition, ...]) -> None:
        super().__init__(f"{len(partitions)} partitions without an offset")
        self.partitions = partitions


def plan(
    target: ResetTarget,
    partitions: Iterable[Partition],
    committed: Mapping[Partition, CommittedOffset],
    logs: Mapping[Partition, Log],
) -> tuple[Change, ...]:
    """Returns a change for each partition, in order. `logs` contains all of `partitions`.

    Raises `NoOffsetToShift`.
    """
    ordered = sorted(set(partitions))
    if target.mode is ResetMode.SHIFT:
        without_offset = tuple(partition for partition in ordered if partition not in committed)
        if without_offset:
            raise NoOffsetToShift(without_offset)
    return tuple(_change(target, partition, committed.get(partition), logs[partition]) for partition in ordered)


def _change(target: ResetTarget, partition: Partition, committed: CommittedOffset | None, log: Log) -> Change:
    before = committed.offset if committed else None
    offset = _target_offset(target, partition, before, log)
    after, clipped = clamp(offset, log) if offset is not None else (None, ClampedTo.NONE)
    return Change(
        topic=partition[0],
        partition=partition[1],
        before=before,
        after=after,
        start=log.start,
        end=log.end,
        clipped=clipped,
        log_end=clipped or _log_end_of_mode(target, log),
    )


def _log_end_of_mode(target: ResetTarget, log: Log) -> ClampedTo:
    """Returns the end of the log to which the mode moves the offset; NONE for an offset by number."""
    if target.mode is ResetMode.EARLIEST:
        return ClampedTo.START
    is_after_last_message = target.mode is ResetMode.TIME and log.at_time is not None and log.at_time < 0
    return ClampedTo.END if target.mode is ResetMode.LATEST or is_after_last_message else ClampedTo.NONE


def _target_offset(target: ResetTarget, partition: Partition, before: int | None, log: Log) -> int | None:
    if target.mode is ResetMode.EARLIEST:
        return log.start
    if target.mode is ResetMode.LATEST:
        return log.end
    if target.mode is ResetMode.TIME:
        assert log.at_time is not None
        return log.end if log.at_time < 0 else log.at_time
    if target.mode is ResetMode.OFFSET:
        return target.offset
    if target.mode is ResetMode.SHIFT:
        assert before is not None and target.by is not None
        return before + target.by
    assert target.given is not None
    return target.given[partition]


def clamp(offset: int, log: Log) -> tuple[int, ClampedTo]:
    """Returns an offset inside of the log, and the end to which it was clipped."""
    if offset < log.start:
        return log.start, ClampedTo.START
    if offset > log.end:
        return log.end, ClampedTo.END
    return offset, ClampedTo.NONE
