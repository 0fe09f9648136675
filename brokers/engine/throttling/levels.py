"""Metering of levels as counters that only grow: stored bytes and partitions multiplied by time, and the peak number of
connections of each hour. Pure.

As counters, levels can be reported, repeated, lost and summed exactly as bytes are (`brokers.contract.usage`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from brokers.contract.usage import LEVEL_INTERVAL_MS, Level

MS_PER_HOUR: Final = 3_600_000
MS_PER_S: Final = 1_000
# Maximum time that a sample accounts for: a process that was suspended for longer lost its leaderships meanwhile.
ELAPSED_MS_MAX: Final = 2 * LEVEL_INTERVAL_MS


class InstanceLevels(NamedTuple):
    """Levels of one instance on this broker, which leads some of its partitions.

    `stored_bytes` counts these partitions with all their replicas, `partitions` is their number, and `connections` the
    peak number of open connections since the last sample.
    """

    stored_bytes: int = 0
    partitions: int = 0
    connections: int = 0


class Increment(NamedTuple):
    """Increment of a counter of an instance, in byte-hours, partition-seconds or connections."""

    instance_id: str
    level: Level
    amount: int


@dataclass(slots=True)
class _Remainder:
    """Remainders of one instance below a whole unit, and the peak number of connections of the current hour."""

    stored_byte_ms: int = 0
    partition_ms: int = 0
    hour: int = -1
    connections: int = 0


class LevelMeters:
    """Meters of the levels of all instances on this broker.

    They begin at `monotonic_ms`, with the wall time `now_ms`. Connections of the hour in which they begin are not
    counted, because the previous incarnation may have counted them.
    """

    def __init__(self, monotonic_ms: int, now_ms: int) -> None:
        self._sampled_ms = monotonic_ms
        self._first_hour = now_ms // MS_PER_HOUR
        self._remainders: dict[str, _Remainder] = {}

    def sample(
        self, levels_by_instance: Mapping[str, InstanceLevels], *, monotonic_ms: int, now_ms: int
    ) -> Iterator[Increment]:
        """Yields the increments since the last sample. `levels_by_instance` are the levels in that time.

        The remainders of instances without levels are dropped. `now_ms` is wall time.
        """
        elapsed_ms = min(max(0, monotonic_ms - self._sampled_ms), ELAPSED_MS_MAX)
        self._sampled_ms = monotonic_ms
        for instance_id in self._remainders.keys() - levels_by_instance.keys():
            del self._remainders[instance_id]
        # A sample taken exactly on the hour belongs to the hour that ended, as in the sums of usage rows.
        hour = (now_ms - 1) // MS_PER_HOUR
        for instance_id, levels in levels_by_instance.items():
            remainder = self._remainders.get(instance_id)
            if remainder is None:
                if not any(levels):
                    continue
                remainder = self._remainders[instance_id] = _Remainder()
            yield from self._compute_increments(instance_id, remainder, levels, elapsed_ms, hour)

    def _compute_increments(
        self, instance_id: str, remainder: _Remainder, levels: InstanceLevels, elapsed_ms: int, hour: int
    ) -> Iterator[Increment]:
        byte_hours, remainder.stored_byte_ms = divmod(
            remainder.stored_byte_ms + levels.stored_bytes * elapsed_ms, MS_PER_HOUR
        )
        if byte_hours:
            yield Increment(instance_id, "stored", byte_hours)
        partition_s, remainder.partition_ms = divmod(remainder.partition_ms + levels.partitions * elapsed_ms, MS_PER_S)
        if partition_s:
            yield Increment(instance_id, "partitions", partition_s)
        if hour != remainder.hour:
            remainder.hour, remainder.connections = hour, 0
        increase = levels.connections - remainder.connections
        if increase > 0:
            remainder.connections = levels.connections
            if hour > self._first_hour:
                yield Increment(instance_id, "connections", increase)
