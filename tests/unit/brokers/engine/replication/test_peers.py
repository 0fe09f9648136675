"""Requests to other brokers: pipelined, answered in order, refused while a broker is down."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from brokers.engine.cluster.image import BrokerInfo
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.codec import decode_request, encode_response
from brokers.engine.protocol.headers import decode_request_header, encode_response_frame
from brokers.engine.protocol.messages.transactions import EndTxnRequest, EndTxnResponse
from brokers.engine.replication import peers
from brokers.engine.replication.interfaces import LinkOwner
from brokers.engine.replication.peers import BACK_OFF_MS_MAX, BACK_OFF_MS_MIN, Peers, PeerUnavailable

VERSION = 3
SIZE_BYTES = 4


class FakeTimer:
    def __init__(self, at_ms: int, callback: Callable[[], object]) -> None:
        self.at_ms = at_ms
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class FakeLink:
    def __init__(self, broker: BrokerInfo, owner: LinkOwner) -> None:
        self.broker = broker
        self.owner = owner
        self.closed = False
        self.trimmed = 0
        self.names: list[str] = []
        self._correlation_ids: list[int] = []

    def send(self, frame: bytes) -> None:
        key, version, correlation_id, _, body = decode_request_header(frame, SIZE_BYTES, len(frame))
        assert (key, version) == (ApiKey.END_TXN, VERSION)
        self.names.append(decode_request(key, version, frame, body, len(frame)).transactional_id)
        self._correlation_ids.append(correlation_id)

    def answer(self, code: int, skip: int = 0) -> None:
        """Answers the oldest request, or another one."""
        body = encode_response(ApiKey.END_TXN, VERSION, EndTxnResponse(error_code=code))
        frame = encode_response_frame(ApiKey.END_TXN, VERSION, self._correlation_ids.pop(skip), body)
        self.owner.on_frame(memoryview(bytearray(frame)), SIZE_BYTES, len(frame))

    def trim(self) -> None:
        self.trimmed += 1

    def close(self) -> None:
        self.closed = True


class World:
    """Brokers 1 and 2, a clock controlled by the test, and every link that was created."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.links: list[FakeLink] = []
        self.timers: list[FakeTimer] = []
        self.peers = Peers(
            connect=self._connect, call_later=self._call_later, monotonic_ms=lambda: self.now_ms, client_id="test"
        )
        self.brokers = {id: BrokerInfo(id, "127.0.0.1", 24_000 + id, 25_000 + id, None, id) for id in (1, 2)}
        self.peers.on_brokers(self.brokers)

    def _connect(self, broker: BrokerInfo, owner: LinkOwner) -> FakeLink:
        self.links.append(FakeLink(broker, owner))
        return self.links[-1]

    def _call_later(self, delay_ms: int, callback: Callable[[], object]) -> FakeTimer:
        self.timers.append(FakeTimer(self.now_ms + delay_ms, callback))
        return self.timers[-1]

    def advance(self, by_ms: int) -> None:
        self.now_ms += by_ms
        due = [timer for timer in self.timers if timer.at_ms <= self.now_ms and not timer.cancelled]
        self.timers = [timer for timer in self.timers if timer not in due]
        for timer in due:
            if not timer.cancelled:
                timer.callback()

    async def ask(self, name: str, broker_id: int = 1, timeout_ms: int = 1_000) -> asyncio.Task[Any]:
        request = EndTxnRequest(transactional_id=name, producer_id=1, producer_epoch=0, committed=True)
        task = asyncio.create_task(self.peers.request(broker_id, ApiKey.END_TXN, VERSION, request, timeout_ms))
        await asyncio.sleep(0)
        return task


async def test_requests_wait_for_the_connection_and_are_answered_in_order() -> None:
    world = World()
    first, second = await world.ask("a"), await world.ask("b")
    (link,) = world.links
    assert link.names == []

    link.owner.on_up()
    third = await world.ask("c")
    assert link.names == ["a", "b", "c"], "without waiting for answers"
    for code in (1, 2, 3):
        link.answer(code)

    assert [(await task).error_code for task in (first, second, third)] == [1, 2, 3]
    assert all(timer.cancelled for timer in world.timers)


async def test_each_broker_has_its_own_connection() -> None:
    world = World()
    tasks = [await world.ask("a", 1), await world.ask("b", 2)]

    assert [link.broker.id for link in world.links] == [1, 2]
    for link, task in zip(world.links, tasks, strict=True):
        link.owner.on_up()
        link.answer(0)
        assert (await task).error_code == 0
    world.peers.trim()
    assert [link.trimmed for link in world.links] == [1, 1]


