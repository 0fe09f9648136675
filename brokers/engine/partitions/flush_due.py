"""Selection of logs to flush by topic settings (LOG-19), evaluated in rounds and not at each append."""

from __future__ import annotations

from collections.abc import Iterable

from brokers.contract.partitions import PartitionKey
from brokers.engine.partitions.partition import Partition


class FlushDue:
    """Tracks since when each log has unflushed records; clean and deleted logs are forgotten."""

    def __init__(self) -> None:
        self._dirty_since_ms: dict[PartitionKey, tuple[int, int]] = {}

    def due(self, partitions: Iterable[Partition], now_ms: int, logs_max: int) -> list[Partition]:
        """Returns the logs with `flush.messages` unflushed records, or with one that is `flush.ms` old.

        If there are more than `logs_max`, those that have waited longest are returned.
        """
        result: list[tuple[int, Partition]] = []
        known, self._dirty_since_ms = self._dirty_since_ms, {}
        for partition in partitions:
            config, log = partition.config, partition.log
            waiting = log.log_end_offset - log.recovery_point
            if not config.flushes or not waiting:
                continue
            key = (partition.topic, partition.index)
            # If the log was flushed in between, its unflushed records are newer.
            point, since_ms = known.get(key, (-1, now_ms))
            if point != log.recovery_point:
                since_ms = now_ms
            self._dirty_since_ms[key] = (log.recovery_point, since_ms)
            if waiting >= config.flush_messages or now_ms - since_ms >= config.flush_ms:
                result.append((since_ms, partition))
        result.sort(key=lambda due: due[0])
        return [partition for _, partition in result[:logs_max]]
