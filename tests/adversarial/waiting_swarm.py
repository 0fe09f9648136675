"""Fetches of one tenant that wait, and end together: `python -m tests.adversarial.waiting_swarm KIND PORT CONNECTIONS
SECONDS`.

KIND is how the waits end, and which partitions they name: `append-repeated` (one small Produce; a Fetch names one
partition 400 times), `append-wide` (200 partitions), `expiry-wide` (all waits end in the same 20 ms), or
`leaving-wide` (all connections close at once). Prints one JSON line when all connections are open, and one with its
results at the end.
"""

from __future__ import annotations

import json
import os
import resource
import select
import socket
import sys
import time
from typing import Any, Final

from brokers.engine.protocol import codec, headers
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.fields import UUID_ZERO
from brokers.engine.protocol.messages.fetch import FetchPartition, FetchTopic
from brokers.engine.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.adversarial.swarm import HOST, NICENESS, frame
from tests.adversarial.test_long_produces import WIDE
from tests.testkit.records import PRODUCE_VERSION, batch, fetch_request, produce_request

KINDS: Final = ("append-repeated", "append-wide", "expiry-wide", "leaving-wide")
REPEATS: Final = 400
METADATA_VERSION: Final = 9
BEYOND_THE_END_S: Final = 60
PATIENCE_S: Final = 10.0
# Until all waits are answered, on a machine with other work; on an idle one they take a second.
ANSWERS_S_MAX: Final = 60.0
# Until the broker has read the last requests. Requests that it reads later are not woken with the others.
READ_S: Final = 0.5


def call(connection: socket.socket, data: bytes) -> bytes:
    """Sends a request, and returns the answer without its size."""
    connection.sendall(data)
    received = b""
    while len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4], "big"):
        more = connection.recv(65_536)
        if not more:
            raise ConnectionError("closed by the broker")
        received += more
    return received[4:]


def decode_answer(api_key: ApiKey, version: int, answer: bytes) -> Any:
    _, position = headers.decode_response_header(api_key, version, answer, 0, len(answer))
    return codec.decode_response(api_key, version, answer, position)


def led_partitions(port: int) -> list[int]:
    """Returns the partitions of the wide topic that the broker at this port leads."""
    topics = [MetadataRequestTopic(name=WIDE)]
    data = frame(ApiKey.METADATA, METADATA_VERSION, MetadataRequest(topics=topics))
    with socket.create_connection((HOST, port), PATIENCE_S) as connection:
        answer = call(connection, data)
    metadata = decode_answer(ApiKey.METADATA, METADATA_VERSION, answer)
    (here,) = (broker.node_id for broker in metadata.brokers if broker.port == port)
    return sorted(line.partition_index for line in metadata.topics[0].partitions if line.leader_id == here)


def sleep(seconds: float) -> None:
    ends_s = time.monotonic() + seconds
    while time.monotonic() < ends_s:
        time.sleep(0.05)


def waiting_fetch(partitions: list[int], wait_ms: int, offset: int) -> bytes:
    """Returns a Fetch of the first partition from its end `offset`, and of the others, which are empty."""
    request = fetch_request(WIDE, max_wait_ms=wait_ms)
    wanted = [
        FetchPartition(partition=index, fetch_offset=offset if index == partitions[0] else 0, partition_max_bytes=1_000)
        for index in partitions
    ]
    request.topics = [FetchTopic(topic=WIDE, topic_id=UUID_ZERO, partitions=wanted)]
    return frame(ApiKey.FETCH, 12, request)


class Swarm:
    """Rounds of fetches that wait; `counts` has their results."""

    def __init__(self, kind: str, port: int, connections: int) -> None:
        self.end_kind, names = kind.split("-")
        self.port = port
        led = led_partitions(port)
        self.partitions = [led[0]] * REPEATS if names == "repeated" else led
        self.counts = {"answers": 0, "closed": 0, "rounds": 0}
        self.connection_count = connections
        self.sockets: list[socket.socket] = []
        self.producer_socket = socket.create_connection((HOST, port), PATIENCE_S)
        self.offset = self.append()

    def connect_all(self) -> None:
        while len(self.sockets) < self.connection_count:
            self.sockets.append(socket.create_connection((HOST, self.port), PATIENCE_S))

    def append(self) -> int:
        """Appends one record to the first partition, and returns its new end offset."""
        produce = produce_request(WIDE, batch(b"x"), partition=self.partitions[0])
        answer = call(self.producer_socket, frame(ApiKey.PRODUCE, PRODUCE_VERSION, produce))
        (line,) = decode_answer(ApiKey.PRODUCE, PRODUCE_VERSION, answer).responses[0].partition_responses
        assert line.error_code == 0, line
        return int(line.base_offset) + 1

    def run_round(self) -> None:
        """All wait, and all are woken by one event."""
        ends_s = time.monotonic() + 2.0 + self.connection_count / 2_000
        fetch = waiting_fetch(self.partitions, BEYOND_THE_END_S * 1_000, self.offset)
        for connection in self.sockets:
            if self.end_kind == "expiry":
                left_ms = max(1, round((ends_s - time.monotonic()) * 1_000))
                fetch = waiting_fetch(self.partitions, left_ms, self.offset)
            connection.sendall(fetch)
        self.counts["rounds"] += 1
        if self.end_kind == "leaving":
            sleep(READ_S)
            self.disconnect_all()
            return
        if self.end_kind == "append":
            sleep(READ_S)
            self.offset = self.append()
        self.receive_answers()

    def disconnect_all(self) -> None:
        for connection in self.sockets:
            connection.close()
        self.counts["closed"] += len(self.sockets)
        self.sockets = []
        self.connect_all()

    def receive_answers(self) -> None:
        """Receives one answer on each connection; gives up after `ANSWERS_S_MAX`."""
        poll, missing = select.epoll(), {connection.fileno(): connection for connection in self.sockets}
        for fd in missing:
            poll.register(fd, select.EPOLLIN)
        deadline_s = time.monotonic() + ANSWERS_S_MAX
        while missing and time.monotonic() < deadline_s:
            for fd, _ in poll.poll(0.1):
                whole = missing[fd].recv(1_000_000)
                if whole and len(whole) >= 4 + int.from_bytes(whole[:4], "big"):
                    self.counts["answers"] += 1
                poll.unregister(fd)
                del missing[fd]
        poll.close()


def main() -> None:
    kind, port, connections, seconds = sys.argv[1], *map(int, sys.argv[2:5])
    os.nice(NICENESS)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    swarm = Swarm(kind, port, connections)
    swarm.connect_all()
    print(json.dumps({"stands": len(swarm.sockets)}), flush=True)
    deadline_s = time.monotonic() + seconds
    while time.monotonic() < deadline_s:
        swarm.run_round()
    print(json.dumps(swarm.counts), flush=True)


if __name__ == "__main__":
    main()
