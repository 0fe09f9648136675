"""Produce and Fetch over a real socket: versions, errors, long polls, sizes (REP-12, WIRE-27…31, IDE-6)."""

from __future__ import annotations

import pytest

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.records.batch import CONTROL, TRANSACTIONAL
from tests.testkit.records import batch, fetch, fetch_request, produce, produce_request, values
from tests.testkit.small_segments import SMALL_SEGMENTS
from tests.unit.brokers.engine.handlers.conftest import House


@pytest.mark.parametrize("version", range(3, 12))
async def test_every_produce_version_appends_and_answers(house: House, version: int) -> None:
    await house.topic()

    first = await produce(house.mine, "orders", batch(b"a", b"b"), version=version)
    second = await produce(house.mine, "orders", batch(b"c"), version=version, acks=-1)

    assert (first.error_code, first.base_offset) == (0, 0)
    assert (second.error_code, second.base_offset) == (0, 2)


@pytest.mark.parametrize("version", range(4, 18))
async def test_every_fetch_version_brings_the_bytes_back(house: House, version: int) -> None:
    topic_id = await house.topic()
    await produce(house.mine, "orders", batch(b"a", b"b"))

    answer = await fetch(house.mine, "orders", version=version, topic_id=topic_id)

    assert values(answer.records) == [b"a", b"b"]
    assert answer.high_watermark == 2


async def test_acks_zero_is_never_answered_and_the_next_request_is(house: House) -> None:
    await house.topic()

    await house.mine.send(ApiKey.PRODUCE, 9, produce_request("orders", batch(b"a"), acks=0))
    answer = await fetch(house.mine, "orders")

    assert values(answer.records) == [b"a"]


async def test_a_failed_append_with_acks_zero_ends_the_connection(house: House) -> None:
    await house.mine.send(ApiKey.PRODUCE, 9, produce_request("nowhere", batch(b"a"), acks=0))

    assert await house.mine.is_closed()


@pytest.mark.parametrize(
    ("records", "acks", "code"),
    [
        (None, 1, ErrorCode.INVALID_RECORD),
        (batch(b"a"), 2, ErrorCode.INVALID_REQUIRED_ACKS),
        (b"\x00" * 80, 1, ErrorCode.CORRUPT_MESSAGE),
        (
            batch(b"a", attributes=TRANSACTIONAL, producer_id=7, producer_epoch=0, base_sequence=0),
            1,
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ),
    ],
)
async def test_wrong_produces_get_their_code_and_change_nothing(
    house: House, records: bytes | None, acks: int, code: ErrorCode
) -> None:
    """REC-40, REC-42, REC-44, REC-48."""
    await house.topic()

    answer = await produce(house.mine, "orders", records, acks=acks)

    assert answer.error_code == code
    assert (await fetch(house.mine, "orders")).high_watermark == 0


async def test_a_batch_of_a_transaction_that_nobody_names_refuses_the_whole_request(house: House) -> None:
    """Valid batches are not appended either, wherever they are in the request (REC-44)."""
    await house.topic()
    await house.topic("clicks")
    without_transactional_id = batch(b"b", attributes=TRANSACTIONAL, producer_id=7, producer_epoch=0, base_sequence=0)
    request = produce_request("orders", batch(b"a"))
    request.topic_data += produce_request("clicks", without_transactional_id).topic_data

    answer = await house.mine.call(ApiKey.PRODUCE, 9, request)

    codes = [topic.partition_responses[0].error_code for topic in answer.responses]
    assert codes == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2
    assert (await fetch(house.mine, "orders")).high_watermark == 0


@pytest.mark.parametrize(
    ("records", "acks"),
    [
        (batch(b"a", attributes=TRANSACTIONAL | CONTROL, producer_id=7, producer_epoch=0, base_sequence=0), 1),
        (batch(b"a", attributes=TRANSACTIONAL, producer_id=7, producer_epoch=0, base_sequence=0)[:-1] + b"?", 1),
        (batch(b"a", attributes=TRANSACTIONAL, producer_id=7, producer_epoch=0, base_sequence=0), 2),
    ],
    ids=["a marker", "a wrong checksum", "wrong acks"],
)
async def test_a_missing_transactional_id_is_reported_before_other_errors(
    house: House, records: bytes, acks: int
) -> None:
    """REC-44."""
    await house.topic()

    answer = await produce(house.mine, "orders", records, acks=acks)

    assert (answer.error_code, answer.log_start_offset) == (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1)
    assert (await fetch(house.mine, "orders")).high_watermark == 0


async def test_an_exact_repeat_is_answered_with_its_first_offset_and_stored_once(house: House) -> None:
    await house.topic()
    repeated = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}

    first = await produce(house.mine, "orders", batch(b"a", **repeated), acks=-1)
    again = await produce(house.mine, "orders", batch(b"a", **repeated), acks=-1)

    assert (first.base_offset, again.error_code, again.base_offset) == (0, 0, 0)
    assert (await fetch(house.mine, "orders")).high_watermark == 1


