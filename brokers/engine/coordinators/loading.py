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


async def load(shard: Shard[Any], skipped_offsets: Container[int] = ()) -> int:
    """Replays the log without `skipped_offsets`, makes the shard serve calls and returns the number of records read.

    Markers of transactions that are appended meanwhile are read as well: there is no `await` between reaching the end
    of the log and `shard.start_serving`.

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
            record_offset = batch.last_offset
            try:
                if batch.committed is not None:
                    if record_offset not in skipped_offsets:
                        machine.replay_marker(batch.producer_id, batch.committed, record_offset)
                    continue
                producer_id = batch.producer_id if batch.is_transactional else NO_PRODUCER
                for record_offset, key, value in batch.records:
                    if record_offset not in skipped_offsets:
                        machine.replay(key, value, record_offset, producer_id)
            except Exception as error:
                raise ReplayFailed(record_offset) from error
            records += len(batch.records)
        offset = next_offset
    shard.start_serving(offset - 1)
    return records
