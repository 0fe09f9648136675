"""Usage reports that can be read and are not to be believed: a clock that is wrong, an epoch that is used again. Pure.

What was appended since a partition was last seen to hold nothing further was reported between that look and this one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from billing.lake.counters import array_of
from billing.pipeline.schema import CLOCK, EPOCH_REUSED
from brokers.contract.usage import OF_INCARNATION

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
        reports = pa.table({name: batch.column(name) for name in (*OF_INCARNATION, "sequence", "at_ms")})
        processes = reports.select(list(OF_INCARNATION)).group_by(list(OF_INCARNATION), use_threads=False).aggregate([])
        refused = pa.repeat(False, batch.num_rows)
        for process in processes.to_pylist():
            key = process["broker_id"], process["broker_epoch"]
            if None not in key:
                is_of_it = pc.and_(pc.equal(reports["broker_id"], key[0]), pc.equal(reports["broker_epoch"], key[1]))
                is_of_it = is_of_it.combine_chunks().fill_null(False)
                found = self._refused_of(key, reports.filter(is_of_it).combine_chunks())
                refused = pc.replace_with_mask(refused, is_of_it, found)
        if not refused.true_count:
            return batch
        return _replaced(batch, problem=pc.if_else(refused, EPOCH_REUSED, batch.column("problem")))

    def _refused_of(self, key: tuple[int, int], reports: pa.Table) -> pa.Array:
        """True for those reports of one process, in their order, that are refused. Notes the latest of them."""
        sequence, at_ms = array_of(reports, "sequence"), array_of(reports, "at_ms")
        known = self._known.get(key, Incarnation(*key, sequence[0].as_py(), at_ms[0].as_py()))
        # Highest ones up to and with the report before each.
        latest_sequence = pc.cumulative_max(pa.concat_arrays([pa.array([known.sequence], pa.int64()), sequence]))
        latest_ms = pc.cumulative_max(pa.concat_arrays([pa.array([known.at_ms], pa.int64()), at_ms]))
        began_anew = pc.and_(
            pc.less(sequence, latest_sequence.slice(0, len(sequence))),
            pc.greater(at_ms, latest_ms.slice(0, len(at_ms))),
        )
        reused = pa.concat_arrays([pa.array([known.is_refused]), began_anew]).cast(pa.int8())
        refused = pc.cumulative_max(reused).cast(pa.bool_())
        self._known[key] = Incarnation(*key, latest_sequence[-1].as_py(), latest_ms[-1].as_py(), refused[-1].as_py())
        return refused.slice(1)


def _replaced(batch: pa.RecordBatch, **columns: pa.Array) -> pa.RecordBatch:
    for name, column in columns.items():
        batch = batch.set_column(batch.schema.get_field_index(name), batch.schema.field(name), column)
    return batch
