"""Detection of implausible usage reports: a wrong clock, or a reused broker epoch. Pure.

Records that were appended after a partition was last read to its end must have been reported between then and now.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from billing.lake.counters import array_of, is_run_start
from billing.pipeline.schema import CLOCK, EPOCH_REUSED
from brokers.contract.usage import OF_INCARNATION, ReportHead

# Columns that all rows of a report share.
_HEAD: Final = ReportHead._fields
# Stands for the broker of a record that cannot be parsed.
NO_BROKER: Final = -1
# Maximum differences between the clocks of brokers and of this machine. Reports may be further behind than ahead,
# because the counter of a killed broker is reported with the time of its last report.
AHEAD_MAX_MS: Final = 600_000
BEHIND_MAX_MS: Final = 3_600_000
# Limit for a partition that was never read to its end: the retention of `__usage`.
UNSEEN_MAX_MS: Final = 14 * 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class ClockBounds:
    """Range of plausible times of a partition's reports.

    `since_ms` is when the partition was last read to its end, None if never; `until_ms` is when its end was looked up
    for this run.
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
    """Returns rows of `schema.EVENT` with times corrected to the bounds.

    A report whose time is out of bounds gets the nearer end of the span in which it was appended, and its original time
    as `detail`.
    """
    at_ms = batch.column("at_ms")
    is_ahead = pc.fill_null(pc.greater(at_ms, bounds.last_ms), False)
    is_behind = pc.fill_null(pc.less(at_ms, bounds.first_ms), False)
    is_wrong = pc.or_(is_ahead, is_behind)
    if not pc.any(is_wrong).as_py():
        return batch
    earliest_ms = bounds.until_ms if bounds.since_ms is None else bounds.since_ms
    bounded = pc.if_else(is_ahead, bounds.until_ms, pc.if_else(is_behind, earliest_ms, at_ms))
    return _replace_columns(
        batch,
        at_ms=bounded,
        problem=pc.if_else(is_wrong, CLOCK, batch.column("problem")),
        detail=pc.if_else(is_wrong, at_ms.cast(pa.string()), batch.column("detail")),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Reports of one partition and broker (-1: unknown) with the same problem.

    `detail` belongs to the last one, at `last_offset`.
    """

    kind: str
    partition: int
    broker_id: int
    records: int
    last_offset: int
    detail: str


@dataclass(frozen=True, slots=True)
class Incarnation:
    """Latest report of one broker process: its highest sequence and its latest time.

    `is_refused` means that another process reported under its epoch, so that their counters cannot be distinguished.
    """

    broker_id: int
    broker_epoch: int
    sequence: int
    at_ms: int
    is_refused: bool = False


class Incarnations:
    """Known broker processes, updated in the order in which their reports were appended."""

    def __init__(self, known: Iterable[Incarnation] = ()) -> None:
        self._known = {(incarnation.broker_id, incarnation.broker_epoch): incarnation for incarnation in known}

    def refuse_reused(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Marks rows of `schema.EVENT` whose epoch is reused.

        A process that repeats a report repeats its original time. Lower sequences at later times belong to another
        process with new counters: a restored registry may assign an epoch a second time.
        """
        rows = pa.table({name: batch.column(name) for name in _HEAD})
        # Consecutive rows of one report are judged once.
        is_first = reduce(pc.or_, (is_run_start(array_of(rows, name)) for name in _HEAD))
        reports = rows.filter(is_first).combine_chunks()
        processes = reports.select(list(OF_INCARNATION)).group_by(list(OF_INCARNATION), use_threads=False).aggregate([])
        refused = pa.repeat(False, reports.num_rows)
        for process in processes.to_pylist():
            key = process["broker_id"], process["broker_epoch"]
            if None not in key:
                is_of_process = pc.and_(
                    pc.equal(reports["broker_id"], key[0]), pc.equal(reports["broker_epoch"], key[1])
                )
                is_of_process = is_of_process.combine_chunks().fill_null(False)
                mask = self._refused_mask(key, reports.filter(is_of_process).combine_chunks())
                refused = pc.replace_with_mask(refused, is_of_process, mask)
        if not refused.true_count:
            return batch
        refused = refused.take(pc.subtract(pc.cumulative_sum(is_first.cast(pa.int64())), 1))
        return _replace_columns(batch, problem=pc.if_else(refused, EPOCH_REUSED, batch.column("problem")))

    def _refused_mask(self, key: tuple[int, int], reports: pa.Table) -> pa.Array:
        """Returns a mask of the refused reports of one process, in order, and stores its latest state."""
        sequence, at_ms = array_of(reports, "sequence"), array_of(reports, "at_ms")
        previous = self._known.get(key, Incarnation(*key, sequence[0].as_py(), at_ms[0].as_py()))
        # Entry n is the maximum of the known value and of the n reports before report n.
        latest_sequence = pc.cumulative_max(pa.concat_arrays([pa.array([previous.sequence], pa.int64()), sequence]))
        latest_ms = pc.cumulative_max(pa.concat_arrays([pa.array([previous.at_ms], pa.int64()), at_ms]))
        is_restarted_counter = pc.and_(
            pc.less(sequence, latest_sequence.slice(0, len(sequence))),
            pc.greater(at_ms, latest_ms.slice(0, len(at_ms))),
        )
        reused = pa.concat_arrays([pa.array([previous.is_refused]), is_restarted_counter]).cast(pa.int8())
        refused = pc.cumulative_max(reused).cast(pa.bool_())
        self._known[key] = Incarnation(*key, latest_sequence[-1].as_py(), latest_ms[-1].as_py(), refused[-1].as_py())
        return refused.slice(1)


def _replace_columns(batch: pa.RecordBatch, **columns: pa.Array) -> pa.RecordBatch:
    for name, column in columns.items():
        batch = batch.set_column(batch.schema.get_field_index(name), batch.schema.field(name), column)
    return batch