async def test_a_foreign_topic_and_none_at_all_get_the_same_bytes(house: House) -> None:
    """CKA-10."""
    await house.broker.create_topic(house.theirs, "secret")

    async def answer(name: str) -> tuple[bytes, bytes]:
        client = await house.broker.client(house.my_port)
        await client.send(ApiKey.PRODUCE, 9, produce_request(name, batch(b"a")))
        produced = await client.receive_frame()
        await client.send(ApiKey.FETCH, 12, fetch_request(name))
        return produced.replace(name.encode(), b"?"), (await client.receive_frame()).replace(name.encode(), b"?")

    assert await answer("secret") == await answer("nobody")


async def test_a_foreign_topic_id_is_unknown(house: House) -> None:
    """CKA-19."""
    foreign = await house.broker.create_topic(house.theirs, "secret")

    answer = await fetch(house.mine, "", version=13, topic_id=foreign)

    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_a_fetch_waits_for_the_next_append(house: House) -> None:
    await house.topic()
    other = await house.broker.client(house.my_port)
    await other.send(ApiKey.FETCH, 12, fetch_request("orders", max_wait_ms=60_000))

    await produce(house.mine, "orders", batch(b"a"))
    answer = await other.receive(ApiKey.FETCH, 12)

    assert values(answer.responses[0].partitions[0].records) == [b"a"]


async def test_a_fetch_waits_until_there_are_enough_bytes(house: House) -> None:
    await house.topic()
    other = await house.broker.client(house.my_port)
    item = batch(b"a" * 100)
    await other.send(ApiKey.FETCH, 12, fetch_request("orders", max_wait_ms=60_000, min_bytes=3 * len(item)))

    for _ in range(3):
        await produce(house.mine, "orders", item)
    answer = await other.receive(ApiKey.FETCH, 12)

    assert len(answer.responses[0].partitions[0].records) == 3 * len(item)


LARGE = batch(b"a" * 1_000)
HOUR_MS = 3_600_000


@pytest.mark.parametrize("overrides", [SMALL_SEGMENTS])
@pytest.mark.parametrize("version", [2, 12])
async def test_a_fetch_does_not_wait_for_bytes_that_lie_in_the_next_segment(house: House, version: int) -> None:
    """A response ends with a segment, but the next segment's bytes are readable (WIRE-27)."""
    rolled_bytes = 16_384
    await house.topic(segment_bytes=str(rolled_bytes))
    for _ in range(3):
        await produce(house.mine, "orders", batch(b"a" * (rolled_bytes - 1_000)))

    answer = await fetch(house.mine, "orders", version=version, max_wait_ms=HOUR_MS, min_bytes=2 * rolled_bytes)

    assert answer.records


@pytest.mark.parametrize("version", [2, 12])
async def test_a_fetch_does_not_wait_for_bytes_that_its_answer_has_no_room_for(house: House, version: int) -> None:
    """Responses end between batches, so more bytes may be readable than one response holds (WIRE-27)."""
    await house.topic()
    for _ in range(3):
        await produce(house.mine, "orders", LARGE)

    limits = {"min_bytes": 1_500, "partition_max_bytes": 1_500}
    answer = await fetch(house.mine, "orders", version=version, max_wait_ms=HOUR_MS, **limits)

    assert answer.records


async def test_a_fetch_does_not_wait_for_bytes_that_lie_in_several_partitions(house: House) -> None:
    """The second batch is readable, and does not fit beside the first one (WIRE-27)."""
    await house.topic(partitions=2)
    for index in range(2):
        await produce(house.mine, "orders", LARGE, partition=index)
    request = fetch_request("orders", max_wait_ms=HOUR_MS, min_bytes=1_500, max_bytes=1_500)
    request.topics[0].partitions.append(fetch_request("orders", partition=1).topics[0].partitions[0])

    answer = await house.mine.call(ApiKey.FETCH, 12, request)

    assert [bool(partition.records) for partition in answer.responses[0].partitions] == [True, False]


async def test_a_fetch_still_waits_for_what_is_not_there(house: House) -> None:
    await house.topic(partitions=2)
    other = await house.broker.client(house.my_port)
    await produce(house.mine, "orders", LARGE)
    request = fetch_request("orders", max_wait_ms=HOUR_MS, min_bytes=2_000)
    request.topics[0].partitions.append(fetch_request("orders", partition=1).topics[0].partitions[0])
    await other.send(ApiKey.FETCH, 12, request)

    await produce(house.mine, "orders", LARGE, partition=1)
    answer = await other.receive(ApiKey.FETCH, 12)

    assert [len(partition.records) for partition in answer.responses[0].partitions] == [len(LARGE)] * 2


