"""The ISR as a leader writes it, and as it takes effect (REP-22 to REP-25)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from brokers.contract.documents import PartitionStateDocument
from brokers.engine.cluster.controller_epoch import StateWrite
from brokers.engine.cluster.current import CurrentImage
from brokers.engine.cluster.errors import StoreUnavailable
from brokers.engine.cluster.image import BrokerInfo, ClusterImage, ImageDelta, PartitionImage, TopicImage
from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.role import PartitionRole
from brokers.engine.partitions.table import PartitionTable, StorageSettings
from brokers.engine.records import error_codes
from brokers.engine.records.builder import Record, build_batch
from brokers.engine.replication import isr_publisher
from brokers.engine.replication.isr_publisher import IsrPublisher, transfer_leadership
from brokers.engine.storage.files import StorageFailed

NAME, TOPIC_ID = "orders", b"t" * 16
LAG_MS_MAX = 1_000
REPLICAS = (1, 2, 3)
DEADLINE_S = 5.0


def info(id: int, epoch: int = 10, *, stopping: bool = False) -> BrokerInfo:
    return BrokerInfo(id, "h", 1, 2, None, epoch, stopping)


def topic(isr: tuple[int, ...], version: int, *, leader: int = 1, epoch: int = 0) -> TopicImage:
    partition = PartitionImage(
        0, REPLICAS, leader=leader, leader_epoch=epoch, isr=isr, version=version, isr_epochs=(10,) * len(isr)
    )
    return TopicImage(NAME, NAME, None, TOPIC_ID, (partition,), {})


class Store:
    """A store; `outcomes` are consumed in order: an error to raise, or whether the writes succeed."""

    def __init__(self) -> None:
        self.writes: list[list[StateWrite]] = []
        self.outcomes: list[Exception | bool] = []

    async def write_isrs(self, writes: Sequence[StateWrite]) -> list[StateWrite]:
        self.writes.append(list(writes))
        outcome = self.outcomes.pop(0) if self.outcomes else True
        if isinstance(outcome, Exception):
            raise outcome
        return [] if outcome else list(writes)

    @property
    def documents(self) -> list[PartitionStateDocument]:
        return [write.document for writes in self.writes for write in writes]


class FetcherContext:
    """One partition that is led here, and a running publisher."""

    def __init__(self, directory: Path) -> None:
        self.now_ms = 0
        self.table = PartitionTable(StorageSettings(roots=(directory,), broker_id=1, cluster_id="c"))
        self.table.recover(0)
        self.store = Store()
        self.read_again: list[str] = []
        image = ClusterImage("c").with_changes(ImageDelta(brokers={id: info(id) for id in REPLICAS}))
        self.current = CurrentImage(image)
        self.publisher = IsrPublisher(
            broker_id=1,
            table=self.table,
            current=self.current,
            store=self.store,  # type: ignore[arg-type]
            read_again=self._read_again,
            monotonic_ms=lambda: self.now_ms,
            lag_ms_max=LAG_MS_MAX,
        )
        self.current.subscribe(self._on_image)
        self.current.subscribe(self.publisher.on_image)
        self.show(topic(REPLICAS, 0))

    def _read_again(self, names: Iterable[str]) -> None:
        self.read_again += names

    def _on_image(self, before: ClusterImage, after: ClusterImage) -> None:
        """Applies an image like the roles do."""
        shown = after.topics[NAME].partitions[0]
        if shown.leader == 1:
            self.table.become_leader(
                NAME,
                0,
                TOPIC_ID,
                shown.leader_epoch,
                {},
                now_ms=0,
                role=PartitionRole(REPLICAS, shown.isr, since_ms=self.now_ms),
            )
        else:
            self.table.resign(NAME, 0)

    def show(self, shown: TopicImage) -> None:
        self.current.publish(self.current.image.with_changes(ImageDelta(topics={NAME: shown})))

    @property
    def partition(self) -> Partition:
        result = self.table.get(NAME, 0)
        assert result is not None
        return result

    def append(self) -> None:
        records = memoryview(build_batch([Record(0, None, b"v")]))
        assert self.partition.append(records, 0, acks=1, produce_version=9).error_code == 0

    def fetched(self, replica: int, offset: int, epoch: int = 10) -> None:
        if self.partition.update_follower_fetch_state(replica, epoch, offset, 0, self.now_ms):
            self.publisher.schedule_check(self.partition)

    async def until_written(self, times: int) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while len(self.store.writes) < times:  # noqa: ASYNC110 (there is no event to wait for)
                await asyncio.sleep(0.001)


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FetcherContext]:
    monkeypatch.setattr(isr_publisher, "RETRY_DELAY_S", 0.001)
    made = FetcherContext(tmp_path)
    task = asyncio.create_task(made.publisher.run())
    yield made
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    made.table.close()


def fall_behind(world: FetcherContext, replica: int = 3) -> None:
    """Lets a replica lag for too long while the others fetch everything."""
    world.append()
    for _ in range(2):
        world.now_ms += LAG_MS_MAX * 2 // 3
        for other in REPLICAS[1:]:
            if other != replica:
                world.fetched(other, world.partition.log_end_offset)
    world.publisher.check()


async def test_a_lagging_follower_leaves_the_isr_once_the_image_shows_it(world: FetcherContext) -> None:
    """REP-22, REP-4: its session may be alive."""
    fall_behind(world)
    await world.until_written(1)

    (document,) = world.store.documents
    assert (document.isr, document.isr_broker_epochs, document.leader_epoch) == ((1, 2), (10, 10), 0)
    assert world.partition.high_watermark == 0
    assert world.partition.isr == REPLICAS
    world.show(topic((1, 2), 1))
    assert world.partition.high_watermark == 1


async def test_an_idle_partition_loses_no_isr_member(world: FetcherContext) -> None:
    world.append()
    for replica in (2, 3):
        world.fetched(replica, 1)
    world.now_ms += 100 * LAG_MS_MAX
    world.publisher.check()
    await asyncio.sleep(isr_publisher.COLLECTION_DELAY_S * 3)

    assert world.store.writes == []


async def test_a_caught_up_follower_joins_with_the_epoch_of_its_fetch(world: FetcherContext) -> None:
    """REP-23: its offset counts from the moment it is proposed."""
    world.show(topic((1, 2), 1))
    world.append()
    world.fetched(2, 1)

    world.fetched(3, 1)
    await world.until_written(1)

    (document,) = world.store.documents
    assert (document.isr, document.isr_broker_epochs) == ((1, 2, 3), (10, 10, 10))
    world.append()
    world.fetched(2, 2)
    assert world.partition.high_watermark == 1


async def test_a_follower_with_an_unknown_broker_epoch_waits_for_the_image(
    world: FetcherContext,
) -> None:
    world.show(topic((1, 2), 1))
    world.fetched(3, 0, epoch=11)
    await asyncio.sleep(isr_publisher.COLLECTION_DELAY_S * 3)
    assert world.store.writes == []

    brokers = {**world.current.image.brokers, 3: info(3, epoch=11)}
    world.current.publish(world.current.image.with_changes(ImageDelta(brokers=brokers)))
    await world.until_written(1)

    assert world.store.documents[0].isr_broker_epochs == (10, 10, 11)


async def test_after_a_lost_race_the_state_is_read_again_and_not_acted_on(world: FetcherContext) -> None:
    """REP-25."""
    world.store.outcomes = [False]
    fall_behind(world)
    await world.until_written(1)
    await asyncio.sleep(isr_publisher.COLLECTION_DELAY_S * 3)

    assert world.read_again == [NAME]
    assert (len(world.store.writes), world.partition.high_watermark) == (1, 0)
    world.show(topic((2, 3), 1, leader=2, epoch=1))
    assert not world.partition.is_leader
    assert world.partition.high_watermark == 0


async def test_a_write_with_an_unknown_outcome_is_repeated_unchanged(world: FetcherContext) -> None:
    """The first write may have succeeded: then the second one fails, and the image shows the result."""
    world.store.outcomes = [StoreUnavailable("away"), StoreUnavailable("away"), False]
    fall_behind(world)
    await world.until_written(3)

    assert world.store.writes[0] == world.store.writes[1] == world.store.writes[2]
    world.show(topic((1, 2), 1))
    assert world.partition.high_watermark == 1


async def test_changes_during_a_write_are_written_afterwards(world: FetcherContext) -> None:
    """REP-24: one write at a time for each partition."""
    fall_behind(world)
    await world.until_written(1)
    world.fetched(3, 1)
    await asyncio.sleep(isr_publisher.COLLECTION_DELAY_S * 3)
    assert len(world.store.writes) == 1

    world.show(topic((1, 2), 1))
    await world.until_written(2)

    assert world.store.documents[1].isr == (1, 2, 3)
    assert world.store.writes[1][0].version == 1


async def test_a_stopping_broker_does_not_join_the_isr(world: FetcherContext) -> None:
    """REP-34."""
    brokers = {**world.current.image.brokers, 3: info(3, stopping=True)}
    world.current.publish(world.current.image.with_changes(ImageDelta(brokers=brokers)))
    world.show(topic((1, 2), 1))
    world.fetched(3, 0)
    await asyncio.sleep(isr_publisher.COLLECTION_DELAY_S * 3)

    assert world.store.writes == []


async def test_the_high_watermark_does_not_wait_for_a_stopping_broker(world: FetcherContext) -> None:
    """REP-34: it was in sync a moment ago, and closes its connection now."""
    world.show(topic((1, 2), 1))
    world.append()
    world.fetched(3, 1)
    brokers = {**world.current.image.brokers, 3: info(3, stopping=True)}
    world.current.publish(world.current.image.with_changes(ImageDelta(brokers=brokers)))
    world.show(topic((1, 2), 2, epoch=1))
    world.fetched(3, 1)

    world.append()
    world.fetched(2, 2)

    assert world.partition.high_watermark == 2


async def test_a_new_leader_with_a_failed_disk_transfers_the_leadership(world: FetcherContext) -> None:
    """LOG-3: it was in sync a moment ago, and only it knows of its disk."""
    world.show(topic(REPLICAS, 1, leader=2, epoch=1))
    world.table.on_directory_failure(StorageFailed(world.partition.log.root, OSError("gone")))
    world.publisher.check_disks()

    world.show(topic(REPLICAS, 2, leader=1, epoch=2))
    world.publisher.check_disks()
    await world.until_written(1)

    (document,) = world.store.documents
    assert (document.leader, document.leader_epoch, document.isr) == (2, 3, (2, 3))
    assert world.partition.read(0, 100, min_one_batch=True).error_code == error_codes.KAFKA_STORAGE_ERROR


async def test_the_leadership_on_a_failed_disk_moves_as_soon_as_possible(world: FetcherContext) -> None:
    """LOG-3: at first all other replicas are about to stop."""
    living = world.current.image.brokers
    stopping = {id: info(id, stopping=id != 1) for id in REPLICAS}
    world.current.publish(world.current.image.with_changes(ImageDelta(brokers=stopping)))
    world.table.on_directory_failure(StorageFailed(world.partition.log.root, OSError("gone")))
    world.publisher.check_disks()
    await asyncio.sleep(isr_publisher.COLLECTION_DELAY_S * 2)
    assert world.store.writes == []

    world.current.publish(world.current.image.with_changes(ImageDelta(brokers=living)))
    world.publisher.check_disks()
    await world.until_written(1)

    assert world.store.documents[0].leader == 2


def test_the_leadership_moves_to_the_first_live_in_sync_replica() -> None:
    """LOG-3."""
    shown = topic((1, 2, 3), 5).partitions[0]
    brokers = {id: info(id) for id in REPLICAS}

    given = transfer_leadership(shown, 1, brokers)

    assert given is not None
    assert (given.leader, given.leader_epoch, given.isr, given.isr_broker_epochs) == (2, 1, (2, 3), (10, 10))
    reborn = transfer_leadership(shown, 1, {**brokers, 2: info(2, epoch=11)})
    assert reborn is not None
    assert reborn.leader == 3
    assert transfer_leadership(replace(shown, isr=(1,), isr_epochs=(10,)), 1, brokers) is None
