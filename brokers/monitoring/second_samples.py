"""Cached traffic per second of each instance on each broker, for live charts. It survives the restart of a broker.

`traffic_samples` is the only writer. The cache has one value for each minute of an instance on a broker, and one value
for each broker with the spans of time whose traffic is stored. If the cache is lost, brokers are queried for their
whole history.
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

# One second: its start in ms since 1970, bytes produced, bytes consumed, longest delay in ms.
Row = tuple[int, int, int, int]
# Periods `[from, to)` in ms since 1970, sorted, neither overlapping nor adjacent.
Spans = tuple[tuple[int, int], ...]


def pack_rows(rows: Iterable[Row]) -> str:
    """Returns rows of one minute as base64 text. Pure."""
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


def unpack_rows(text: str, minute_ms: int) -> list[Row]:
    """Returns the rows in a text of `pack_rows`; `minute_ms` is the start of their minute. Pure."""
    return [
        (minute_ms + second * MS_PER_S, produced, consumed, delay_ms)
        for second, produced, consumed, delay_ms in _ROW.iter_unpack(base64.b64decode(text))
    ]


def sum_points(points: Iterable[Sequence[int]]) -> dict[int, Row]:
    """Returns rows by second from the points of one broker's answer; points of the same second are added up. Pure."""
    result: dict[int, Row] = {}
    for at_ms, produced, consumed, delay_ms in points:
        _, previous_in, previous_out, previous_ms = result.get(at_ms, (at_ms, 0, 0, 0))
        result[at_ms] = (at_ms, previous_in + produced, previous_out + consumed, max(previous_ms, delay_ms))
    return result


def merge_rows(rows: Iterable[Row]) -> dict[int, Row]:
    """Returns rows by second, merged from several answers of one broker. Pure.

    For a second in several answers the largest figures are used: it may have continued after the first answer.
    """
    result: dict[int, Row] = {}
    for row in rows:
        previous = result.get(row[0])
        if previous is not None:
            row = (row[0], max(previous[1], row[1]), max(previous[2], row[2]), max(previous[3], row[3]))
        result[row[0]] = row
    return result


def add_span(spans: Spans, span: tuple[int, int], oldest_ms: int = 0) -> Spans:
    """Returns `spans` with `span` added, without spans that end before `oldest_ms`. Pure."""
    result: list[tuple[int, int]] = []
    for start_ms, end_ms in sorted((*spans, span)):
        if end_ms <= max(start_ms, oldest_ms):
            continue
        if result and start_ms <= result[-1][1]:
            result[-1] = (result[-1][0], max(result[-1][1], end_ms))
        else:
            result.append((start_ms, end_ms))
    return tuple(result)


def store_rows(rows_by_instance: Mapping[str, Mapping[int, Iterable[Row]]]) -> None:
    """Adds rows, by instance and broker. Idempotent and safe to run concurrently."""
    minutes: dict[str, tuple[int, list[Row]]] = {}
    for instance_id, by_broker in rows_by_instance.items():
        for number, broker_rows in by_broker.items():
            for row in broker_rows:
                minute_ms = row[0] - row[0] % MINUTE_MS
                minutes.setdefault(_minute_key(instance_id, number, minute_ms), (minute_ms, []))[1].append(row)
    cached = cache.get_many(list(minutes))
    changed = {}
    for key, (minute_ms, broker_rows) in minutes.items():
        stored = unpack_rows(cached[key], minute_ms) if key in cached else []
        changed[key] = pack_rows(row for _, row in sorted(merge_rows([*stored, *broker_rows]).items()))
    if changed:
        cache.set_many(changed, SAMPLES_KEPT_S)


def read_rows(instance_id: str, numbers: Iterable[int], since_ms: int, now_ms: int) -> dict[int, list[Row]]:
    """Returns the stored rows of an instance from `since_ms` on, in the order of time, by broker."""
    first_ms = max(since_ms, now_ms - SAMPLES_KEPT_S * MS_PER_S)
    minutes = range(first_ms - first_ms % MINUTE_MS, now_ms + 1, MINUTE_MS)
    minutes_by_key = {
        _minute_key(instance_id, number, at_ms): (number, at_ms) for number in numbers for at_ms in minutes
    }
    result: dict[int, list[Row]] = {number: [] for number, _ in minutes_by_key.values()}
    cached = cache.get_many(list(minutes_by_key))
    for key, (number, at_ms) in minutes_by_key.items():
        if key in cached:
            result[number] += [row for row in unpack_rows(cached[key], at_ms) if row[0] >= since_ms]
    return result


def read_spans(cluster_id: str, numbers: Iterable[int]) -> dict[int, Spans]:
    """Returns the spans whose traffic is stored, by broker; empty for a broker that never answered, or without the
    cache.
    """
    keys = {number: _span_key(cluster_id, number) for number in numbers}
    cached = cache.get_many(list(keys.values()))
    return {number: tuple((start, end) for start, end in cached.get(key, ())) for number, key in keys.items()}


def store_spans(cluster_id: str, spans_by_broker: Mapping[int, Spans]) -> None:
    """Stores the spans; to be called after all of their rows are stored."""
    if spans_by_broker:
        cache.set_many(
            {
                _span_key(cluster_id, number): [list(span) for span in broker_spans]
                for number, broker_spans in spans_by_broker.items()
            },
            SAMPLES_KEPT_S,
        )


def _minute_key(instance_id: str, number: int, minute_ms: int) -> str:
    return f"traffic:{instance_id}:{number}:{minute_ms // MINUTE_MS}"


def _span_key(cluster_id: str, number: int) -> str:
    return f"traffic:spans:{cluster_id}:{number}"
