"""Many connections of one hostile tenant: `python -m tests.adversarial.swarm KIND PORT CONNECTIONS SECONDS`.

Prints one JSON line when all connections are open, and one with its results at the end.
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
# Neither reads anything: an unknown session, and an offset beyond the end.
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


def partial_produce(size_bytes: int) -> bytes:
    """Returns more than half of a Produce of this size."""
    return struct.pack(">ihhi", size_bytes, int(ApiKey.PRODUCE), 9, 1) + bytes(size_bytes * 6 // 10)


class Swarm:
    """Many connections of one process; `counts` has the results."""

    def __init__(self, port: int, connections: int, deadline_s: float) -> None:
        self.port, self.connection_count, self.deadline_s = port, connections, deadline_s
        self.sockets: dict[int, socket.socket] = {}
        self.counts = {"opened": 0, "refused": 0, "answers": 0, "closed": 0}

    def connect(self) -> socket.socket | None:
        connection = socket.socket()
        connection.settimeout(2)
        try:
            connection.connect((HOST, self.port))
        except OSError:
            self.counts["refused"] += 1
            connection.close()
            return None
        connection.setblocking(False)
        self.counts["opened"] += 1
        self.sockets[connection.fileno()] = connection
        return connection

    def connect_all(self) -> None:
        for _ in range(self.connection_count):
            if time.monotonic() > self.deadline_s:
                break
            self.connect()

    def close_socket(self, fd: int) -> None:
        self.counts["closed"] += 1
        self.sockets.pop(fd).close()

    def wait_silently(self) -> None:
        while time.monotonic() < self.deadline_s:
            time.sleep(0.1)

    def send_partially(self, data: bytes) -> None:
        """Sends as much of `data` as the broker takes, on each connection; and never the rest."""
        left = dict.fromkeys(self.sockets, memoryview(data))
        while time.monotonic() < self.deadline_s:
            for fd in tuple(left):
                with contextlib.suppress(BlockingIOError):
                    try:
                        left[fd] = left[fd][self.sockets[fd].send(left[fd]) :]
                    except (ConnectionError, KeyError):
                        self.close_socket(fd)
                        left[fd] = memoryview(b"")
                if not left[fd]:
                    del left[fd]
            time.sleep(0.01)

    def send_without_reading(self, data: bytes) -> None:
        """Sends requests on each connection repeatedly, and reads no answer."""
        while time.monotonic() < self.deadline_s:
            for fd, connection in tuple(self.sockets.items()):
                try:
                    connection.send(data)
                except BlockingIOError:
                    continue
                except ConnectionError:
                    self.close_socket(fd)
            time.sleep(0.02)

    def send_and_receive(self, requests: Iterator[bytes]) -> None:
        """Sends a request on each connection, and the next one as soon as it is answered."""
        poll = select.epoll()
        for fd, connection in self.sockets.items():
            with contextlib.suppress(OSError):
                connection.send(next(requests))
                poll.register(fd, select.EPOLLIN)
        while time.monotonic() < self.deadline_s:
            for fd, _ in poll.poll(0.1):
                connection = self.sockets[fd]
                try:
                    if not connection.recv(65_536):
                        raise ConnectionError
                    self.counts["answers"] += 1
                    connection.send(next(requests))
                except BlockingIOError:
                    continue
                except ConnectionError:
                    poll.unregister(fd)
                    self.close_socket(fd)

    def pipeline(self, data: bytes) -> None:
        """Sends several requests on each connection at once, and the next ones when all of them are answered."""
        poll, due_bytes = select.epoll(), dict[int, int]()
        answers_bytes: dict[int, int] = {}
        for fd, connection in tuple(self.sockets.items()):
            connection.setblocking(True)
            connection.sendall(data)
            size_bytes = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
            connection.recv(size_bytes, socket.MSG_WAITALL)
            answers_bytes[fd] = due_bytes[fd] = PIPELINED * (4 + size_bytes)
            connection.sendall(data * PIPELINED)
            poll.register(fd, select.EPOLLIN)
        while time.monotonic() < self.deadline_s:
            for fd, _ in poll.poll(0.1):
                received = len(self.sockets[fd].recv(65_536))
                if not received:
                    poll.unregister(fd)
                    self.close_socket(fd)
                    continue
                due_bytes[fd] -= received
                if due_bytes[fd] <= 0:
                    self.counts["answers"] += PIPELINED
                    due_bytes[fd] += answers_bytes[fd]
                    self.sockets[fd].sendall(data * PIPELINED)

    def churn(self, data: bytes) -> None:
        """Connects, sends a request and disconnects, as fast as possible, on several connections at a time."""
        ring: list[socket.socket | None] = [None] * self.connection_count
        for index in itertools.cycle(range(self.connection_count)):
            if time.monotonic() > self.deadline_s:
                break
            previous = ring[index]
            if previous is not None:
                self.close_socket(previous.fileno())
            connection = ring[index] = self.connect()
            if connection is not None:
                with contextlib.suppress(OSError):
                    connection.send(data)


def main() -> None:
    kind, port, connections, seconds = sys.argv[1], *map(int, sys.argv[2:5])
    os.nice(NICENESS)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    swarm = Swarm(port, connections, time.monotonic() + seconds)
    if kind != "churn":
        swarm.connect_all()
    print(json.dumps({"stands": len(swarm.sockets)}), flush=True)
    swarm.deadline_s = time.monotonic() + seconds
    attacks: dict[str, Callable[[], None]] = {
        "silent": swarm.wait_silently,
        "half": lambda: swarm.send_partially(partial_produce(LARGE_BYTES)),
        "announced": lambda: swarm.send_partially(partial_produce(ANNOUNCED_BYTES)[:ARRIVED_BYTES]),
        "small-half": lambda: swarm.send_partially(partial_produce(SMALL_BYTES)),
        "deaf-fetch": lambda: swarm.send_without_reading(FETCH),
        "deaf-names": lambda: swarm.send_without_reading(NAMES),
        "tiny": lambda: swarm.send_and_receive(itertools.repeat(TINY)),
        "empty-fetch": lambda: swarm.pipeline(EMPTY_FETCH),
        "beyond-fetch": lambda: swarm.pipeline(BEYOND_FETCH),
        "long-poll": lambda: swarm.send_and_receive(itertools.repeat(LONG_POLL)),
        "tiny-fetch": lambda: swarm.send_and_receive(itertools.repeat(TINY_FETCH)),
        "tiny-produce": lambda: swarm.send_and_receive(itertools.repeat(TINY_PRODUCE)),
        "named-produce": lambda: swarm.send_and_receive(named_produces()),
        "churn": lambda: swarm.churn(TINY),
    }
    attacks[kind]()
    print(json.dumps(swarm.counts), flush=True)


if __name__ == "__main__":
    main()
