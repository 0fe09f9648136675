"""Memory for large frames: shared by all instances, exhausted by none, and no connection waits while some is free."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from socket import socket
from struct import pack
from unittest.mock import create_autospec

import pytest

from brokers.engine.network import closing
from brokers.engine.network.buffers import (
    FREED_AT_ONCE_BYTES_MAX,
    RECEIVED_AT_ONCE_BYTES_MAX,
    RENTED_BYTES_MAX,
    RENTED_BYTES_MIN,
    RENTED_BYTES_PER_OWNER_MAX,
    RENTED_BYTES_PER_OWNER_MIN,
    FrameBuffers,
    LargeFrame,
    RentedBuffer,
    UnreadBytes,
)
from brokers.engine.network.closing import find_slowest_senders
from brokers.engine.network.inbound_frames import InboundFrames
from brokers.engine.network.interfaces import OwnedConnection
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.codec import encode_request
from brokers.engine.protocol.headers import encode_request_frame
from brokers.engine.protocol.messages.metadata import MetadataRequest
from tests.testkit.in_process import InProcessBroker
from tests.testkit.records import batch, produce_request

MINE, THEIRS = "ins-aaaaaaaa", "ins-bbbbbbbb"
UNIT, MIB = RENTED_BYTES_MIN, 1_048_576


class Waiting:
    def __init__(self) -> None:
        self.sent = 0

    def on_memory(self) -> None:
        self.sent += 1


def short(units: int) -> FrameBuffers:
    """Returns buffers without a minimum for each owner."""
    return FrameBuffers(units * UNIT, owner_bytes_min=0)


def rented(buffers: FrameBuffers, size: int, owner: str) -> RentedBuffer:
    """Returns a buffer that is filled to its end."""
    buffer = buffers.rent(size, owner)
    assert buffer is not None
    assert buffers.has_room(buffer, size, owner)
    buffers.charge_received(buffer, size, owner)
    return buffer


def test_one_owner_leaves_as_much_free_as_it_has() -> None:
    buffers = short(8)

    hoarded = [buffers.rent(UNIT, "hostile") for _ in range(5)]

    assert [result is not None for result in hoarded] == [True] * 4 + [False]
    assert buffers.rent(UNIT, "honest") is not None
    rented(short(1), 100 * UNIT, "alone")


@pytest.mark.parametrize("announced_bytes", [UNIT, 1_000_000, 100_000_000])
def test_an_announced_frame_that_does_not_arrive_takes_no_memory(announced_bytes: int) -> None:
    buffers = FrameBuffers()
    for number in range(15):
        buffer = buffers.rent(announced_bytes, f"hostile-{number}")
        assert buffer is not None
        buffers.charge_received(buffer, 70_000, f"hostile-{number}")
    assert buffers.rented_bytes == 15 * UNIT
    for size_bytes in (200_000, 1_000_000, 100_000_000):
        rented(buffers, size_bytes, f"honest {size_bytes}")


def test_each_owner_has_room_for_the_largest_message_whatever_others_have() -> None:
    buffers = FrameBuffers()
    for number in range(40):
        buffers.charge(RENTED_BYTES_MAX // 40, f"hostile-{number}")
    for number in range(20):
        rented(buffers, 1_100_000, f"honest-{number}")
    assert buffers.rent(UNIT, "hostile-1") is None


def test_an_owner_that_can_have_nothing_yet_keeps_no_other_owner_waiting() -> None:
    buffers = short(8)
    held = [rented(buffers, UNIT, "hostile") for _ in range(4)]
    other = rented(buffers, UNIT * 2, "other")
    hostile, honest = Waiting(), [Waiting() for _ in range(2)]
    buffers.await_memory("hostile", hostile)
    for waiter in honest:
        buffers.await_memory("honest", waiter)

    buffers.return_buffer(other, "other")

    assert [hostile.sent, *(waiter.sent for waiter in honest)] == [0, 1, 1]
    for buffer in held:
        buffers.return_buffer(buffer, "hostile")
    assert (hostile.sent, buffers.rented_bytes) == (1, 0)


def test_a_waiter_that_went_away_is_not_woken_in_the_place_of_another() -> None:
    buffers = short(2)
    held = rented(buffers, 2 * UNIT, "a")
    gone, there = Waiting(), Waiting()
    buffers.await_memory("b", gone)
    buffers.await_memory("b", there)

    buffers.cancel_wait("b", gone)
    buffers.return_buffer(held, "a")

    assert (gone.sent, there.sent) == (0, 1)


def test_a_frame_that_finds_no_room_waits_and_goes_on_when_there_is() -> None:
    buffers = short(8)
    others = [rented(buffers, UNIT, owner) for owner in "abcd"]
    first, second = buffers.rent(10 * UNIT, "e"), buffers.rent(10 * UNIT, "f")
    assert first is not None
    assert second is not None
    assert buffers.has_room(first, 3 * UNIT, "e"), "one may pass the bound"
    assert not buffers.has_room(second, 3 * UNIT, "f")
    waiter = Waiting()
    buffers.await_memory("f", waiter, second, 3 * UNIT)
    for buffer, owner in zip(others, "abcd", strict=True):
        buffers.return_buffer(buffer, owner)
    assert waiter.sent == 1


@pytest.mark.parametrize("owners", [1, 2, 10, 40])
def test_frames_that_are_all_half_received_come_to_their_end(owners: int) -> None:
    """Each client sends as long as its connection is read, some MiB at a time; none gives up."""
    size_bytes, buffers = 30 * MIB, FrameBuffers(64 * MIB)
    waiting: dict[int, Waiting] = {}
    frames: dict[int, tuple[str, RentedBuffer, int]] = {}
    for number in range(2 * owners):
        owner = f"owner-{number % owners}"
        buffer = buffers.rent(size_bytes, owner)
        assert buffer is not None
        frames[number] = owner, buffer, 0
    most = rounds = 0
    while frames:
        rounds += 1
        assert rounds < 10_000, "nobody comes to an end"
        for number, (owner, buffer, filled) in list(frames.items()):
            if number in waiting and not waiting[number].sent:
                continue
            waiting.pop(number, None)
            end = min(size_bytes, filled + RECEIVED_AT_ONCE_BYTES_MAX)
            if not buffers.has_room(buffer, end, owner):
                waiting[number] = Waiting()
                buffers.await_memory(owner, waiting[number], buffer, end)
                continue
            buffers.charge_received(buffer, end, owner)
            frames[number] = owner, buffer, end
            most = max(most, buffers.rented_bytes)
            if end == size_bytes:
                del frames[number]
                buffers.return_buffer(buffer, owner)
    assert most <= 64 * MIB + size_bytes + owners * RENTED_BYTES_PER_OWNER_MIN
    assert buffers.rented_bytes == 0
    assert not buffers.is_short


def test_frames_of_one_owner_are_limited_and_its_oldest_is_received_whole() -> None:
    buffers = FrameBuffers()
    frames = [buffers.rent(100 * MIB, MINE) for _ in range(50)]
    for buffer in frames:
        assert buffer is not None
        filled = 0
        while filled < 100 * MIB and buffers.has_room(buffer, filled + 2 * MIB, MINE):
            filled += 2 * MIB
            buffers.charge_received(buffer, filled, MINE)
    assert [buffer.counted_bytes for buffer in frames if buffer is not None][:2] == [100 * MIB, UNIT]
    assert buffers.rented_bytes < 100 * MIB + RENTED_BYTES_PER_OWNER_MAX


def test_a_large_buffer_is_freed_in_turns_and_its_owner_has_it_until_then() -> None:
    later: list[Callable[[], None]] = []
    buffers = FrameBuffers(call_soon=later.append)
    size_bytes = 2 * FREED_AT_ONCE_BYTES_MAX + UNIT + 1
    held = [rented(buffers, size_bytes, owner) for owner in (MINE, THEIRS)]
    for buffer, owner in zip(held, (MINE, THEIRS), strict=True):
        buffer.view[:size_bytes] = b"x" * size_bytes
        buffers.return_buffer(buffer, owner)

    left = []
    while later:
        assert len(later) == 1
        later.pop()()
        left.append(buffers.rented_bytes)

    freed = FREED_AT_ONCE_BYTES_MAX
    rest = size_bytes - 2 * freed
    assert left == [2 * size_bytes - freed, size_bytes + rest, size_bytes, size_bytes - freed, rest, 0]


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
        broker.broker.listeners.buffers = buffers = short(8)
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
        await broker.until(lambda: not buffers.rented_bytes and not buffers._waiters_by_owner)


async def test_answers_ready_before_a_large_frame_had_to_wait_are_sent(tmp_path: Path) -> None:
    async with InProcessBroker(tmp_path) as broker:
        port = await broker.create_instance(MINE)
        broker.broker.listeners.buffers = buffers = short(2)
        held = rented(buffers, 2 * UNIT, "somebody")
        client = await broker.client(port)
        everything = encode_request(ApiKey.METADATA, 12, MetadataRequest(topics=None))
        asked = encode_request_frame(ApiKey.METADATA, 12, 1, None, everything)

        await client.send_raw(asked + pack(">i", UNIT) + asked[4:])

        assert (await client.receive(ApiKey.METADATA, 12)).topics == []
        assert buffers._waiters_by_owner
        buffers.return_buffer(held, "somebody")
        await broker.until(lambda: buffers.rented_bytes == UNIT)


@pytest.mark.parametrize("hostile", [1, 3])
async def test_the_slowest_sender_is_closed_when_others_await_memory(tmp_path: Path, hostile: int) -> None:
    """Hostile instances fill the memory with requests that never end, one connection each."""
    async with InProcessBroker(tmp_path) as broker:
        listeners = broker.broker.listeners
        on_wait = listeners.buffers.on_wait
        listeners.buffers = buffers = FrameBuffers(16 * MIB)
        buffers.on_wait = on_wait
        port = await broker.create_instance(MINE)
        ports = [await broker.create_instance(f"ins-{number:08}") for number in range(hostile)]
        mine = await broker.client(port)
        await broker.create_topic(mine, "orders", max_message_bytes=str(8 * MIB))
        filling = [await broker.client(port) for port in ports]
        for client in filling:
            client.writer.write(pack(">ihhi", 100 * MIB, ApiKey.PRODUCE, 9, 1) + bytes(8 * MIB))
        await broker.until(lambda: buffers.rented_bytes > 7 * MIB)

        small, large = (produce_request("orders", batch(bytes(size_bytes))) for size_bytes in (1_000_000, 6 * MIB))
        began_s = time.monotonic()
        assert (await mine.call(ApiKey.PRODUCE, 9, small)).responses[0].partition_responses[0].error_code == 0
        assert not listeners.counters.ended, "an ordinary one finds room"
        assert (await mine.call(ApiKey.PRODUCE, 9, large)).responses[0].partition_responses[0].error_code == 0

        assert time.monotonic() - began_s < 5
        ended = listeners.counters.ended.get(closing.SLOW_REQUEST, 0)
        assert bool(ended) is (hostile > 1), "one alone leaves room"
        assert listeners.counters.ended.keys() <= {closing.SLOW_REQUEST}
        assert not mine.writer.is_closing()


class Sending:
    """A connection of an owner, with a partly received request."""

    idle_sweeps = unsent_bytes = 0
    is_busy = is_stalled = False
    peer_host = "192.0.2.1"

    def __init__(self, buffers: FrameBuffers, owner: str, filled: int, *, is_waiting: bool = False) -> None:
        self.is_waiting = is_waiting
        self.inbound = InboundFrames(UnreadBytes(), buffers, owner)
        buffer = buffers.rent(20 * MIB, owner)
        assert buffer is not None
        self.inbound.large_frame = LargeFrame(buffer, 20 * MIB, memoryview(b""))
        self.fill(buffers, filled)

    def fill(self, buffers: FrameBuffers, filled: int) -> None:
        frame = self.inbound.large_frame
        assert frame is not None
        frame.filled_bytes += filled
        buffers.charge_received(frame.buffer, frame.filled_bytes, self.inbound.owner)

    def close(self, reason: str) -> None:
        raise AssertionError(reason)


def test_the_slowest_are_those_that_sent_least_since_and_of_them_those_with_most() -> None:
    buffers = FrameBuffers()
    stopped, larger = Sending(buffers, "a", 3 * MIB), Sending(buffers, "b", 9 * MIB)
    slow, quick = Sending(buffers, "c", 9 * MIB), Sending(buffers, "d", 3 * MIB)
    ours, small = Sending(buffers, "e", 9 * MIB, is_waiting=True), Sending(buffers, "f", MIB)
    connections: list[OwnedConnection] = [quick, slow, stopped, larger, ours, small]
    assert find_slowest_senders(connections, buffers) == [], "nobody is slow at first sight"
    slow.fill(buffers, 10)
    quick.fill(buffers, MIB)
    new = Sending(buffers, "g", 9 * MIB)
    assert find_slowest_senders([*connections, new], buffers) == [larger, stopped, slow, quick]
