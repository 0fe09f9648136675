"""Traffic second by second, kept for as long as the live chart reaches: a broker's restart takes nothing of it away.

One writer (`traffic_samples`) asks every broker; here is what it heard. A minute of an instance on a broker is one
value in the cache, and each broker has the spans of which its part is known, of all instances alike. The cache may be
lost: then brokers are asked for all that they have.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from django.core.cache import cache

from brokers.limits import SAMPLES_KEPT_S

MS_PER_S: Final = 1_000
MINUTE_MS: Final = 60_000
# Second of the minute, bytes produced, bytes consumed, longest delay in ms.
_ROW: Final = struct.Struct("<BIIH")
_BYTES_MAX: Final = 2**32 - 1
_DELAY_MS_MAX: Final = 2**16 - 1

# Start in ms since 1970, bytes produced and consumed, longest delay in ms.
Row = tuple[int, int, int, int]
# `[from, to)` in ms since 1970, by time, none of them touching another.
Spans = tuple[tuple[int, int], ...]


def packed(rows: Iterable[Row]) -> str:
    """Rows of one minute as text. Pure."""
    return base64.b64encode(
        b"".join(
            _ROW.pack(
                at_ms % MINUTE_MS // MS_PER_S,
                min(produced, _BYTES_MAX),
                min(consumed, _BYTES_MAX),
                min(delay_ms, _DELAY_MS_MAX),
            )
            for at_ms, produced, consumed, delay_ms in rows
        )
    ).decode()


def unpacked(text: str, minute_ms: int) -> list[Row]:
    """What `packed` was given. Pure."""
    return [
        (minute_ms + second * MS_PER_S, produced, consumed, delay_ms)
        for second, produced, consumed, delay_ms in _ROW.iter_unpack(base64.b64decode(text))
    ]


def summed(points: Iterable[Sequence[int]]) -> dict[int, Row]:
    """The points of one answer of one broker: a second that is told twice is the sum of both. Pure."""
    result: dict[int, Row] = {}
    for at_ms, produced, consumed, delay_ms in points:
        _, before_in, before_out, before_ms = result.get(at_ms, (at_ms, 0, 0, 0))
        result[at_ms] = (at_ms, before_in + produced, before_out + consumed, max(before_ms, delay_ms))
    return result


def merged(rows: Iterable[Row]) -> dict[int, Row]:
    """Rows of one broker out of several answers: of a second that several told the largest figures count, since it may
    have run on after the first of them. Pure.
    """
    result: dict[int, Row] = {}
    for row in rows:
        known = result.get(row[0])
        if known is not None:
            row = (row[0], max(known[1], row[1]), max(known[2], row[2]), max(known[3], row[3]))
        result[row[0]] = row
    return result


def joined(spans: Spans, span: tuple[int, int], oldest_ms: int = 0) -> Spans:
    """`spans` with another one, without what ends before `oldest_ms`. Pure."""
    result: list[tuple[int, int]] = []
    for start_ms, end_ms in sorted((*spans, span)):
        if end_ms <= max(start_ms, oldest_ms):
            continue
        if result and start_ms <= result[-1][1]:
            result[-1] = (result[-1][0], max(result[-1][1], end_ms))
        else:
            result.append((start_ms, end_ms))
    return tuple(result)


def keep(found: Mapping[str, Mapping[int, Iterable[Row]]]) -> None:
    """Add rows, by instance and broker. Doing so twice, or two at a time, changes nothing."""
    minutes: dict[str, tuple[int, list[Row]]] = {}
    for instance_id, by_broker in found.items():
        for number, rows in by_broker.items():
            for row in rows:
                minute_ms = row[0] - row[0] % MINUTE_MS
                minutes.setdefault(_key(instance_id, number, minute_ms), (minute_ms, []))[1].append(row)
    kept = cache.get_many(list(minutes))
    changed = {}
    for key, (minute_ms, rows) in minutes.items():
        before = unpacked(kept[key], minute_ms) if key in kept else []
        changed[key] = packed(row for _, row in sorted(merged([*before, *rows]).items()))
    if changed:
        cache.set_many(changed, SAMPLES_KEPT_S)


def rows(instance_id: str, numbers: Iterable[int], since_ms: int, now_ms: int) -> dict[int, list[Row]]:
    """What is kept of each broker's part from `since_ms` on, by time."""
    first_ms = max(since_ms, now_ms - SAMPLES_KEPT_S * MS_PER_S)
    minutes = range(first_ms - first_ms % MINUTE_MS, now_ms + 1, MINUTE_MS)
    wanted = {_key(instance_id, number, at_ms): (number, at_ms) for number in numbers for at_ms in minutes}
    result: dict[int, list[Row]] = {number: [] for number, _ in wanted.values()}
    kept = cache.get_many(list(wanted))
    for key, (number, at_ms) in wanted.items():
        if key in kept:
            result[number] += [row for row in unpacked(kept[key], at_ms) if row[0] >= since_ms]
    return result


def spans(cluster_id: str, numbers: Iterable[int]) -> dict[int, Spans]:
    """Of which time each broker's part is kept; empty for one that never answered, or without the cache."""
    keys = {number: _span_key(cluster_id, number) for number in numbers}
    kept = cache.get_many(list(keys.values()))
    return {number: tuple((start, end) for start, end in kept.get(key, ())) for number, key in keys.items()}


def keep_spans(cluster_id: str, found: Mapping[int, Spans]) -> None:
    """To be called when all of these spans is kept."""
    if found:
        cache.set_many(
            {_span_key(cluster_id, number): [list(span) for span in known] for number, known in found.items()},
            SAMPLES_KEPT_S,
        )


def _key(instance_id: str, number: int, minute_ms: int) -> str:
    return f"traffic:{instance_id}:{number}:{minute_ms // MINUTE_MS}"


def _span_key(cluster_id: str, number: int) -> str:
    return f"traffic:spans:{cluster_id}:{number}"
