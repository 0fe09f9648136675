"""Memory that connections of one instance can take: incomplete requests, and responses that are not read."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from struct import pack

import pytest

from brokers.engine.network import buffers, closing
from brokers.engine.network.connection import CORKED_BYTES_MAX
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.codec import encode_request
from brokers.engine.protocol.headers import encode_request_frame
from brokers.engine.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.testkit.in_process import InProcessBroker
from tests.testkit.records import batch, produce_request
from tests.testkit.wire import HOST

MINE = "ins-aaaaaaaa"
EVERYTHING = MetadataRequest(topics=None)
HALF = pack(">ihh", 60_000, int(ApiKey.PRODUCE), 9) + bytes(40_000)


async def test_small_requests_that_are_half_here_take_no_more_than_their_instance_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("brokers.engine.network.listener_group.UNREAD_BYTES_PER_INSTANCE_MAX", 200_000)
    async with InProcessBroker(tmp_path) as broker:
        port = await broker.create_instance(MINE)
        broker.broker.listeners.buffers = rented = buffers.FrameBuffers(8 * buffers.RENTED_BYTES_MIN)
        hostile = [await broker.client(port) for _ in range(30)]
        for client in hostile:
            await client.send_raw(HALF)
        listener = broker.broker.listeners.get(MINE)
        assert listener is not None
        await broker.until(lambda: rented.is_contended(listener.group))

        assert listener.unread.count <= 200_000 + len(HALF) + 30 * buffers.TINY_BYTES_MAX
        honest = await broker.client(port)
        assert (await honest.call(ApiKey.METADATA, 12, EVERYTHING)).topics == [], "tiny requests need no buffer"
        broker.broker.listeners.sweep()
        broker.broker.listeners.sweep()
        await broker.until(lambda: broker.broker.listeners.counters.ended.get(closing.SLOW_REQUEST, 0) >= 4)
        for client in hostile:
            await client.close()
        await broker.until(lambda: listener.unread.count == 0 and rented.rented_bytes == 0)


async def test_where_bytes_are_many_requests_of_any_size_are_still_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("brokers.engine.network.listener_group.UNREAD_BYTES_PER_INSTANCE_MAX", -1)
    async with InProcessBroker(tmp_path) as broker:
        client = await broker.client(await broker.create_instance(MINE))
        await broker.create_topic(client, "orders", 1, max_message_bytes="9000000")
        sizes = [10, 300_000, 20, 1_000, 65_000, 66_000, 5]
        for size in sizes:
            await client.send(ApiKey.PRODUCE, 9, produce_request("orders", batch(b"x" * size)))
        answers = [(await client.receive(ApiKey.PRODUCE, 9)).responses[0].partition_responses[0] for _ in sizes]
        assert [(line.error_code, line.base_offset) for line in answers] == [(0, at) for at in range(len(sizes))]


def names(count: int) -> bytes:
    """Returns a request whose response is longer than itself."""
    topics = [MetadataRequestTopic(name=f"unknown-{'x' * 100}-{number}") for number in range(count)]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    return encode_request_frame(ApiKey.METADATA, 9, 1, "c", encode_request(ApiKey.METADATA, 9, request))


async def connected(port: int) -> socket.socket:
    """Returns a client with a small receive buffer."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    client.setblocking(False)
    await asyncio.get_running_loop().sock_connect(client, (HOST, port))
    return client


async def test_a_client_that_reads_no_answers_loses_its_place_to_others_of_its_instance(tmp_path: Path) -> None:
    async with InProcessBroker(tmp_path) as broker:
        port = await broker.create_instance(MINE)
        listener = broker.broker.listeners.get(MINE)
        assert listener is not None
        listener.unsent._bytes_max = 100_000
        deaf = [await connected(port) for _ in range(3)]
        loop, frames = asyncio.get_running_loop(), names(5_000) * 10
        sending = [asyncio.create_task(loop.sock_sendall(client, frames)) for client in deaf]
        await broker.until(lambda: broker.broker.listeners.counters.ended.get(closing.UNREAD_RESPONSES, 0) == 2)
        honest = await broker.client(port)
        assert (await honest.call(ApiKey.METADATA, 12, EVERYTHING)).topics == []
        await broker.until(lambda: len(listener.connections) == 2)
        for task in sending:
            task.cancel()
        await asyncio.gather(*sending, return_exceptions=True)
        for client in deaf:
            client.close()
        await broker.until(lambda: listener.unsent.count == 0)


async def test_unread_answers_of_all_instances_of_a_tenant_have_a_limit_together(tmp_path: Path) -> None:
    async with InProcessBroker(tmp_path) as broker:
        ports = [await broker.create_instance(f"ins-dddddd{number:02}", tenant_id="ten-hostile") for number in range(3)]
        (tenant,) = broker.broker.listeners.tenants()
        tenant.unsent._bytes_max = 1_000_000
        deaf = [await connected(port) for port in ports]
        loop, frames = asyncio.get_running_loop(), names(5_000) * 10
        sending = [asyncio.create_task(loop.sock_sendall(client, frames)) for client in deaf]
        ended = broker.broker.listeners.counters.ended
        await broker.until(lambda: ended.get(closing.UNREAD_RESPONSES, 0) == 2)  # the last one may go on
        honest = await broker.client(await broker.create_instance(MINE))
        assert (await honest.call(ApiKey.METADATA, 12, EVERYTHING)).topics == []
        for task in sending:
            task.cancel()
        await asyncio.gather(*sending, return_exceptions=True)
        for client in deaf:
            client.close()
        await broker.until(lambda: tenant.unsent.count == 0)


async def test_long_answers_that_are_asked_for_together_are_not_gathered(tmp_path: Path) -> None:
    async with InProcessBroker(tmp_path) as broker:
        client = await broker.client(await broker.create_instance(MINE))
        frame = names(250)
        assert CORKED_BYTES_MAX < len(frame) < buffers.SHARED_BYTES // 2
        small = encode_request_frame(ApiKey.METADATA, 9, 1, "c", encode_request(ApiKey.METADATA, 9, EVERYTHING))
        await client.send_raw(small + frame + small)
        sizes = [len((await client.receive(ApiKey.METADATA, 9)).topics) for _ in range(3)]
        assert sizes == [0, 250, 0]
