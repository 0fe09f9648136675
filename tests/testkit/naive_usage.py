"""A naive reader of usage records, one after the other in plain Python, for comparisons with Arrow columns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

from billing.pipeline.decoding import rows_of
from billing.pipeline.doubts import ClockBounds, Incarnation
from billing.pipeline.schema import EVENT, MINUTE_KEY
from brokers.contract.usage import COUNTER_KEY

Row = tuple[Any, ...]
MS_PER_MINUTE = 60_000
SUM_MAX = 2**62
_PLACES = {column.name: place for place, column in enumerate(EVENT)}


def bill(
    ranges: Iterable[Iterable[bytes | None]],
    start: int,
    bounds: ClockBounds,
    incarnations: Mapping[Any, Incarnation],
    stored: Mapping[Row, Row],
) -> tuple[list[Row], list[Row], list[Row]]:
    """Returns minutes, last counters and increments of one run, sorted; `stored` has (sequence, bytes, requests) by
    counter.
    """
    largest: dict[Row, dict[int, list[int]]] = defaultdict(dict)
    for partition, raws in enumerate(ranges):
        rows = [
            _bounded(row, bounds) for place, raw in enumerate(raws) for row in rows_of(partition, start + place, raw)
        ]
        names = ("broker_id", "broker_epoch", "sequence", "at_ms")
        refusals = refused_reports([tuple(row[_PLACES[name]] for name in names) for row in rows], dict(incarnations))
        for row, is_refused in zip(rows, refusals, strict=True):
            if row[_PLACES["broker_id"]] is None or is_refused:
                continue
            numbers = [row[_PLACES[name]] for name in ("at_ms", "bytes", "requests")]
            reports_of_counter = largest[tuple(row[_PLACES[name]] for name in COUNTER_KEY)]
            sequence = row[_PLACES["sequence"]]
            reports_of_counter[sequence] = [
                max(pair) for pair in zip(numbers, reports_of_counter.get(sequence, numbers), strict=True)
            ]
    minutes: dict[Row, list[int]] = defaultdict(lambda: [0, 0])
    last, increments = [], []
    for key, reports in largest.items():
        before = stored.get(key)
        counted_totals = [0, 0] if before is None else list(before[1:])
        for sequence, (at_ms, *totals) in sorted(reports.items()):
            if before is not None and (
                sequence < before[0]
                or (sequence == before[0] and not any(new > old for new, old in zip(totals, before[1:], strict=True)))
            ):
                continue
            added = [max(0, new - old) for new, old in zip(totals, counted_totals, strict=True)]
            counted_totals = totals
            increments.append((*key, sequence, at_ms, *totals, *added))
            minute_key = _minute(key, at_ms)
            minutes[minute_key] = [
                min(SUM_MAX, sum_ + addition) for sum_, addition in zip(minutes[minute_key], added, strict=True)
            ]
            newest = (*key, sequence, *totals)
            if last and last[-1][: len(key)] == key:
                last.pop()
            last.append(newest)
    return sorted((*key, *sums) for key, sums in minutes.items() if any(sums)), sorted(last), sorted(increments)


def _minute(key: Row, at_ms: int) -> Row:
    named = dict(zip(COUNTER_KEY, key, strict=True)) | {"minute_ms": (at_ms - 1) // MS_PER_MINUTE * MS_PER_MINUTE}
    return tuple(named[name] for name in MINUTE_KEY)


def _bounded(row: Row, bounds: ClockBounds) -> Row:
    at_ms = row[_PLACES["at_ms"]]
    if at_ms is None:
        return row
    if at_ms > bounds.last_ms:
        at_ms = bounds.until_ms
    elif at_ms < bounds.first_ms:
        at_ms = bounds.until_ms if bounds.since_ms is None else bounds.since_ms
    return (*row[: _PLACES["at_ms"]], at_ms, *row[_PLACES["at_ms"] + 1 :])


def refused_reports(reports: Iterable[Row], known: dict[tuple[int, int], Incarnation]) -> list[bool]:
    """Returns for each report (broker id, broker epoch, sequence, time) whether its epoch was used by an earlier
    process. Stores the latest sequence and time of each epoch in `known`.
    """
    result: list[bool] = []
    for report, same in groupby(reports):
        result += [_is_refused(*report, known)] * sum(1 for _ in same)
    return result


def _is_refused(
    broker_id: int | None, broker_epoch: int, sequence: int, at_ms: int, known: dict[tuple[int, int], Incarnation]
) -> bool:
    if broker_id is None:
        return False
    key = broker_id, broker_epoch
    before = known.get(key)
    if before is None:
        known[key] = Incarnation(broker_id, broker_epoch, sequence, at_ms)
        return False
    is_refused = before.is_refused or (sequence < before.sequence and at_ms > before.at_ms)
    latest = max(sequence, before.sequence), max(at_ms, before.at_ms)
    known[key] = Incarnation(broker_id, broker_epoch, *latest, is_refused)
    return is_refused
