"""What an instance has, as counters that only grow: stored bytes and partitions times the time it has them, and the
most connections it has in each hour. Pure; clocks are handed in.

So levels are reported, repeated, lost and summed exactly as bytes are (brokers.contract.usage).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from brokers.contract.usage import LEVEL_INTERVAL_MS, Level

MS_PER_HOUR: Final = 3_600_000
MS_PER_S: Final = 1_000
# A process that was stopped for longer did not lead what it thinks it led.
ELAPSED_MS_MAX: Final = 2 * LEVEL_INTERVAL_MS


class InstanceLevels(NamedTuple):
    """Of one instance on this broker: what the partitions it leads store, all replicas; how many those are; and the
    most connections that were open at once since the last sample.
    """

    stored_bytes: int = 0
    partitions: int = 0
    connections: int = 0


class Increment(NamedTuple):
    """How much a counter of an instance grows: byte-hours, partition-seconds, connections."""

    instance_id: str
    level: Level
    amount: int


@dataclass(slots=True)
class _Rest:
    """What is not a whole unit yet, and the most connections of the present hour so far."""

    stored_byte_ms: int = 0
    partition_ms: int = 0
    hour: int = -1
    connections: int = 0


class LevelMeters:
    """`monotonic_ms` is when this incarnation began to measure, `now_ms` its wall time then.

    Connections of the hour in which it began are not counted: the incarnation before it may have counted them.
    """

    def __init__(self, monotonic_ms: int, now_ms: int) -> None:
        self._sampled_ms = monotonic_ms
        self._first_hour = now_ms // MS_PER_HOUR
        self._rests: dict[str, _Rest] = {}

    def sample(self, had: Mapping[str, InstanceLevels], *, monotonic_ms: int, now_ms: int) -> Iterator[Increment]:
        """What all instances had since the last sample. One that is not among `had` is gone."""
        elapsed_ms = min(max(0, monotonic_ms - self._sampled_ms), ELAPSED_MS_MAX)
        self._sampled_ms = monotonic_ms
        for instance_id in self._rests.keys() - had.keys():
            del self._rests[instance_id]
        # As rows are summed: a report on the stroke of an hour belongs to the one that ended.
        hour = (now_ms - 1) // MS_PER_HOUR
        for instance_id, levels in had.items():
            rest = self._rests.get(instance_id)
            if rest is None:
                if not any(levels):
                    continue
                rest = self._rests[instance_id] = _Rest()
            yield from self._increments(instance_id, rest, levels, elapsed_ms, hour)

    def _increments(
        self, instance_id: str, rest: _Rest, levels: InstanceLevels, elapsed_ms: int, hour: int
    ) -> Iterator[Increment]:
        stored, rest.stored_byte_ms = divmod(rest.stored_byte_ms + levels.stored_bytes * elapsed_ms, MS_PER_HOUR)
        if stored:
            yield Increment(instance_id, "stored", stored)
        partition_s, rest.partition_ms = divmod(rest.partition_ms + levels.partitions * elapsed_ms, MS_PER_S)
        if partition_s:
            yield Increment(instance_id, "partitions", partition_s)
        if hour != rest.hour:
            rest.hour, rest.connections = hour, 0
        more = levels.connections - rest.connections
        if more > 0:
            rest.connections = levels.connections
            if hour > self._first_hour:
                yield Increment(instance_id, "connections", more)
