"""Which logs are to be flushed because their topic asks for it (LOG-19). Looked at in rounds, not at each append."""

from __future__ import annotations

from collections.abc import Iterable

from brokers.contract.partitions import PartitionKey
from brokers.engine.partitions.partition import Partition


class FlushDue:
    """Remembers since when each log holds records that are not on disk; a log that is clean or gone is forgotten."""

    def __init__(self) -> None:
        self._dirty_since_ms: dict[PartitionKey, tuple[int, int]] = {}

    def due(self, partitions: Iterable[Partition], now_ms: int, logs_max: int) -> list[Partition]:
        """Those with `flush.messages` records not flushed, or with one that was there `flush.ms` ago; of more than
        `logs_max` those that wait longest.
        """
        result: list[tuple[int, Partition]] = []
        known, self._dirty_since_ms = self._dirty_since_ms, {}
        for partition in partitions:
            config, log = partition.config, partition.log
            waiting = log.log_end_offset - log.recovery_point
            if not config.flushes or not waiting:
                continue
            key = (partition.topic, partition.index)
            # Flushed in between: what is there now came later.
            point, since_ms = known.get(key, (-1, now_ms))
            if point != log.recovery_point:
                since_ms = now_ms
            self._dirty_since_ms[key] = (log.recovery_point, since_ms)
            if waiting >= config.flush_messages or now_ms - since_ms >= config.flush_ms:
                result.append((since_ms, partition))
        result.sort(key=lambda each: each[0])
        return [partition for _, partition in result[:logs_max]]
