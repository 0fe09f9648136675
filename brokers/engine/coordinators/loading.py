"""Reading a state partition from its start to its end, so that the machine knows what is in it (GRP-25, TXN-16)."""

from __future__ import annotations

from typing import Any

from brokers.engine.coordinators.outcome import NO_PRODUCER
from brokers.engine.coordinators.shard import Shard


async def load(shard: Shard[Any]) -> int:
    """Replays the whole log and lets the shard begin; how many records there were. Raises ports.LogUnreadable.

    What is appended meanwhile (markers of transactions) is read as well: nothing is awaited between finding the end and
    beginning.
    """
    machine = shard.machine
    offset = shard.log.start_offset
    records = 0
    while True:
        batches, next_offset = await shard.log.read(offset)
        if not batches:
            break
        for batch in batches:
            if batch.committed is not None:
                machine.replay_marker(batch.producer_id, batch.committed, batch.last_offset)
                continue
            producer_id = batch.producer_id if batch.is_transactional else NO_PRODUCER
            for record_offset, key, value in batch.records:
                machine.replay(key, value, record_offset, producer_id)
            records += len(batch.records)
        offset = next_offset
    shard.begin(offset - 1)
    return records
