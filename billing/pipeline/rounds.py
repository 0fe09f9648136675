"""Ranges of a usage topic, read and added up: what one run commits. Small ones in this process, large ones by Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from billing.pipeline import differences, naming
from billing.pipeline.checking import Checked, check
from billing.pipeline.consuming import UsageConsumer
from billing.pipeline.doubts import ClockBounds, Incarnation, Problem

if TYPE_CHECKING:
    from billing.lake.files import Written

# Looks counters up by their keys, as `sink.stored_counters`.
StoredCounters = Callable[[pa.Table], pa.Table]


class UsageLost(Exception):
    """Events between the stored offset and what the brokers hold are gone; an operator must look before it goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRange:
    """Records `[start, stop)` of one partition of the usage topic, and between which times they were reported."""

    partition: int
    start: int
    stop: int
    bounds: ClockBounds


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Sums of the planned ranges, as `sink.commit` takes them. `reports` are for the lake; `kept` of them are there
    already.
    """

    ranges: dict[int, tuple[int, int]]
    records: int
    left_out: int
    problems: list[Problem]
    incarnations: list[Incarnation]
    minutes: pa.Table
    counters: pa.Table
    reports: pa.Table
    kept: list[Written] = field(default_factory=list)


def in_this_process(
    consumer: UsageConsumer,
    planned: Sequence[PlannedRange],
    known: Sequence[Incarnation],
    stored: StoredCounters,
    bytes_max: int,
) -> Round:
    """Reads the ranges, as far as `bytes_max` for each lets it, and adds up what was read; nothing is written.

    Raises:
        UsageLost: records within what was read are not there.
    """
    checked = {
        each.partition: check(
            consumer.read(each.partition, each.start, each.stop, bytes_max), each.start, known, each.bounds
        )
        for each in planned
    }
    require_all_read(planned, checked)
    reports = differences.distinct(pa.concat_tables([each.reports for each in checked.values()]))
    rows = differences.increments(reports, stored(differences.keys(reports)))
    return made_of(
        planned, checked, differences.minutes(rows), differences.last_counters(rows), rows.drop_columns(["counter"])
    )


def require_all_read(planned: Sequence[PlannedRange], checked: Mapping[int, Checked]) -> None:
    """Raises `UsageLost`."""
    for each in planned:
        found = checked[each.partition]
        if not found.records or found.records != found.stop - each.start:
            raise UsageLost(f"read {found.records} of the {found.stop - each.start} usage records from {each.start} on")


def made_of(
    planned: Sequence[PlannedRange],
    checked: Mapping[int, Checked],
    minutes: pa.Table,
    counters: pa.Table,
    reports: pa.Table,
) -> Round:
    """The round of these parts."""
    return Round(
        ranges={each.partition: (each.start, checked[each.partition].stop) for each in planned},
        records=sum(each.records for each in checked.values()),
        left_out=sum(each.left_out for each in checked.values()),
        problems=[problem for each in checked.values() for problem in each.problems],
        incarnations=[each for found in checked.values() for each in found.incarnations],
        minutes=naming.with_bounded_names(minutes),
        counters=counters,
        reports=reports,
    )
