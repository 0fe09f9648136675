"""Refused produces: an instance with exhausted storage, and a nearly full disk (CKA-26)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.broker_reports import AllotStorageRequest
from brokers.engine.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from brokers.engine.protocol.messages.topics import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
)
from tests.testkit.records import batch, fetch, produce
from tests.unit.brokers.engine.handlers.conftest import MINE, THEIRS, House
from tests.unit.brokers.engine.handlers.offsets_asking import coordinator_ready

BOUGHT = 1_000_000
# Smaller than the slack beyond the capacity, so that the instance becomes full.
RECORDS = batch(b"x" * 5_000)
FULL = int(ErrorCode.POLICY_VIOLATION)
ASKED = int(ErrorCode.REQUEST_TIMED_OUT)


async def fill(house: House, topic: str = "orders") -> Any:
    """Produces until a final rejection; returns that response."""
    async with asyncio.timeout(30):
        while True:
            answer = await produce(house.mine, topic, RECORDS)
            if answer.error_code == FULL:
                return answer
            if answer.error_code == ASKED:
                await asyncio.sleep(0.02)
            else:
                assert answer.error_code == 0, answer


def stored_bytes(house: House) -> int:
    return house.broker.broker.storage.use.measure_now(MINE)


@pytest.fixture
async def full(house: House) -> House:
    await house.broker.update_instance(MINE, capacity_bytes=BOUGHT)
    await house.topic()
    await fill(house)
    return house


async def test_produce_is_refused_with_a_reason_when_what_was_bought_is_used(full: House) -> None:
    answer = await produce(full.mine, "orders", RECORDS)

    assert answer.error_code == FULL
    assert "1,000,000 bytes were bought" in answer.error_message
    assert BOUGHT * 0.98 <= stored_bytes(full) <= BOUGHT * 1.02


@pytest.mark.parametrize("version", [3, 9])
async def test_the_ledger_says_that_the_storage_is_used_up(full: House, version: int) -> None:
    ledger = full.broker.broker.services.accounting.accountings.get_or_create(MINE).ledger
    before = ledger.totals["capacity"].count

    await produce(full.mine, "orders", RECORDS, version=version)

    (entry,) = (entry for entry in ledger.as_json(0) if entry["rule"]["kind"] == "capacity")  # type: ignore[index]
    assert entry["rule"] == {"kind": "capacity", "quota": "storage", "level": None, "entity": {}}
    assert (ledger.totals["capacity"].count, entry["waited_ms_total"]) == (before + 1, 0)


async def test_refusal_in_old_versions_is_the_same_code(full: House) -> None:
    assert (await produce(full.mine, "orders", RECORDS, version=7)).error_code == FULL


async def test_another_instance_produces_as_ever(full: House) -> None:
    await full.broker.create_topic(full.theirs, "orders", 1)

    assert (await produce(full.theirs, "orders", RECORDS)).error_code == 0


async def test_full_instance_reads_and_commits(full: House) -> None:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=3)
    topics = [OffsetCommitRequestTopic(name="orders", partitions=[partition])]

    await coordinator_ready(full.mine, "readers")

    answer = await full.mine.call(ApiKey.OFFSET_COMMIT, 8, OffsetCommitRequest(group_id="readers", topics=topics))

    assert answer.topics[0].partitions[0].error_code == 0
    assert (await fetch(full.mine, "orders")).records


async def test_retried_batch_that_was_appended_before_is_answered_as_such(house: House) -> None:
    await house.broker.update_instance(MINE, capacity_bytes=BOUGHT)
    await house.topic()
    mine = batch(b"once", producer_id=house.broker.broker.services.broker_id, producer_epoch=0, base_sequence=0)
    first = await produce(house.mine, "orders", mine)
    await fill(house)

    again = await produce(house.mine, "orders", mine)

    assert (again.error_code, again.base_offset) == (0, first.base_offset)


async def test_deleting_records_makes_room(full: House) -> None:
    """Whole segments are deleted; the active one stays."""
    await full.topic("others")
    partition = DeleteRecordsPartition(partition_index=0, offset=-1)
    topics = [DeleteRecordsTopic(name="orders", partitions=[partition])]

    answer = await full.mine.call(ApiKey.DELETE_RECORDS, 2, DeleteRecordsRequest(topics=topics, timeout_ms=1000))

    assert answer.topics[0].partitions[0].error_code == 0
    await taken_again(full, "others")


async def test_deleting_a_topic_makes_room(full: House) -> None:
    await full.topic("others")

    answer = await full.mine.call(ApiKey.DELETE_TOPICS, 4, DeleteTopicsRequest(topic_names=["orders"], timeout_ms=9000))

    assert answer.responses[0].error_code == 0
    await taken_again(full, "others")


async def test_buying_more_makes_room(full: House) -> None:
    await full.broker.update_instance(MINE, capacity_bytes=2 * BOUGHT)

    await taken_again(full, "orders")


async def taken_again(house: House, topic: str) -> None:
    async with asyncio.timeout(5):
        code = FULL
        while code:
            code = (await produce(house.mine, topic, RECORDS)).error_code
            await asyncio.sleep(0.05)


async def test_instance_that_bought_less_than_it_has_is_refused_and_keeps_its_records(house: House) -> None:
    await house.topic()
    for _ in range(2 * BOUGHT // len(RECORDS)):
        assert (await produce(house.mine, "orders", RECORDS)).error_code == 0

    await house.broker.update_instance(MINE, capacity_bytes=BOUGHT)

    await fill(house)
    assert stored_bytes(house) > BOUGHT
    assert (await fetch(house.mine, "orders")).records


async def test_disk_that_is_nearly_full_takes_records_of_no_instance_and_stays_online(house: House) -> None:
    await house.topic()
    table = house.broker.broker.table
    disk = next(iter(table.disks.values()))

    floor = house.broker.broker.free_space_monitor
    floor.free_bytes_min = 1 << 60
    floor.measure()
    answer = await produce(house.mine, "orders", RECORDS)

    assert answer.error_code == FULL
    assert "disk is nearly full" in answer.error_message
    assert not table.offline_directories
    assert disk.refused_count == 1

    floor.free_bytes_min = 1
    floor.measure()
    assert (await produce(house.mine, "orders", RECORDS)).error_code == 0


async def test_usage_reports_of_the_cluster_are_written_on_a_disk_that_is_nearly_full(house: House) -> None:
    floor = house.broker.broker.free_space_monitor
    floor.free_bytes_min = 1 << 60
    floor.measure()
    internal = await house.broker.internal_client("penstock")
    await house.broker.create_topic(internal, "__mine", 1)

    assert (await produce(internal, "__mine", RECORDS)).error_code == 0


async def test_only_full_instances_are_listed(full: House) -> None:
    storage = full.broker.broker.storage

    assert storage.full_instances() == [MINE]
    assert not storage.is_full(THEIRS)
    assert storage.refused_count >= 1


async def test_nobody_reports_for_a_broker_in_the_name_of_an_instance(house: House) -> None:
    """Otherwise a tenant could report other instances as full, or its own as empty."""
    owner = await house.broker.internal_client(MINE)
    answer = await owner.call(ApiKey.ALLOT_STORAGE, 0, AllotStorageRequest(broker_id=1, lines=[]))
    assert (answer.error_code, answer.changes) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])
    await house.mine.send(ApiKey.ALLOT_STORAGE, 0, AllotStorageRequest(broker_id=1, lines=[]))
    assert await house.mine.is_closed()
