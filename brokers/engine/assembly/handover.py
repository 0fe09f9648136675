"""Controlled shutdown (REP-34): a broker that is about to stop first gives away what somebody else can take.

It says so in its registration; the controller moves its leaderships and takes it out of the ISRs, and the image shows
when that is done. What nobody else is in sync with cannot be given away, and is not waited for.
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


def could_be_given_away(image: ClusterImage, broker_id: int) -> Iterator[PartitionImage]:
    """Partitions this broker leads while another in-sync replica lives and stays, and those where it is in sync with a
    leader that does.
    """
    staying = {id for id, broker in image.brokers.items() if not broker.stopping and id != broker_id}
    for topic in image.topics.values():
        if topic.deleting:
            continue
        for partition in topic.partitions:
            if broker_id not in partition.isr:
                continue
            takers = partition.isr if partition.leader == broker_id else (partition.leader,)
            if not staying.isdisjoint(takers):
                yield partition


async def hand_over(session: ClusterSession, current: CurrentImage, broker_id: int, timeout_s: float) -> bool:
    """Answers whether nothing is left that somebody else could take. Never longer than `timeout_s`: a broker that
    cannot hand over stops all the same, and the others find out as they would of its death.

    Also who has nothing to give says that it stops, so that nobody takes it into an ISR in its last moment.
    """
    if not any(id != broker_id for id in current.image.brokers):
        return True
    if session.state is not SessionState.CONNECTED:
        return False
    began_s = asyncio.get_running_loop().time()
    before = sum(1 for _ in could_be_given_away(current.image, broker_id))
    done = False
    try:
        async with asyncio.timeout(timeout_s):
            if await session.announce_stop():
                done = await current.wait_until(
                    lambda image: next(could_be_given_away(image, broker_id), None) is None, timeout_s
                )
    except (ClusterError, TimeoutError) as error:
        log.warning("stop_not_announced", reason=str(error) or "no answer in time")
    left = sum(1 for _ in could_be_given_away(current.image, broker_id))
    took_ms = round((asyncio.get_running_loop().time() - began_s) * 1000)
    log.info("partitions_handed_over", partitions=before - left, left=left, took_ms=took_ms)
    return done
