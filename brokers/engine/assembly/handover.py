"""Controlled shutdown (REP-34): a broker that is about to stop first hands over the partitions that others can lead.

Its registration says that it stops; the controller moves its leaderships and removes it from the ISRs, and the metadata
shows when that is done. Partitions without another in-sync replica cannot be handed over, and are not waited for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import structlog

from brokers.engine.cluster.current import CurrentImage
from brokers.engine.cluster.errors import ClusterError
from brokers.engine.cluster.image import ClusterImage, PartitionImage
from brokers.engine.cluster.session import ClusterSession
from brokers.engine.cluster.tree import SessionState

log = structlog.get_logger(__name__)


def transferable_partitions(image: ClusterImage, broker_id: int) -> Iterator[PartitionImage]:
    """Yields the partitions that this broker leads and another live in-sync replica can lead, and those where it is in
    sync with a leader that stays.
    """
    running = {id for id, broker in image.brokers.items() if not broker.stopping and id != broker_id}
    for topic in image.topics.values():
        if topic.deleting:
            continue
        for partition in topic.partitions:
            if broker_id not in partition.isr:
                continue
            candidates = partition.isr if partition.leader == broker_id else (partition.leader,)
            if not running.isdisjoint(candidates):
                yield partition


async def hand_over(session: ClusterSession, current: CurrentImage, broker_id: int, timeout_s: float) -> bool:
    """Announces the stop and waits up to `timeout_s` seconds until nothing is left to hand over; returns True if so.

    Otherwise the broker stops as well, and the others react as if it had failed. A broker without anything to hand
    over announces its stop as well, so that it is not added to an ISR at the end.
    """
    if not any(id != broker_id for id in current.image.brokers):
        return True
    if session.state is not SessionState.CONNECTED:
        return False
    began_s = asyncio.get_running_loop().time()
    count_before = sum(1 for _ in transferable_partitions(current.image, broker_id))
    is_handed_over = False
    try:
        async with asyncio.timeout(timeout_s):
            if await session.announce_stop():
                is_handed_over = await current.wait_until(
                    lambda image: next(transferable_partitions(image, broker_id), None) is None, timeout_s
                )
    except (ClusterError, TimeoutError) as error:
        log.warning("stop_not_announced", reason=str(error) or "no answer in time")
    count_left = sum(1 for _ in transferable_partitions(current.image, broker_id))
    took_ms = round((asyncio.get_running_loop().time() - began_s) * 1000)
    log.info("partitions_handed_over", partitions=count_before - count_left, left=count_left, took_ms=took_ms)
    return is_handed_over