async def test_a_fetch_gives_up_when_its_time_is_over(house: House) -> None:
    await house.topic()

    answer = await fetch(house.mine, "orders", max_wait_ms=20)

    assert (answer.error_code, answer.records or b"") == (0, b"")


async def test_a_deleted_topic_ends_the_wait(house: House) -> None:
    from brokers.engine.protocol.messages.topics import DeleteTopicsRequest

    await house.topic()
    other = await house.broker.client(house.my_port)
    await other.send(ApiKey.FETCH, 12, fetch_request("orders", max_wait_ms=60_000))

    await house.mine.call(
        ApiKey.DELETE_TOPICS, 5, DeleteTopicsRequest(topics=[], topic_names=["orders"], timeout_ms=5_000)
    )
    answer = await other.receive(ApiKey.FETCH, 12)

    assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_an_offset_out_of_range_does_not_wait(house: House) -> None:
    await house.topic()

    answer = await fetch(house.mine, "orders", 99, max_wait_ms=60_000)

    assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_the_first_batch_comes_whole_however_small_the_limits(house: House) -> None:
    """WIRE-28."""
    await house.topic()
    for value in (b"a" * 5_000, b"b" * 5_000):
        await produce(house.mine, "orders", batch(value))

    answer = await fetch(house.mine, "orders", max_bytes=1, partition_max_bytes=1)

    assert values(answer.records) == [b"a" * 5_000]


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"isolation": 7}, ErrorCode.UNKNOWN_SERVER_ERROR),
        ({"replica_id": 2}, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        ({"session_id": 9, "session_epoch": 1}, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        ({"session_id": 0, "session_epoch": 3}, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
    ],
)
async def test_a_fetch_that_cannot_be_is_refused_as_a_whole(
    house: House, asked: dict[str, int], code: ErrorCode
) -> None:
    await house.topic()

    answer = await house.mine.call(ApiKey.FETCH, 12, fetch_request("orders", **asked))

    assert answer.error_code == code


@pytest.mark.parametrize("session_id", [-1, 0, 9])
@pytest.mark.parametrize("session_epoch", [0, -1])
async def test_a_full_fetch_is_answered_whatever_session_it_names(
    house: House, session_id: int, session_epoch: int
) -> None:
    """Such a request closes the session, if there is one (WIRE-30). The Go client kafka-go sends -1 and -1."""
    await house.topic()
    await produce(house.mine, "orders", batch(b"a"))

    request = fetch_request("orders", session_id=session_id, session_epoch=session_epoch)
    answer = await house.mine.call(ApiKey.FETCH, 12, request)

    assert (answer.error_code, answer.session_id) == (0, 0)
    assert values(answer.responses[0].partitions[0].records) == [b"a"]


async def test_a_client_that_asks_for_a_session_gets_none_and_all_of_the_data(house: House) -> None:
    await house.topic()
    await produce(house.mine, "orders", batch(b"a"))

    answer = await house.mine.call(ApiKey.FETCH, 12, fetch_request("orders", session_epoch=0))

    assert answer.session_id == 0
    assert values(answer.responses[0].partitions[0].records) == [b"a"]


async def test_large_batches_travel_both_ways_unchanged(house: House) -> None:
    await house.topic(max_message_bytes="9000000")
    sent = batch(*(bytes([value]) * 500_000 for value in range(10)))

    await produce(house.mine, "orders", sent)
    answer = await fetch(house.mine, "orders", partition_max_bytes=10_000_000)

    assert answer.records[61:] == sent[61:]


async def test_two_instances_with_one_topic_name_never_meet(house: House) -> None:
    """CKA-20."""
    await house.topic()
    await house.broker.create_topic(house.theirs, "orders")
    await produce(house.mine, "orders", batch(b"mine"))
    await produce(house.theirs, "orders", batch(b"theirs"))

    assert values((await fetch(house.mine, "orders")).records) == [b"mine"]
    assert values((await fetch(house.theirs, "orders")).records) == [b"theirs"]


async def test_a_frozen_instance_is_read_only_and_says_so(house: House) -> None:
    """CKA-14."""
    await house.topic()
    await produce(house.mine, "orders", batch(b"a"))
    await house.broker.update_instance("ins-aaaaaaaa", state="frozen")

    refused = await produce(house.mine, "orders", batch(b"b"))

    assert refused.error_code == ErrorCode.POLICY_VIOLATION
    assert values((await fetch(house.mine, "orders")).records) == [b"a"]
    (entry,) = house.broker.broker.services.accounting.accountings.get_or_create("ins-aaaaaaaa").ledger.as_json(0)
    assert (entry["rule"]["kind"], entry["count"]) == ("frozen", 1)  # type: ignore[index]
