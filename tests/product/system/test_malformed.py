"""Malformed bytes: the connection ends, the broker continues, and its memory does not grow (WIRE-1, WIRE-10)."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator

import psutil
import pytest

from brokers.engine.protocol import codec
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.fields import message_class
from brokers.engine.protocol.headers import encode_request_frame
from tests.product.system.attacks import requests, versions
from tests.product.system.wire import Wire
from tests.testkit.stack import Stack
from tests.testkit.tenancy import addresses, demo_tenant, size_of_run

pytestmark = [pytest.mark.system, pytest.mark.timeout(3600)]

FRAMES = size_of_run("PENSTOCK_FUZZ_FRAMES", 20_000)
FRAMES_PER_CONNECTION = 20
RSS_GROWTH_BYTES_MAX = 40_000_000

TLS_HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(range(200))
NOT_KAFKA = {
    "an HTTP request": b"GET / HTTP/1.1\r\nHost: penstock\r\n\r\n",
    "a TLS hello": TLS_HELLO,
    "a negative size": b"\xff\xff\xff\xff",
    "the largest size": b"\x7f\xff\xff\xff",
    "a size above the limit": (104_857_601).to_bytes(4, "big"),
    "a frame too short for a header": b"\x00\x00\x00\x04\x00\x03\x00\x00",
    "an unknown call": b"\x00\x00\x00\x0a\x03\xe8\x00\x00\x00\x00\x00\x01\xff\xff",
}


@pytest.fixture(scope="module")
def address(stack: Stack) -> Iterator[str]:
    caller = demo_tenant(stack)
    instance = caller.instance("malformed")
    caller.topic(instance["id"], "orders", 1)
    yield addresses(instance)[0]
    caller.call("DELETE", f"/instances/{instance['id']}")


def is_serving(address: str) -> bool:
    with Wire(address) as wire:
        answer = wire.call(ApiKey.API_VERSIONS, 0, message_class(ApiKey.API_VERSIONS, "request")())
    return bool(answer.error_code == 0)


@pytest.mark.parametrize("sent", NOT_KAFKA.values(), ids=NOT_KAFKA.keys())
def test_bytes_that_are_not_kafka_end_the_connection_without_an_answer(address: str, sent: bytes) -> None:
    with Wire(address) as wire:
        wire.socket.sendall(sent)
        assert wire.read_frame() is None
    assert is_serving(address)


def mutated(frame: bytes, rng: random.Random) -> bytes:
    """Returns the frame with bytes changed, removed or inserted; its size field is corrected half of the time."""
    body = bytearray(frame[4:])
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(body)) if body else 0
        what = rng.randrange(4)
        if what == 0 and body:
            body[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        elif what == 1:
            del body[at : at + rng.randrange(1, 9)]
        elif what == 2:
            body[at:at] = rng.randbytes(rng.randrange(1, 9))
        elif len(body) >= 4:
            body[at : at + 4] = rng.choice((b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\x00\x00\x00"))
    size = len(body) if rng.random() < 0.9 else rng.randrange(2 * len(body) + 1)
    return size.to_bytes(4, "big") + bytes(body)


def seeds() -> list[bytes]:
    return [
        encode_request_frame(api_key, version, 1, "fuzz", codec.encode_request(api_key, version, request))
        for api_key, version in versions()
        if api_key not in (ApiKey.CREATE_TOPICS, ApiKey.CREATE_PARTITIONS)  # their mutants would fill the cluster
        for request in requests(api_key, version, ["orders"], [])
    ]


def test_mutated_frames_never_stop_the_broker_and_never_make_it_grow(stack: Stack, address: str) -> None:
    rng, frames = random.Random(20261121), seeds()
    before = {process.pid: process.memory_info().rss for process in stack.broker_processes()}
    sent = 0
    while sent < FRAMES:
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port)), 10) as peer:
            burst = b"".join(mutated(rng.choice(frames), rng) for _ in range(FRAMES_PER_CONNECTION))
            try:
                peer.sendall(burst)
                peer.shutdown(socket.SHUT_WR)
                while peer.recv(65_536):
                    pass
            except (ConnectionResetError, BrokenPipeError):
                pass  # cut off while we were still talking
        sent += FRAMES_PER_CONNECTION
    assert is_serving(address)
    after = {pid: psutil.Process(pid).memory_info().rss for pid in before}
    growth = max(after[pid] - rss for pid, rss in before.items())
    print(f"{sent} mutated frames; broker memory grew by {growth / 1e6:.1f} MB at most")
    assert growth < RSS_GROWTH_BYTES_MAX
