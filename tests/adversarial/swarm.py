"""Many connections of one hostile tenant: `python -m tests.adversarial.swarm KIND PORT CONNECTIONS SECONDS`.

Prints one JSON line when the connections stand, and one with what it did at the end.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import resource
import select
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from typing import Final

from brokers.engine.protocol import codec, headers
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.cluster import DescribeClusterRequest
from brokers.engine.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.testkit.records import batch, fetch_request, produce_request

HOST: Final = "127.0.0.1"
TOPIC: Final = "orders"
LARGE_BYTES: Final = 1_000_000
SMALL_BYTES: Final = 60_000
ANNOUNCED_BYTES: Final = 100_000_000
ARRIVED_BYTES: Final = 70_000
UNKNOWN_TOPICS: Final = 6_000
FETCHED_BYTES: Final = 8_000_000
NICENESS: Final = 10
CLIENT_ID: Final = "hostile"


def frame(api_key: ApiKey, version: int, request: object) -> bytes:
    body = codec.encode_request(api_key, version, request)
    return headers.encode_request_frame(api_key, version, 1, CLIENT_ID, body)


def named_produces() -> Iterator[bytes]:
    """Yields small produces, each by another client id: counters and quotas are by client id."""
    for number in itertools.count():
        yield TINY_PRODUCE.replace(CLIENT_ID.encode(), f"{number:0{len(CLIENT_ID)}d}".encode())


TINY: Final = frame(ApiKey.DESCRIBE_CLUSTER, 0, DescribeClusterRequest())
FETCH: Final = frame(
    ApiKey.FETCH, 12, fetch_request(TOPIC, partition_max_bytes=FETCHED_BYTES, max_bytes=FETCHED_BYTES, max_wait_ms=0)
)
TINY_FETCH: Final = frame(ApiKey.FETCH, 12, fetch_request(TOPIC, max_wait_ms=0))
BEYOND_OFFSET: Final = 10**12
# Neither reads anything: a session that nobody has, and an offset beyond the end.
EMPTY_FETCH: Final = frame(ApiKey.FETCH, 12, fetch_request(TOPIC, session_id=7, session_epoch=7))
BEYOND_FETCH: Final = frame(ApiKey.FETCH, 12, fetch_request(TOPIC, BEYOND_OFFSET, max_wait_ms=0))
LONG_POLL: Final = frame(ApiKey.FETCH, 12, fetch_request(TOPIC, max_wait_ms=1, min_bytes=2**30))
PIPELINED: Final = 16
TINY_PRODUCE: Final = frame(ApiKey.PRODUCE, 9, produce_request(TOPIC, batch(b"x")))
NAMES: Final = frame(
    ApiKey.METADATA,
    9,
    MetadataRequest(
        topics=[MetadataRequestTopic(name=f"unknown-{'x' * 100}-{number}") for number in range(UNKNOWN_TOPICS)],
        allow_auto_topic_creation=False,
    ),
)


def half(size_bytes: int) -> bytes:
    """More than half of a produce of this size."""
    return struct.pack(">ihhi", size_bytes, int(ApiKey.PRODUCE), 9, 1) + bytes(size_bytes * 6 // 10)


class Swarm:
    """Many connections of one process; `counts` has the results."""

    def __init__(self, port: int, connections: int, deadline_s: float) -> None:
        self.port, self.wanted, self.deadline_s = port, connections, deadline_s
        self.sockets: dict[int, socket.socket] = {}
        self.counts = {"opened": 0, "refused": 0, "answers": 0, "closed": 0}

    def connect(self) -> socket.socket | None:
        opened = socket.socket()
        opened.settimeout(2)
        try:
            opened.connect((HOST, self.port))
        except OSError:
            self.counts["refused"] += 1
            opened.close()
            return None
        opened.setblocking(False)
        self.counts["opened"] += 1
        self.sockets[opened.fileno()] = opened
        return opened

    def stand(self) -> None:
        for _ in range(self.wanted):
            if time.monotonic() > self.deadline_s:
                break
            self.connect()

    def drop(self, fd: int) -> None:
        self.counts["closed"] += 1
        self.sockets.pop(fd).close()

    def silent(self) -> None:
        while time.monotonic() < self.deadline_s:
            time.sleep(0.1)

    def halves(self, data: bytes) -> None:
        """Sends as much of it as the broker takes, on each; and never the rest."""
        left = dict.fromkeys(self.sockets, memoryview(data))
        while time.monotonic() < self.deadline_s:
            for fd in tuple(left):
                with contextlib.suppress(BlockingIOError):
                    try:
                        left[fd] = left[fd][self.sockets[fd].send(left[fd]) :]
                    except (ConnectionError, KeyError):
                        self.drop(fd)
                        left[fd] = memoryview(b"")
                if not left[fd]:
                    del left[fd]
            time.sleep(0.01)

    def deaf(self, data: bytes) -> None:
        """Sends requests on each, again and again, and reads no answer."""
        while time.monotonic() < self.deadline_s:
            for fd, opened in tuple(self.sockets.items()):
                try:
                    opened.send(data)
                except BlockingIOError:
                    continue
                except ConnectionError:
                    self.drop(fd)
            time.sleep(0.02)

    def asking(self, requests: Iterator[bytes]) -> None:
        """Sends a request on each, and the next one as soon as it is answered."""
        poll = select.epoll()
        for fd, opened in self.sockets.items():
            with contextlib.suppress(OSError):
                opened.send(next(requests))
                poll.register(fd, select.EPOLLIN)
        while time.monotonic() < self.deadline_s:
            for fd, _ in poll.poll(0.1):
                opened = self.sockets[fd]
                try:
                    if not opened.recv(65_536):
                        raise ConnectionError
                    self.counts["answers"] += 1
                    opened.send(next(requests))
                except BlockingIOError:
                    continue
                except ConnectionError:
                    poll.unregister(fd)
                    self.drop(fd)

    def pipelining(self, data: bytes) -> None:
        """Some requests on each at once, and as many again when all of them are answered."""
        poll, due_bytes = select.epoll(), dict[int, int]()
        answers_bytes: dict[int, int] = {}
        for fd, opened in tuple(self.sockets.items()):
            opened.setblocking(True)
            opened.sendall(data)
            size_bytes = int.from_bytes(opened.recv(4, socket.MSG_WAITALL), "big")
            opened.recv(size_bytes, socket.MSG_WAITALL)
            answers_bytes[fd] = due_bytes[fd] = PIPELINED * (4 + size_bytes)
            opened.sendall(data * PIPELINED)
            poll.register(fd, select.EPOLLIN)
        while time.monotonic() < self.deadline_s:
            for fd, _ in poll.poll(0.1):
                received = len(self.sockets[fd].recv(65_536))
                if not received:
                    poll.unregister(fd)
                    self.drop(fd)
                    continue
                due_bytes[fd] -= received
                if due_bytes[fd] <= 0:
                    self.counts["answers"] += PIPELINED
                    due_bytes[fd] += answers_bytes[fd]
                    self.sockets[fd].sendall(data * PIPELINED)

    def churning(self, data: bytes) -> None:
        """Connects, asks, and goes away, as fast as it can; some at a time."""
        ring: list[socket.socket | None] = [None] * self.wanted
        for at in itertools.cycle(range(self.wanted)):
            if time.monotonic() > self.deadline_s:
                break
            old = ring[at]
            if old is not None:
                self.drop(old.fileno())
            opened = ring[at] = self.connect()
            if opened is not None:
                with contextlib.suppress(OSError):
                    opened.send(data)


def main() -> None:
    kind, port, connections, seconds = sys.argv[1], *map(int, sys.argv[2:5])
    os.nice(NICENESS)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    swarm = Swarm(port, connections, time.monotonic() + seconds)
    if kind != "churn":
        swarm.stand()
    print(json.dumps({"stands": len(swarm.sockets)}), flush=True)
    swarm.deadline_s = time.monotonic() + seconds
    attacks: dict[str, Callable[[], None]] = {
        "silent": swarm.silent,
        "half": lambda: swarm.halves(half(LARGE_BYTES)),
        "announced": lambda: swarm.halves(half(ANNOUNCED_BYTES)[:ARRIVED_BYTES]),
        "small-half": lambda: swarm.halves(half(SMALL_BYTES)),
        "deaf-fetch": lambda: swarm.deaf(FETCH),
        "deaf-names": lambda: swarm.deaf(NAMES),
        "tiny": lambda: swarm.asking(itertools.repeat(TINY)),
        "empty-fetch": lambda: swarm.pipelining(EMPTY_FETCH),
        "beyond-fetch": lambda: swarm.pipelining(BEYOND_FETCH),
        "long-poll": lambda: swarm.asking(itertools.repeat(LONG_POLL)),
        "tiny-fetch": lambda: swarm.asking(itertools.repeat(TINY_FETCH)),
        "tiny-produce": lambda: swarm.asking(itertools.repeat(TINY_PRODUCE)),
        "named-produce": lambda: swarm.asking(named_produces()),
        "churn": lambda: swarm.churning(TINY),
    }
    attacks[kind]()
    print(json.dumps(swarm.counts), flush=True)


if __name__ == "__main__":
    main()