async def test_pending_requests_fail_when_the_connection_is_lost() -> None:
    world = World()
    task = await world.ask("a")
    world.links[0].owner.on_up()

    world.links[0].owner.on_down("closed by the peer")

    with pytest.raises(PeerUnavailable, match="closed by the peer"):
        await task


async def test_a_lost_broker_is_retried_with_increasing_delays() -> None:
    world = World()
    back_offs_ms = []
    for _ in range(7):
        task = await world.ask("a")
        world.links[-1].owner.on_down("refused")
        with pytest.raises(PeerUnavailable):
            await task
        waited_ms = 0
        while len(world.links) == len(back_offs_ms) + 1:
            with pytest.raises(PeerUnavailable, match="refused"):
                await (await world.ask("b"))
            world.advance(BACK_OFF_MS_MIN)
            waited_ms += BACK_OFF_MS_MIN
            if world.now_ms >= world.peers._peers[1]._refusing_until_ms:
                break
        back_offs_ms.append(waited_ms)

    assert back_offs_ms[:3] == [50, 100, 200]
    assert max(back_offs_ms) == BACK_OFF_MS_MAX

    task = await world.ask("a")
    world.links[-1].owner.on_up()
    world.links[-1].answer(0)
    await task
    world.links[-1].owner.on_down("restarted")
    world.advance(BACK_OFF_MS_MIN)
    task = await world.ask("a")
    world.links[-1].owner.on_up()
    world.links[-1].answer(7)
    assert (await task).error_code == 7, "a connection that came up resets the back-off"


async def test_a_timeout_closes_the_connection_and_fails_all_requests() -> None:
    """Responses come in order, so a missing one delays the others."""
    world = World()
    slow, next_ = await world.ask("slow", timeout_ms=500), await world.ask("next", timeout_ms=5_000)
    world.links[0].owner.on_up()

    world.advance(500)

    for task in (slow, next_):
        with pytest.raises(PeerUnavailable, match="does not answer"):
            await task
    assert world.links[0].closed
    world.advance(10_000)
    again = await world.ask("again")
    world.links[1].owner.on_up()
    assert world.links[1].names == ["again"], "what was given up is not sent again"
    world.links[1].answer(0)
    await again


async def test_a_response_to_another_request_closes_the_connection() -> None:
    world = World()
    first, second = await world.ask("a"), await world.ask("b")
    world.links[0].owner.on_up()

    world.links[0].answer(0, skip=1)

    for task in (first, second):
        with pytest.raises(PeerUnavailable, match="response 2 to request 1"):
            await task
    assert world.links[0].closed


async def test_a_response_without_a_request_closes_the_connection() -> None:
    world = World()
    task = await world.ask("a")
    link = world.links[0]
    link.owner.on_up()
    link.answer(0)
    await task

    link.owner.on_frame(memoryview(bytearray(8)), 0, 8)

    assert link.closed


async def test_requests_to_a_broker_that_left_or_re_registered_fail() -> None:
    for after in ({}, {1: BrokerInfo(1, "127.0.0.1", 24_001, 25_001, None, epoch=99)}):
        world = World()
        task = await world.ask("a")
        world.links[0].owner.on_up()

        world.peers.on_brokers(after)

        with pytest.raises(PeerUnavailable, match="left the cluster"):
            await task
        assert world.links[0].closed
        if not after:
            with pytest.raises(PeerUnavailable, match="not in the cluster"):
                await (await world.ask("b"))
        else:
            await world.ask("b")
            assert world.links[1].broker.epoch == 99, "at once, without the back-off of the one before"
            world.peers.close()


async def test_a_stopping_broker_keeps_its_connection() -> None:
    world = World()
    task = await world.ask("a")
    world.links[0].owner.on_up()
    info = world.brokers[1]

    world.peers.on_brokers({1: BrokerInfo(1, info.host, info.port, info.admin_port, None, info.epoch, stopping=True)})
    world.links[0].answer(0)

    assert (await task).error_code == 0


async def test_too_many_requests_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "REQUESTS_MAX", 2)
    world = World()
    waiting = [await world.ask("a"), await world.ask("b")]

    with pytest.raises(PeerUnavailable, match="2 requests wait"):
        await (await world.ask("c"))

    world.peers.close()
    for task in waiting:
        with pytest.raises(PeerUnavailable, match="this broker is stopping"):
            await task


async def test_a_cancelled_request_does_not_affect_the_others() -> None:
    world = World()
    first, second = await world.ask("a"), await world.ask("b")
    world.links[0].owner.on_up()
    first.cancel()
    await asyncio.sleep(0)

    world.links[0].answer(1)
    world.links[0].answer(2)

    assert (await second).error_code == 2
