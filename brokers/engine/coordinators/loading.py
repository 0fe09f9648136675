"""Reading a state partition from its start to its end, so that the machine knows what is in it (GRP-25, TXN-16)."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from brokers.engine.coordinators.result import NO_PRODUCER
from brokers.engine.coordinators.shard import Shard


class ReplayFailed(Exception):
    """The machine does not take what lies at `offset`, though it could be read: a mistake of ours."""

    def __init__(self, offset: int) -> None:
        super().__init__(f"what lies at offset {offset} is not taken in")
        self.offset = offset


async def load(shard: Shard[Any], left_out: Container[int] = ()) -> int:
    """Replays the log but for what lies at `left_out`, and lets the shard begin; how many records there were.

    Raises ports.LogUnreadable and ReplayFailed; then the machine is of no use.

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
