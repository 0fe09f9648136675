"""Plan of a reset of a group's offsets, partition by partition. Pure.

An offset before the start or after the end of its log is clamped to it, and its change says so (`clipped`).
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
    """Start or end of a log, to which an offset was clamped."""

    NONE = ""
    START = "start"
    END = "end"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetTarget:
    """A reset mode and its value: `at_ms` (ms since 1970) of TIME, `offset` of OFFSET, `by` of SHIFT,
    `given` (offsets by partition; None deletes the offset) of GIVEN.
    """

    mode: ResetMode
    at_ms: int | None = None
    offset: int | None = None
    by: int | None = None
    given: Mapping[Partition, int | None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """The log of a partition at its leader: `start` is the first offset, `end` the next to be written.

    `at_time` is the first offset that is not older than the requested instant; -1 if all messages are older, None if
    no instant was requested.
    """

    start: int
    end: int
    at_time: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Change of one partition's offset. `before` None: nothing was committed; `after` None: the offset is deleted.

    `start` and `end` are those of the log. `log_end` is START or END if the offset moves to wherever the log starts or
    ends when the change is made.
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
        """The maximum number of messages skipped (positive) or read again (negative)."""
        if self.before is None or self.after is None:
            return None
        return self.after - self.before


def time_ms(at: datetime) -> int:
    """Returns milliseconds since 1970; never negative, because negative values mean the ends of the log in
    ListOffsets.
    """
    return max(0, round(at.timestamp() * 1_000))


class NoOffsetToShift(Exception):
    """The mode is SHIFT, and these partitions have no committed offset to shift."""

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
        log_end=clipped or _log_end_of_target(target, log),
    )


def _log_end_of_target(target: ResetTarget, log: Log) -> ClampedTo:
    """Returns the end of the log to which the target moves the offset; NONE if it moves to a certain offset."""
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
    """Returns an offset inside of the log, and the end to which it was clamped."""
    if offset < log.start:
        return log.start, ClampedTo.START
    if offset > log.end:
        return log.end, ClampedTo.END
    return offset, ClampedTo.NONE
