"""A live chart's points out of what brokers report: a silent second is zero, an unknown one is a gap. Pure."""

from __future__ import annotations

from typing import NamedTuple

from instances.ports import Traffic

MS_PER_S = 1_000
SPAN_MS = 900_000


class Series(NamedTuple):
    """`points` are `(start ms, produce bytes/s, consume bytes/s, longest delay ms)`; `gaps` are `(from ms, to ms)`."""

    points: list[tuple[int, float, float, int]]
    gaps: list[tuple[int, int]]


def series(traffic: Traffic, *, since_ms: int, born_ms: int) -> Series:
    """Every full step from `since_ms` on, at most 15 minutes back and not before the instance existed.

    A step without data is zero where every broker lived and answered, else unknown: a gap, never a zero.
    """
    step_ms = traffic.step_ms
    last_ms = traffic.now_ms - traffic.now_ms % step_ms - step_ms
    start_ms = max(since_ms, traffic.now_ms - SPAN_MS, born_ms)
    start_ms -= start_ms % step_ms
    seen = {point[0]: point for point in traffic.points}
    points: list[tuple[int, float, float, int]] = []
    gaps: list[tuple[int, int]] = []
    for at_ms in range(start_ms, last_ms + 1, step_ms):
        if at_ms in seen:
            _start, produced, consumed, delay_ms = seen[at_ms]
            points.append((at_ms, produced * MS_PER_S / step_ms, consumed * MS_PER_S / step_ms, delay_ms))
        elif at_ms >= traffic.alive_since_ms and not traffic.silent:
            points.append((at_ms, 0, 0, 0))
        elif gaps and gaps[-1][1] == at_ms:
            gaps[-1] = (gaps[-1][0], at_ms + step_ms)
        else:
            gaps.append((at_ms, at_ms + step_ms))
    return Series(points, gaps)
