"""Forwarding of requests: one per connection, idle connections are kept for a while, and failures of connections."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from brokers.engine.cluster.image import BrokerInfo
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.codec import decode_request, encode_response
from brokers.engine.protocol.headers import decode_request_header, encode_response_frame
from brokers.engine.protocol.messages.groups import HeartbeatRequest, HeartbeatResponse
from brokers.engine.replication.coordinator_forwarders import (
    IDLE_MS_MAX,
    ForwardedIdentity,
    Forwarders,
    ForwardingUnavailable,
)
from brokers.engine.replication.interfaces import LinkOwner

BROKER = BrokerInfo(id=2, host="two", port=1, admin_port=2, rack=None, epoch=7)
MINE = ForwardedIdentity("ins-aaaaaaaa", "10.0.0.1")
VERSION = 4
_SIZE_BYTES = 4


class FakeLink:
    def __init__(self, owner: LinkOwner, forwarded_identity: ForwardedIdentity) -> None:
        self.owner = owner
        self.forwarded_identity = forwarded_identity
        self.sent: list[tuple[int, str | None, Any]] = []
        self.closed = False

    def send(self, frame: bytes) -> None:
        view = memoryview(frame)
        api_key, version, correlation_id, client_id, body = decode_request_header(view, _SIZE_BYTES, len(frame))
        self.sent.append((correlation_id, client_id, decode_request(api_key, version, view, body, len(frame))))

    def answer(self, error_code: int = 0, correlation_id: int | None = None) -> None:
        last = self.sent[-1][0] if correlation_id is None else correlation_id
        body = encode_response(ApiKey.HEARTBEAT, VERSION, HeartbeatResponse(error_code=error_code))
        frame = bytearray(encode_response_frame(ApiKey.HEARTBEAT, VERSION, last, body))
        self.owner.on_frame(memoryview(frame), _SIZE_BYTES, len(frame))

    def trim(self) -> None: ...

    def close(self) -> None:
        self.closed = True


class House:
    def __init__(self, connections_max: int = 10, **more: int) -> None:
        self.now_ms = 0
        self.links: list[FakeLink] = []
        self.forwarders = Forwarders(
            connect=self._connect, monotonic_ms=lambda: self.now_ms, connections_max=connections_max, **more
        )
        self.forwarders.on_brokers({2: BROKER})

    def _connect(self, broker: BrokerInfo, owner: LinkOwner, forwarded_identity: ForwardedIdentity) -> FakeLink:
        assert broker == BROKER
        self.links.append(FakeLink(owner, forwarded_identity))
        return self.links[-1]

    async def begin(self, member: str = "m", forwarded_identity: ForwardedIdentity = MINE) -> asyncio.Task[Any]:
        message = HeartbeatRequest(group_id="g", generation_id=1, member_id=member)
        task = asyncio.create_task(
            self.forwarders.request(2, forwarded_identity, "app", ApiKey.HEARTBEAT, VERSION, message)
        )
        await asyncio.sleep(0)
        return task


async def test_a_request_is_sent_once_the_connection_is_up_with_the_clients_name() -> None:
    house = House()
    task = await house.begin("mine")
    (link,) = house.links
    assert (link.sent, link.forwarded_identity) == ([], MINE)

    link.owner.on_up()
    ((_, client_id, request),) = link.sent
    link.answer(27)

    assert (client_id, request.member_id, (await task).error_code) == ("app", "mine", 27)


async def test_a_connection_is_reused_for_the_next_request_of_the_same_client() -> None:
    house = House()
    first = await house.begin()
    second = await house.begin()
    assert len(house.links) == 2
    for link in house.links:
        link.owner.on_up()
        link.answer()
    await asyncio.gather(first, second)

    third = await house.begin()
    assert len(house.links) == 2
    assert house.forwarders.pending_requests == 1
    house.links[1].answer(25)

    assert (await third).error_code == 25


async def test_connections_are_not_shared_between_clients() -> None:
    house = House()
    task = await house.begin()
    house.links[0].owner.on_up()
    house.links[0].answer()
    await task

    for other in (ForwardedIdentity("ins-bbbbbbbb", MINE.client), ForwardedIdentity(MINE.instance_id, "10.0.0.2")):
        (await house.begin(forwarded_identity=other)).cancel()

    assert [link.forwarded_identity.instance_id for link in house.links] == [
        "ins-aaaaaaaa",
        "ins-bbbbbbbb",
        "ins-aaaaaaaa",
    ]


async def test_a_request_fails_when_the_connection_or_the_broker_is_lost() -> None:
    house = House()
    lost, gone = await house.begin(), await house.begin()
    house.links[0].owner.on_up()

    house.links[0].owner.on_down("closed by the peer")
    house.forwarders.on_brokers({})

    for task in (lost, gone):
        with pytest.raises(ForwardingUnavailable):
            await task
    assert len(house.forwarders) == 0
    with pytest.raises(ForwardingUnavailable):
        await (await house.begin())


async def test_a_stopping_broker_still_gets_requests() -> None:
    house = House()
    task = await house.begin()
    house.links[0].owner.on_up()

    house.forwarders.on_brokers({2: replace(BROKER, stopping=True)})
    house.links[0].answer()

    assert (await task).error_code == 0


async def test_a_response_to_another_request_closes_the_connection() -> None:
    house = House()
    task = await house.begin()
    house.links[0].owner.on_up()

    house.links[0].answer(correlation_id=99)

    with pytest.raises(ForwardingUnavailable):
        await task
    assert house.links[0].closed


async def test_a_cancelled_request_closes_its_connection() -> None:
    house = House()
    task = await house.begin()
    house.links[0].owner.on_up()

    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    assert house.links[0].closed
    assert len(house.forwarders) == 0


async def test_the_number_of_connections_is_limited() -> None:
    house = House(connections_max=2)
    held = [await house.begin() for _ in range(2)]

    with pytest.raises(ForwardingUnavailable):
        await (await house.begin())

    house.forwarders.close()
    assert all(isinstance(end, ForwardingUnavailable) for end in await asyncio.gather(*held, return_exceptions=True))


async def test_a_new_connection_replaces_the_longest_idle_one() -> None:
    house = House(connections_max=2)
    for number in (1, 2, 1):
        task = await house.begin(forwarded_identity=ForwardedIdentity("ins-aaaaaaaa", f"10.0.0.{number}"))
        link = house.links[number - 1]
        link.owner.on_up()
        link.answer()
        await task

    waiting = await house.begin(forwarded_identity=ForwardedIdentity("ins-aaaaaaaa", "10.0.0.3"))

    assert [link.closed for link in house.links] == [False, True, False]
    assert (len(house.forwarders), house.forwarders.pending_requests) == (2, 1)
    house.forwarders.close()
    await asyncio.gather(waiting, return_exceptions=True)


async def test_one_instance_cannot_use_all_connections() -> None:
    house = House(connections_max=4, connections_per_instance_max=2)
    held = [await house.begin() for _ in range(2)]

    with pytest.raises(ForwardingUnavailable):
        await (await house.begin())

    held.append(await house.begin(forwarded_identity=ForwardedIdentity("ins-bbbbbbbb", "10.0.0.1")))
    assert len(house.forwarders) == 3
    house.forwarders.close()
    assert all(isinstance(end, ForwardingUnavailable) for end in await asyncio.gather(*held, return_exceptions=True))
    held = [await house.begin() for _ in range(2)]
    assert len(house.forwarders) == 2
    house.forwarders.close()
    await asyncio.gather(*held, return_exceptions=True)


async def test_idle_connections_are_closed_after_a_while() -> None:
    house = House()
    task = await house.begin()
    house.links[0].owner.on_up()
    house.links[0].answer()
    await task

    house.now_ms = IDLE_MS_MAX - 1
    house.forwarders.sweep()
    assert len(house.forwarders) == 1
    house.now_ms = IDLE_MS_MAX
    house.forwarders.sweep()

    assert house.links[0].closed
    assert len(house.forwarders) == 0
