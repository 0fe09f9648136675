"""Points of a live chart from the brokers' reports: a second without traffic is zero, an unknown one is a gap. Pure.

A second that only some brokers report is drawn and marked as partial.
"""

from __future__ import annotations

from typing import NamedTuple

from instances.interfaces import Traffic

MS_PER_S = 1_000
SPAN_MS = 900_000


class Series(NamedTuple):
    """Data of a chart: `points` of `(start ms, produce bytes/s, consume bytes/s, longest delay ms)`, `gaps` of
    `(from ms, to ms)`, and `partial` spans of `(from ms, to ms, ids of the missing brokers)`.
    """

    points: list[tuple[int, float, float, int]]
    gaps: list[tuple[int, int]]
    partial: list[tuple[int, int, tuple[int, ...]]]


def series(traffic: Traffic, *, since_ms: int, first_running_ms: int) -> Series:
    """Returns every full step since `since_ms`, at most 15 minutes back and not before the instance existed.

    A step without traffic is zero if a broker ran and answered, else a gap.
    """
    step_ms = traffic.step_ms
    last_ms = traffic.now_ms - traffic.now_ms % step_ms - step_ms
    start_ms = max(since_ms, traffic.now_ms - SPAN_MS, first_running_ms)
    start_ms = -(-start_ms // step_ms) * step_ms
    point_by_start = {point[0]: point for point in traffic.points}
    result = Series([], [], [])
    for at_ms in range(start_ms, last_ms + 1, step_ms):
        end_ms = at_ms + step_ms
        missing = _missing(traffic, at_ms)
        is_known = len(missing) < len(traffic.known_by_broker)
        if at_ms in point_by_start:
            _start, produced, consumed, delay_ms = point_by_start[at_ms]
            result.points.append((at_ms, produced * MS_PER_S / step_ms, consumed * MS_PER_S / step_ms, delay_ms))
        elif is_known:
            result.points.append((at_ms, 0, 0, 0))
        elif result.gaps and result.gaps[-1][1] == at_ms:
            result.gaps[-1] = (result.gaps[-1][0], end_ms)
        else:
            result.gaps.append((at_ms, end_ms))
        if is_known and missing:
            _extend(result.partial, at_ms, end_ms, missing)
    return result


def _missing(traffic: Traffic, at_ms: int) -> tuple[int, ...]:
    """Returns the brokers whose traffic in this step is unknown: they did not run, or ended before the query."""
    return tuple(
        number
        for number, spans in sorted(traffic.known_by_broker.items())
        if not any(start_ms <= at_ms < end_ms for start_ms, end_ms in spans)
    )


def _extend(partial: list[tuple[int, int, tuple[int, ...]]], from_ms: int, to_ms: int, ids: tuple[int, ...]) -> None:
    if partial and partial[-1][1:] == (from_ms, ids):
        from_ms = partial.pop()[0]
    partial.append((from_ms, to_ms, ids))
