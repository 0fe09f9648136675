"""Loading of a shard: the log of its state partition is replayed from start to end (GRP-25, TXN-16)."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from brokers.engine.coordinators.result import NO_PRODUCER
from brokers.engine.coordinators.shard import Shard


class ReplayFailed(Exception):
    """The machine raised an error for the readable record at `offset`, which is a bug in Penstock."""

    def __init__(self, offset: int) -> None:
        super().__init__(f"the record at offset {offset} could not be replayed")
        self.offset = offset


async def load(shard: Shard[Any], left_out: Container[int] = ()) -> int:
    """Replays the log without the offsets in `left_out`, begins the shard and returns the number of records read.

    Markers of transactions that are appended meanwhile are read as well: there is no `await` between reaching the end
    of the log and `shard.begin`.

    Raises:
        LogUnreadable: from `StateLog.read`.
        ReplayFailed: the machine failed on a record. After either error the machine must be discarded.
    """
    machine = shard.machine
    offset = shard.log.start_offset
    records = 0
    while True:
        batches, next_offset = await shard.log.read(offset)
        if not batches:
            break
        for batch in batches:
            at = batch.last_offset
            try:
                if batch.committed is not None:
                    if at not in left_out:
                        machine.replay_marker(batch.producer_id, batch.committed, at)
                    continue
                producer_id = batch.producer_id if batch.is_transactional else NO_PRODUCER
                for at, key, value in batch.records:
                    if at not in left_out:
                        machine.replay(key, value, at, producer_id)
            except Exception as error:
                raise ReplayFailed(at) from error
            records += len(batch.records)
        offset = next_offset
    shard.begin(offset - 1)
    return records
