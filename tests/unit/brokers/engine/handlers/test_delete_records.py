"""DeleteRecords: deleted records are unreadable at once and stay deleted after a crash (LOG-46)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from brokers.engine.partitions import offset_files
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.topics import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from brokers.engine.storage import checkpoints
from brokers.engine.storage.files import StorageFailed
from tests.testkit.records import batch, fetch, produce
from tests.testkit.wire import WireClient
from tests.unit.brokers.engine.handlers.conftest import MINE, House


async def delete(client: WireClient, offset: int, name: str = "orders", index: int = 0, version: int = 2) -> Any:
    """Returns the result of the one partition in the request."""
    partition = DeleteRecordsPartition(partition_index=index, offset=offset)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=name, partitions=[partition])], timeout_ms=1_000)
    (topic,) = (await client.call(ApiKey.DELETE_RECORDS, version, request)).topics
    assert topic.name == name
    (answer,) = topic.partitions
    assert answer.partition_index == index
    return answer


def starts_on_disk(house: House) -> dict[tuple[str, int], int]:
    root = house.broker.config.data_dirs[0]
    return checkpoints.read_offsets(root / checkpoints.LOG_START_OFFSETS, root)


async def orders_of_four(house: House, **config: str) -> None:
    await house.topic(**config)
    for value in (b"a", b"b", b"c", b"d"):
        await produce(house.mine, "orders", batch(value))


@pytest.mark.parametrize("version", range(3))
async def test_records_below_the_offset_are_gone_at_once(house: House, version: int) -> None:
    await orders_of_four(house)

    answer = await delete(house.mine, 3, version=version)

    assert (answer.error_code, answer.low_watermark) == (0, 3)
    assert (await fetch(house.mine, "orders", offset=2)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (await fetch(house.mine, "orders", offset=3)).log_start_offset == 3


async def test_minus_one_deletes_all_that_is_acknowledged(house: House) -> None:
    await orders_of_four(house)

    assert (await delete(house.mine, -1)).low_watermark == 4
    assert (await produce(house.mine, "orders", batch(b"e"))).base_offset == 4


async def test_an_offset_already_deleted_is_answered_with_what_is_left(house: House) -> None:
    await orders_of_four(house)
    await delete(house.mine, 3)

    answer = await delete(house.mine, 1)

    assert (answer.error_code, answer.low_watermark) == (0, 3)


@pytest.mark.parametrize("offset", [5, -2, 1 << 40])
async def test_an_offset_beyond_the_records_is_out_of_range(house: House, offset: int) -> None:
    await orders_of_four(house)

    answer = await delete(house.mine, offset)

    assert (answer.error_code, answer.low_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)


async def test_records_that_are_only_compacted_are_refused_and_others_are_not(house: House) -> None:
    await orders_of_four(house)
    for name, policy in (("compacted", "compact"), ("both", "compact,delete")):
        await house.topic(name, cleanup_policy=policy)

    assert (await delete(house.mine, 0, "compacted")).error_code == ErrorCode.POLICY_VIOLATION
    assert (await delete(house.mine, 0, "both")).error_code == 0


async def test_topics_and_partitions_of_others_or_of_nobody_are_unknown(house: House) -> None:
    await house.topic()
    await house.broker.create_topic(house.theirs, "secret")

    for name, index in (("secret", 0), ("nothing", 0), ("orders", 1), ("orders", -1), ("__usage", 0), ("", 0)):
        answer = await delete(house.mine, 0, name, index)
        assert (answer.error_code, answer.low_watermark) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1), name


async def test_a_frozen_instance_may_make_room(house: House) -> None:
    await orders_of_four(house)
    await house.broker.update_instance(MINE, state="frozen")

    assert (await delete(house.mine, 4)).error_code == 0


async def test_the_answer_goes_out_when_the_start_is_on_disk(house: House) -> None:
    await orders_of_four(house)

    await delete(house.mine, 2)

    assert starts_on_disk(house) == {(f"{MINE}.orders", 0): 2}


async def test_many_at_once_share_few_writes_and_all_are_kept(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    await house.topic(partitions=20)
    for index in range(20):
        await produce(house.mine, "orders", batch(b"a"), partition=index)
    clients = [await house.broker.client(house.my_port) for _ in range(20)]
    table = house.broker.broker.table
    writes = 0
    plan = table.flusher.plan_start_offsets

    def counted(roots: Any) -> Any:
        nonlocal writes
        writes += 1
        return plan(roots)

    monkeypatch.setattr(table.flusher, "plan_start_offsets", counted)
    answers = await asyncio.gather(*(delete(client, 1, index=index) for index, client in enumerate(clients)))

    assert {answer.error_code for answer in answers} == {0}
    assert starts_on_disk(house) == {(f"{MINE}.orders", index): 1 for index in range(20)}
    assert 1 <= writes < 20


async def test_a_start_that_cannot_be_kept_is_a_failed_disk(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    await orders_of_four(house)

    def full(path: Path, _content: bytes, root: Path, *, durable: bool = True) -> None:
        raise StorageFailed(root, OSError(28, f"no space for {path.name}"))

    monkeypatch.setattr(offset_files, "write_atomically", full)
    answer = await delete(house.mine, 2)
    later = await produce(house.mine, "orders", batch(b"e"))

    assert (answer.error_code, answer.low_watermark) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    assert later.error_code == ErrorCode.KAFKA_STORAGE_ERROR


async def test_the_clusters_own_records_are_refused_to_its_own_identity(house: House) -> None:
    client = await house.broker.internal_client("penstock")
    await house.broker.create_topic(client, "__accounts")

    assert (await delete(client, 0, "__accounts")).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
