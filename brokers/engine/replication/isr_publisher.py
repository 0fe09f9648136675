"""Writes ISR changes of the partitions led here, which take effect only when the image shows them (REP-22 to REP-25).

While a write is pending, or written and not shown, a partition counts the members of both ISRs. A write with an unknown
outcome is repeated unchanged: if the first one succeeded, the second one fails and the image is read again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

import structlog

from brokers.contract.documents import PartitionStateDocument
from brokers.engine.cluster.controller_epoch import StateWrite
from brokers.engine.cluster.current import CurrentImage
from brokers.engine.cluster.errors import StoreUnavailable
from brokers.engine.cluster.image import BrokerInfo, ClusterImage, PartitionImage
from brokers.engine.cluster.incarnations import is_same_incarnation, isr_epochs
from brokers.engine.cluster.store import ClusterStore
from brokers.engine.partitions.leadership import Leadership
from brokers.engine.partitions.leadership_check import unconfirmed_followers
from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.progress import REPLICA_LAG_MS_MAX, UNKNOWN_EPOCH, out_of_sync_replicas
from brokers.engine.partitions.table import PartitionTable

log = structlog.get_logger(__name__)

# Delay in which changes are collected into one write.
COLLECTION_DELAY_S: Final = 0.02
RETRY_DELAY_S: Final = 0.5


class Proposal(NamedTuple):
    """A write that the image does not show yet."""

    partition: Partition
    write: StateWrite


class IsrPublisher:
    """Publishes ISR changes: candidates are reported by fetches, lagging members are found by `check`.

    `monotonic_ms` is the clock of follower progress.
    """

    def __init__(
        self,
        *,
        broker_id: int,
        table: PartitionTable,
        current: CurrentImage,
        store: ClusterStore,
        read_again: Callable[[Iterable[str]], None],
        monotonic_ms: Callable[[], int],
        lag_ms_max: int = REPLICA_LAG_MS_MAX,
    ) -> None:
        """Creates the publisher; `read_again` makes the watcher read topics again (`ClusterWatcher.mark_topics`)."""
        self._broker_id = broker_id
        self._table = table
        self._current = current
        self._store = store
        self._read_again = read_again
        self._monotonic_ms = monotonic_ms
        self.lag_ms_max = lag_ms_max
        self._partitions_to_check: set[Partition] = set()
        self._proposals: dict[Partition, Proposal] = {}
        # Proposals that may not have reached the store.
        self._unsent: dict[Partition, Proposal] = {}
        # Partitions with candidates whose broker epoch differs from the image, or that are not in it: the image may be
        # outdated.
        self._unconfirmed: set[Partition] = set()
        self._wake = asyncio.Event()

    def schedule_check(self, partition: Partition) -> None:
        """Schedules a check of the ISR, after a follower outside it caught up (REP-23) or a member fell behind."""
        if partition not in self._proposals:
            self._partitions_to_check.add(partition)
            self._wake.set()

    def check(self) -> None:
        """Finds ISR members that fell behind (REP-22); called every `lag_ms_max` / 2."""
        now_ms = self._monotonic_ms()
        for partition in self._table:
            leadership = partition.leadership
            if leadership is None:
                continue
            for follower in leadership.followers.values():
                follower.update_keeps_up(now_ms, self.lag_ms_max)
            if self._find_out_of_sync(partition, leadership, now_ms) or _find_candidates(partition, leadership):
                self.schedule_check(partition)
            # The high watermark does not wait for a follower that has stopped keeping up.
            partition.advance_high_watermark()

    def check_disks(self) -> None:
        """Transfers partitions on failed disks that are led here to another in-sync replica, as soon as there is one.

        Called every second. Includes partitions whose leadership this broker got after the disk had failed.
        """
        if not self._table.offline_directories:
            return
        for partition in self._table:
            if partition.offline and partition.is_leader:
                self.schedule_check(partition)

    def on_image(self, previous_image: ClusterImage, image: ClusterImage) -> None:
        """Ends the proposals that the image shows or has overtaken; called after the roles are applied."""
        if previous_image.brokers is not image.brokers:
            self._on_brokers(image)
        for partition, proposal in tuple(self._proposals.items()):
            if (
                _find_led(image, partition, self._broker_id) is None
                or _version_of(image, partition) != proposal.write.version
            ):
                del self._proposals[partition]
                self._unsent.pop(partition, None)
                partition.propose_isr(None)
                self.schedule_check(partition)

    def _on_brokers(self, image: ClusterImage) -> None:
        followers = {
            replica
            for topic in image.topics.values()
            for partition in topic.partitions
            for replica in partition.replicas
        }
        available_ids = {broker_id for broker_id, broker in image.brokers.items() if not broker.stopping}
        self._table.set_unavailable_brokers(frozenset(followers - available_ids))
        if self._unconfirmed:
            self._partitions_to_check |= self._unconfirmed
            self._unconfirmed.clear()
            self._wake.set()

    async def run(self) -> None:
        """Writes proposals until cancelled."""
        while True:
            await self._wake.wait()
            await asyncio.sleep(COLLECTION_DELAY_S)
            self._wake.clear()
            self._plan_writes()
            if self._unsent:
                await self._write(list(self._unsent.values()))

    # -- planning -----------------------------------------------------------------------------------------------------

    def _find_out_of_sync(self, partition: Partition, leadership: Leadership, now_ms: int) -> tuple[int, ...]:
        return out_of_sync_replicas(
            partition.isr,
            self._broker_id,
            leadership.followers,
            partition.log_end_offset,
            now_ms,
            self.lag_ms_max,
            unconfirmed_followers(partition),
        )

    def _plan_writes(self) -> None:
        """Plans the required writes; each partition then counts the members of both ISRs."""
        changed, self._partitions_to_check = self._partitions_to_check, set()
        image, now_ms = self._current.image, self._monotonic_ms()
        for partition in changed:
            partition_image = _find_led(image, partition, self._broker_id)
            if partition_image is None or partition in self._proposals:
                continue
            if partition.offline:
                document = transfer_leadership(partition_image, self._broker_id, image.brokers)
                isr = partition.isr
            else:
                isr, joined = self._compute_isr(partition, image.brokers, now_ms)
                document = None if isr == partition.isr else _with_isr(partition_image, isr, image.brokers, joined)
            if document is None:
                continue
            identity = image.topics[partition.topic].identity
            write = StateWrite(partition.topic, partition.index, document, partition_image.version, identity=identity)
            self._proposals[partition] = self._unsent[partition] = Proposal(partition, write)
            partition.propose_isr(isr)

    def _compute_isr(
        self, partition: Partition, brokers: Mapping[int, BrokerInfo], now_ms: int
    ) -> tuple[tuple[int, ...], dict[int, int]]:
        """Returns the desired ISR, in the current order, and the broker epochs of new members."""
        leadership = partition.leadership
        if leadership is None:
            return partition.isr, {}
        out_of_sync = self._find_out_of_sync(partition, leadership, now_ms)
        joined: dict[int, int] = {}
        for replica in _find_candidates(partition, leadership):
            broker, epoch = brokers.get(replica), leadership.followers[replica].broker_epoch
            # A follower that fetched in another incarnation must fetch again.
            if broker is not None and not broker.stopping and epoch in (broker.epoch, UNKNOWN_EPOCH):
                joined[replica] = broker.epoch
            else:
                self._unconfirmed.add(partition)
        remaining = tuple(member for member in partition.isr if member not in out_of_sync)
        return (*remaining, *joined), joined

    # -- writing ------------------------------------------------------------------------------------------------------

    async def _write(self, proposals: list[Proposal]) -> None:
        try:
            conflicting = await self._store.write_isrs([proposal.write for proposal in proposals])
        except StoreUnavailable as error:
            log.warning("isr_not_written", partitions=len(proposals), reason=str(error))
            await asyncio.sleep(RETRY_DELAY_S)
            self._wake.set()
            return
        for partition, _ in proposals:
            self._unsent.pop(partition, None)
        failed = {write.key for write in conflicting}
        if failed:
            self._read_again({write.topic for write in conflicting})
        for partition, write in proposals:
            log.info(
                "isr_lost_a_race" if write.key in failed else "isr_changed",
                topic=partition.topic,
                partition=partition.index,
                before=partition.isr,
                after=write.document.isr,
            )


def _find_candidates(partition: Partition, leadership: Leadership) -> list[int]:
    """Returns the followers that may join, except those that did not answer a leadership check."""
    unconfirmed = unconfirmed_followers(partition)
    return [
        replica
        for replica in leadership.isr_candidates(partition.high_watermark, partition.log_start_offset)
        if replica not in unconfirmed
    ]


def _with_isr(
    partition_image: PartitionImage, isr: tuple[int, ...], brokers: Mapping[int, BrokerInfo], joined: Mapping[int, int]
) -> PartitionStateDocument:
    return PartitionStateDocument(
        leader=partition_image.leader,
        leader_epoch=partition_image.leader_epoch,
        controller_epoch=partition_image.controller_epoch,
        isr=isr,
        isr_broker_epochs=isr_epochs(isr, partition_image, brokers, joined),
    )


def transfer_leadership(
    partition_image: PartitionImage, broker_id: int, brokers: Mapping[int, BrokerInfo]
) -> PartitionStateDocument | None:
    """Returns the state in which the first other in-sync replica leads, None if there is none (LOG-3)."""
    isr = tuple(member for member in partition_image.isr if member != broker_id)
    for replica in partition_image.replicas:
        if replica in isr and is_same_incarnation(partition_image, brokers, replica) and not brokers[replica].stopping:
            return PartitionStateDocument(
                leader=replica,
                leader_epoch=partition_image.leader_epoch + 1,
                controller_epoch=partition_image.controller_epoch,
                isr=isr,
                isr_broker_epochs=isr_epochs(isr, partition_image, brokers),
            )
    return None


def _find_led(image: ClusterImage, partition: Partition, broker_id: int) -> PartitionImage | None:
    """Returns the partition in the image; None unless the image says that it is led here."""
    topic = image.topics.get(partition.topic)
    if topic is None or topic.topic_id != partition.topic_id or partition.index >= len(topic.partitions):
        return None
    partition_image = topic.partitions[partition.index]
    is_led = (
        partition.is_leader
        and partition_image.leader == broker_id
        and partition_image.leader_epoch == partition.leader_epoch
    )
    return partition_image if is_led and partition_image.isr == partition.isr else None


def _version_of(image: ClusterImage, partition: Partition) -> int | None:
    return image.topics[partition.topic].partitions[partition.index].version
