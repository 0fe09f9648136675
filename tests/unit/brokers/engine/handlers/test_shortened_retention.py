"""Early retention: a full instance with this setting goes on, and loses its oldest records (decision 114)."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from brokers.contract.documents import SHRINK_RETENTION, InstanceSettings
from brokers.engine.assembly import storage_shortening
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.records.builder import Record, build_batch
from tests.testkit.records import batch, fetch, produce
from tests.testkit.small_segments import SMALL_SEGMENTS
from tests.unit.brokers.engine.handlers.conftest import MINE, House

BOUGHT = 4_000_000
OLD = batch(b"x" * 20_000)
FULL = int(ErrorCode.POLICY_VIOLATION)
ASKED = int(ErrorCode.REQUEST_TIMED_OUT)
SEGMENTS_OF_100_KB = {"segment.bytes": "100000", "retention.ms": "-1"}


@pytest.fixture
def overrides() -> dict[str, str]:
    return SMALL_SEGMENTS


@pytest.fixture(autouse=True)
def shortened_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs the deletion ten times a second, and counts new leaders at once, since there is one broker."""
    monkeypatch.setattr(storage_shortening, "SHORTEN_INTERVAL_S", 0.1)
    monkeypatch.setattr(storage_shortening, "LEADER_CHANGE_PAUSE_MS", 0)


def recent() -> bytes:
    return bytes(build_batch([Record(time.time_ns() // 1_000_000, None, b"x" * 20_000)]))


async def write(house: House, size_bytes: int, topic: str = "orders", records: bytes = OLD) -> int:
    """Produces this number of bytes, with retries; returns the first other error code."""
    written = 0
    async with asyncio.timeout(60):
        while written < size_bytes:
            code = (await produce(house.mine, topic, records)).error_code
            if code == ASKED:
                await asyncio.sleep(0.02)
            elif code:
                return int(code)
            else:
                written += len(records)
    return 0


def stored_bytes(house: House) -> int:
    return house.broker.broker.storage.use.measure_now(MINE)


def start_of(house: House, topic: str = "orders") -> int:
    partition = house.broker.broker.table.get(f"{MINE}.{topic}", 0)
    assert partition is not None
    return partition.log_start_offset


async def choose(house: House, minutes: int = 1, **changes: Any) -> None:
    settings = InstanceSettings(storage_when_full=SHRINK_RETENTION, storage_retention_minutes_min=minutes)
    await house.broker.update_instance(MINE, settings=settings, **{"capacity_bytes": BOUGHT, **changes})


@pytest.fixture
async def shrinking(shortened_often: None, house: House) -> House:
    await choose(house)
    return house


async def test_oldest_records_go_and_nothing_is_refused(shrinking: House) -> None:
    await shrinking.topic(**SEGMENTS_OF_100_KB)

    assert await write(shrinking, 2 * BOUGHT) == 0

    assert stored_bytes(shrinking) <= BOUGHT * 1.02
    assert start_of(shrinking) > 0
    assert (await fetch(shrinking.mine, "orders")).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (await fetch(shrinking.mine, "orders", start_of(shrinking))).records
    shown = shrinking.broker.broker.shortening.recent_deletions()[MINE]
    assert [name for name, _ in shown["topics"]] == ["orders"]


async def test_segment_that_alone_fills_the_instance_is_closed_in_time(house: House) -> None:
    bought = 24_000_000
    await choose(house, capacity_bytes=bought)
    await house.topic(**{"retention.ms": "-1"})

    assert await write(house, bought * 3 // 2, records=batch(b"x" * 200_000)) == 0
    assert stored_bytes(house) <= bought * 1.02


async def test_records_younger_than_the_floor_stay_and_produce_is_refused(shrinking: House) -> None:
    await shrinking.topic(**SEGMENTS_OF_100_KB)

    assert await write(shrinking, 2 * BOUGHT, records=recent()) == FULL
    assert start_of(shrinking) == 0


async def test_oldest_over_all_topics_go_first(shrinking: House) -> None:
    await shrinking.topic("old", **SEGMENTS_OF_100_KB)
    await shrinking.topic("new", **SEGMENTS_OF_100_KB)
    assert await write(shrinking, BOUGHT // 4, "old") == 0

    assert await write(shrinking, BOUGHT * 3 // 4 - BOUGHT // 50, "new", recent()) == 0
    await shrinking.broker.until(lambda: start_of(shrinking, "old") > 0)

    assert start_of(shrinking, "new") == 0


async def test_topic_that_is_only_compacted_is_left_alone(shrinking: House) -> None:
    await shrinking.topic("state", **{**SEGMENTS_OF_100_KB, "cleanup.policy": "compact"})
    keyed = bytes(build_batch([Record(1_600_000_000_000, b"key", b"x" * 20_000)]))

    assert await write(shrinking, 2 * BOUGHT, "state", keyed) == FULL
    assert start_of(shrinking, "state") == 0


async def test_nothing_goes_while_there_is_room(shrinking: House) -> None:
    await shrinking.topic(**SEGMENTS_OF_100_KB)

    assert await write(shrinking, BOUGHT * 8 // 10) == 0
    for _round in range(3):
        await shrinking.broker.broker.shortening.run_once()

    assert start_of(shrinking) == 0
    assert not shrinking.broker.broker.shortening.recent_deletions()


async def test_instance_that_chose_nothing_is_stopped(house: House) -> None:
    await house.broker.update_instance(MINE, capacity_bytes=BOUGHT)
    await house.topic(**SEGMENTS_OF_100_KB)

    assert await write(house, 2 * BOUGHT) == FULL
    assert start_of(house) == 0


async def test_choice_that_is_taken_back_stops_the_deletions(shrinking: House) -> None:
    await shrinking.topic(**SEGMENTS_OF_100_KB)
    assert await write(shrinking, BOUGHT * 3 // 2) == 0
    await shrinking.broker.update_instance(MINE, settings=InstanceSettings())
    start_offset = start_of(shrinking)

    assert await write(shrinking, BOUGHT) == FULL
    assert start_of(shrinking) == start_offset


async def test_nothing_goes_while_it_is_not_known_who_counts_what(
    shrinking: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage_shortening, "LEADER_CHANGE_PAUSE_MS", 3_600_000)
    await shrinking.topic(**SEGMENTS_OF_100_KB)
    codes = set()
    async with asyncio.timeout(30):
        while stored_bytes(shrinking) < BOUGHT:
            codes.add((await produce(shrinking.mine, "orders", OLD)).error_code)
            await asyncio.sleep(0)
    for _round in range(5):
        await shrinking.broker.broker.shortening.run_once()
        codes.add((await produce(shrinking.mine, "orders", OLD)).error_code)

    assert start_of(shrinking) == 0
    assert codes == {0, ASKED}
