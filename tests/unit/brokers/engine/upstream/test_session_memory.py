"""Memory of fetches that wait upstream: bounded for each instance; further ones are answered at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from brokers.engine.access.principals import Principal
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.codec import decode_request, encode_request, encode_response
from brokers.engine.protocol.headers import encode_request_frame
from brokers.engine.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from brokers.engine.scheduling.permits import DecodeMemoryLimiter
from brokers.engine.upstream.connection import Body
from brokers.engine.upstream.response_memory import ResponseMemory
from brokers.engine.upstream.session import GatewaySession
from tests.testkit.in_process import InProcessBroker

MINE, THEIRS = "ins-aaaaaaaa", "ins-bbbbbbbb"
VERSION, WAIT_MS = 12, 30_000
SIZE_BYTES = 4
# Small, for few clients.
DELAYED_BYTES_MAX = 512 * 1024


class Upstream:
    """A node whose upstream answers a fetch when its time is over, which is when `goes_on` is set."""

    def __init__(self, broker: InProcessBroker) -> None:
        self.services = broker.broker.services
        self.services.accounting.decode_memory = DecodeMemoryLimiter(delayed_bytes_max=DELAYED_BYTES_MAX)
        self.responses = ResponseMemory(lambda instance_id: instance_id)
        self.served = {int(ApiKey.FETCH): (4, VERSION)}
        self.own_versions: dict[int, tuple[int, int]] = {}
        self.waits_ms: list[int] = []
        self.goes_on = asyncio.Event()
        self.is_closed = False

    async def connect(self) -> Upstream:
        return self

    async def exchange(
        self, api_key: int, version: int, _client_id: str | None, body: Body, *, admit: Any
    ) -> tuple[bytes, int]:
        body = body if isinstance(body, bytes) else b"".join(body)
        wait_ms = decode_request(api_key, version, body, 0, len(body)).max_wait_ms
        self.waits_ms.append(wait_ms)
        if wait_ms:
            await self.goes_on.wait()
        response = encode_response(api_key, version, FetchResponse())
        await admit(len(response))
        return response, 0

    def close(self) -> None: ...


class Client:
    """A connection's channel, with its session; counts responses."""

    def __init__(self, upstream: Upstream, instance_id: str) -> None:
        turns = SimpleNamespace(charge=lambda *_: None, turn_to_resume=lambda _loop: None)
        self.answered = 0
        self.errors: list[object] = []
        channel = SimpleNamespace(
            peer_host="127.0.0.1",
            turns=turns,
            charge_request_copy=lambda _size_bytes: None,
            release_request_copy=lambda: None,
            respond=self._respond,
            close=self.errors.append,
            fail=self.errors.append,
        )
        self.session = GatewaySession(cast(Any, upstream), cast(Any, channel), Principal("app", instance_id), {})

    def _respond(self, *_: object) -> None:
        self.answered += 1

    def send(self, request: FetchRequest) -> int:
        """Sends a fetch; returns its size in bytes."""
        body = encode_request(ApiKey.FETCH, VERSION, request)
        frame = encode_request_frame(ApiKey.FETCH, VERSION, 1, "test", body)
        self.session.on_frame(memoryview(frame), SIZE_BYTES, len(frame))
        return len(frame) - SIZE_BYTES


@pytest.fixture
async def upstream(tmp_path: Path) -> AsyncIterator[Upstream]:
    async with InProcessBroker(tmp_path) as broker:
        for instance_id in (MINE, THEIRS):
            await broker.create_instance(instance_id)
        yield Upstream(broker)


def wanted(partitions: int) -> FetchRequest:
    lines = [FetchPartition(partition=index, partition_max_bytes=1_000) for index in range(partitions)]
    return FetchRequest(
        replica_id=-1, max_wait_ms=WAIT_MS, session_epoch=-1, topics=[FetchTopic(topic="orders", partitions=lines)]
    )


@pytest.mark.parametrize("partitions", [100, 5_000])
async def test_fetches_beyond_the_memory_of_an_instance_do_not_wait(upstream: Upstream, partitions: int) -> None:
    async def until(count: int) -> None:
        async with asyncio.timeout(60):
            while len(upstream.waits_ms) < count:  # noqa: ASYNC110 (there is no event to wait for)
                await asyncio.sleep(0.002)

    clients = []
    room_bytes = DELAYED_BYTES_MAX
    while room_bytes >= 0:
        clients.append(Client(upstream, MINE))
        room_bytes -= clients[-1].send(wanted(partitions))
    await until(len(clients))
    assert sorted(upstream.waits_ms) == [0] + [WAIT_MS] * (len(clients) - 1)
    other = Client(upstream, THEIRS)
    other.send(wanted(partitions))
    await until(len(clients) + 1)
    assert upstream.waits_ms[-1] == WAIT_MS

    upstream.goes_on.set()
    async with asyncio.timeout(60):
        while not all(client.answered for client in [*clients, other]):  # noqa: ASYNC110
            await asyncio.sleep(0.002)
    assert not any(client.errors for client in clients)
    again = Client(upstream, MINE)
    again.send(wanted(partitions))
    await until(len(clients) + 2)
    assert upstream.waits_ms[-1] == WAIT_MS, "the memory is free again"
