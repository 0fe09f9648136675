"""Memory for large frames: shared by all instances, hoarded by none, and nobody waits for what is free."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from socket import socket
from struct import pack
from unittest.mock import create_autospec

from brokers.engine.network.buffers import (
    FREED_AT_ONCE_BYTES_MAX,
    RECEIVED_AT_ONCE_BYTES_MAX,
    RENTED_BYTES_MIN,
    FrameBuffers,
    LargeFrame,
)
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.codec import encode_request
from brokers.engine.protocol.headers import encode_request_frame
from brokers.engine.protocol.messages.metadata import MetadataRequest
from tests.testkit.in_process import InProcessBroker
from tests.testkit.records import batch, produce_request

MINE, THEIRS = "ins-aaaaaaaa", "ins-bbbbbbbb"
UNIT = RENTED_BYTES_MIN


class Waiting:
    def __init__(self) -> None:
        self.sent = 0

    def on_memory(self) -> None:
        self.sent += 1


def test_one_owner_leaves_as_much_free_as_it_holds() -> None:
    buffers = FrameBuffers(8 * UNIT)

    hoarded = [buffers.rent(UNIT, "hostile") for _ in range(5)]

    assert [result is not None for result in hoarded] == [True] * 4 + [False]
    assert buffers.rent(UNIT, "honest") is not None
    assert FrameBuffers(UNIT).rent(100 * UNIT, "alone") is not None


def test_who_can_have_nothing_yet_keeps_nobody_of_another_owner_waiting() -> None:
    buffers = FrameBuffers(8 * UNIT)
    held = [buffers.rent(UNIT, "hostile") for _ in range(4)]
    other = buffers.rent(UNIT * 2, "other")
    assert other is not None
    hostile, honest = Waiting(), [Waiting() for _ in range(2)]
    buffers.wait(UNIT, "hostile", hostile)
    for waiter in honest:
        buffers.wait(UNIT, "honest", waiter)

    buffers.give_back(other, "other")

    assert [hostile.sent, *(waiter.sent for waiter in honest)] == [0, 1, 1]
    for buffer in held:
        assert buffer is not None
        buffers.give_back(buffer, "hostile")
    assert (hostile.sent, buffers.rented_bytes) == (1, 0)


def test_who_went_away_is_not_told_in_the_place_of_somebody_who_waits() -> None:
    buffers = FrameBuffers(2 * UNIT)
    held = buffers.rent(2 * UNIT, "a")
    assert held is not None
    gone, there = Waiting(), Waiting()
    buffers.wait(UNIT, "b", gone)
    buffers.wait(2 * UNIT, "b", there)

    buffers.forget("b", gone)
    buffers.give_back(held, "a")

    assert (gone.sent, there.sent) == (0, 1)


def test_a_large_buffer_is_freed_in_turns_and_its_owner_has_it_until_then() -> None:
    later: list[Callable[[], None]] = []
    buffers = FrameBuffers(soon=later.append)
    size_bytes = 2 * FREED_AT_ONCE_BYTES_MAX + UNIT + 1
    held = [buffers.rent(size_bytes, owner) for owner in (MINE, THEIRS)]
    for buffer, owner in zip(held, (MINE, THEIRS), strict=True):
        assert buffer is not None
        buffer.view[:] = b"x" * size_bytes
        buffers.give_back(buffer, owner)
    waiter = Waiting()
    buffers.wait(size_bytes + 2 * FREED_AT_ONCE_BYTES_MAX, MINE, waiter)

    left = []
    while later:
        assert len(later) == 1
        later.pop()()
        left.append((buffers.rented_bytes, waiter.sent))

    freed = FREED_AT_ONCE_BYTES_MAX
    rest = size_bytes - 2 * freed
    expected = [2 * size_bytes - freed, size_bytes + rest, size_bytes, size_bytes - freed, rest, 0]
    assert left == [(rented_bytes, number >= 2) for number, rented_bytes in enumerate(expected)]


def test_no_more_of_a_large_frame_is_received_at_once_than_takes_a_short_turn() -> None:
    sock = create_autospec(socket, instance=True)
    sock.recv_into.side_effect = len
    buffer = FrameBuffers().rent(2 * RECEIVED_AT_ONCE_BYTES_MAX, MINE)
    assert buffer is not None
    frame = LargeFrame(buffer, 2 * RECEIVED_AT_ONCE_BYTES_MAX, memoryview(b""))

    assert [frame.receive(sock) for _ in range(2)] == [False, True]
    assert [len(call.args[0]) for call in sock.recv_into.call_args_list] == [RECEIVED_AT_ONCE_BYTES_MAX] * 2


async def test_frames_that_never_come_keep_other_instances_from_nothing(tmp_path: Path) -> None:
    async with InProcessBroker(tmp_path) as broker:
        ports = [await broker.create_instance(instance_id) for instance_id in (MINE, THEIRS)]
        broker.broker.listeners.buffers = buffers = FrameBuffers(8 * UNIT)
        hostile = [await broker.client(ports[1]) for _ in range(10)]
        for client in hostile:
            await client.send_raw(pack(">i", UNIT) + b"\x00\x00")
        await broker.until(lambda: buffers.rented_bytes == 4 * UNIT)
        mine = await broker.client(ports[0])
        await broker.create_topic(mine, "orders")

        large = produce_request("orders", batch(b"x" * 100_000))
        assert (await mine.call(ApiKey.PRODUCE, 9, large)).responses[0].partition_responses[0].error_code == 0

        for client in hostile:
            await client.close()
        await broker.until(lambda: not buffers.rented_bytes and not buffers._waiting)


async def test_what_was_answered_before_a_large_frame_had_to_wait_is_sent(tmp_path: Path) -> None:
    async with InProcessBroker(tmp_path) as broker:
        port = await broker.create_instance(MINE)
        broker.broker.listeners.buffers = buffers = FrameBuffers(2 * UNIT)
        held = buffers.rent(2 * UNIT, "somebody")
        assert held is not None
        client = await broker.client(port)
        everything = encode_request(ApiKey.METADATA, 12, MetadataRequest(topics=None))
        asked = encode_request_frame(ApiKey.METADATA, 12, 1, None, everything)

        await client.send_raw(asked + pack(">i", UNIT) + asked[4:])

        assert (await client.receive(ApiKey.METADATA, 12)).topics == []
        assert buffers._waiting
        buffers.give_back(held, "somebody")
        await broker.until(lambda: buffers.rented_bytes == UNIT)
