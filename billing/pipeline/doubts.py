"""Usage reports that can be read and are not to be believed: a clock that is wrong, an epoch that is used again. Pure.

What was appended since a partition was last seen to hold nothing further was reported between that look and this one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from billing.pipeline.schema import CLOCK, EPOCH_REUSED

# A record that cannot be read names none.
NO_BROKER: Final = -1
# Clocks of brokers and of this machine differ by less; a counter that a killed broker left is reported under the time
# of its last report.
AHEAD_MAX_MS: Final = 600_000
BEHIND_MAX_MS: Final = 3_600_000
# Of a partition that was never seen whole: the retention of `__usage`.
UNSEEN_MAX_MS: Final = 14 * 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class ClockBounds:
    """Times that the reports of a partition may name. `since_ms`: when it was last seen to hold nothing further, None
    where it never was; `until_ms`: when its end was looked up for this run.
    """

    since_ms: int | None
    until_ms: int

    @property
    def first_ms(self) -> int:
        return self.until_ms - UNSEEN_MAX_MS if self.since_ms is None else self.since_ms - BEHIND_MAX_MS

    @property
    def last_ms(self) -> int:
        return self.until_ms + AHEAD_MAX_MS


def with_bounded_clock(batch: pa.RecordBatch, bounds: ClockBounds) -> pa.RecordBatch:
    """Rows of `schema.EVENT`. A report whose time is out of bounds gets the nearer end of the span in which it was
    appended, and the time that it named as `detail`.
    """
    at_ms = batch.column("at_ms")
    is_ahead = pc.fill_null(pc.greater(at_ms, bounds.last_ms), False)
    is_behind = pc.fill_null(pc.less(at_ms, bounds.first_ms), False)
    is_wrong = pc.or_(is_ahead, is_behind)
    if not pc.any(is_wrong).as_py():
        return batch
    earliest_ms = bounds.until_ms if bounds.since_ms is None else bounds.since_ms
    bounded = pc.if_else(is_ahead, bounds.until_ms, pc.if_else(is_behind, earliest_ms, at_ms))
    return _replaced(
        batch,
        at_ms=bounded,
        problem=pc.if_else(is_wrong, CLOCK, batch.column("problem")),
        detail=pc.if_else(is_wrong, at_ms.cast(pa.string()), batch.column("detail")),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Reports of one partition and broker (-1: it is not known) with the same problem; `detail` is of the last one, at
    `last_offset`.
    """

    kind: str
    partition: int
    broker_id: int
    records: int
    last_offset: int
    detail: str


@dataclass(frozen=True, slots=True)
class Incarnation:
    """Latest report of one broker process: its highest sequence, and its latest time. `is_refused`: another process
    reported under its epoch, so that nobody can tell their counters apart.
    """

    broker_id: int
    broker_epoch: int
    sequence: int
    at_ms: int
    is_refused: bool = False


class Incarnations:
    """Broker processes as far as they are known, in the order in which their reports were appended."""

    def __init__(self, known: Iterable[Incarnation] = ()) -> None:
        self._known = {(each.broker_id, each.broker_epoch): each for each in known}

    def refuse_reused(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Rows of `schema.EVENT`, those of an epoch that is used again with that problem.

        A process that reports again reports the time it reported then. Lower sequences at later times are another
        process, which began to count anew: a registry that was restored gives an epoch for a second time.
        """
        names = ("broker_id", "broker_epoch", "sequence", "at_ms")
        rows = zip(*(batch.column(name).to_pylist() for name in names), strict=True)
        refused: list[bool] = []
        for report, same in groupby(rows):
            refused += [self._is_refused(*report)] * sum(1 for _ in same)
        if not any(refused):
            return batch
        return _replaced(batch, problem=pc.if_else(pa.array(refused), EPOCH_REUSED, batch.column("problem")))

    def _is_refused(self, broker_id: int | None, broker_epoch: int, sequence: int, at_ms: int) -> bool:
        if broker_id is None:
            return False
        key = broker_id, broker_epoch
        known = self._known.get(key)
        if known is None:
            self._known[key] = Incarnation(broker_id, broker_epoch, sequence, at_ms)
            return False
        is_refused = known.is_refused or (sequence < known.sequence and at_ms > known.at_ms)
        latest = max(sequence, known.sequence), max(at_ms, known.at_ms)
        self._known[key] = Incarnation(broker_id, broker_epoch, *latest, is_refused)
        return is_refused


def _replaced(batch: pa.RecordBatch, **columns: pa.Array) -> pa.RecordBatch:
    for name, column in columns.items():
        batch = batch.set_column(batch.schema.get_field_index(name), batch.schema.field(name), column)
    return batch
