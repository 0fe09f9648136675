"""Fetches of one tenant that wait, and end together: `python -m tests.adversarial.waiting_swarm KIND PORT CONNECTIONS
SECONDS`.

KIND is how the waits end, and what they name: `append-repeated` (one small Produce; a Fetch names one partition 400
times), `append-wide` (200 partitions), `expiry-wide` (all waits end in the same 20 ms), `leaving-wide` (all connections
close at once). Prints one JSON line when the connections stand, and one with what it did at the end.
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
# For all waits to be answered, on a machine with other work; on a quiet one they take a second.
ANSWERS_S_MAX: Final = 60.0
# For the broker to read the last requests. Those that it reads later are not woken with the others.
READ_S: Final = 0.5


def ask(connected: socket.socket, data: bytes) -> bytes:
    """The answer to one request, without its size."""
    connected.sendall(data)
    received = b""
    while len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4], "big"):
        more = connected.recv(65_536)
        if not more:
            raise ConnectionError("closed by the broker")
        received += more
    return received[4:]


def decoded(api_key: ApiKey, version: int, answer: bytes) -> Any:
    _, position = headers.decode_response_header(api_key, version, answer, 0, len(answer))
    return codec.decode_response(api_key, version, answer, position)


def led_here(port: int) -> list[int]:
    """The partitions of the wide topic that the broker at this port leads."""
    topics = [MetadataRequestTopic(name=WIDE)]
    data = frame(ApiKey.METADATA, METADATA_VERSION, MetadataRequest(topics=topics))
    with socket.create_connection((HOST, port), PATIENCE_S) as connected:
        answer = ask(connected, data)
    metadata = decoded(ApiKey.METADATA, METADATA_VERSION, answer)
    (here,) = (broker.node_id for broker in metadata.brokers if broker.port == port)
    return sorted(line.partition_index for line in metadata.topics[0].partitions if line.leader_id == here)


def pause(seconds: float) -> None:
    ends_s = time.monotonic() + seconds
    while time.monotonic() < ends_s:
        time.sleep(0.05)


def waiting(partitions: list[int], wait_ms: int, offset: int) -> bytes:
    """The first of the partitions is read from `offset`, where it ends; nothing was written to the others."""
    request = fetch_request(WIDE, max_wait_ms=wait_ms)
    wanted = [
        FetchPartition(partition=index, fetch_offset=offset if index == partitions[0] else 0, partition_max_bytes=1_000)
        for index in partitions
    ]
    request.topics = [FetchTopic(topic=WIDE, topic_id=UUID_ZERO, partitions=wanted)]
    return frame(ApiKey.FETCH, 12, request)


class Swarm:
    """Rounds of fetches that wait; `counts` says what became of them."""

    def __init__(self, kind: str, port: int, connections: int) -> None:
        self.end, names = kind.split("-")
        self.port = port
        led = led_here(port)
        self.partitions = [led[0]] * REPEATS if names == "repeated" else led
        self.counts = {"answers": 0, "closed": 0, "rounds": 0}
        self.wanted = connections
        self.sockets: list[socket.socket] = []
        self.producer = socket.create_connection((HOST, port), PATIENCE_S)
        self.offset = self.append()

    def stand(self) -> None:
        while len(self.sockets) < self.wanted:
            self.sockets.append(socket.create_connection((HOST, self.port), PATIENCE_S))

    def append(self) -> int:
        """Adds one record to the first of the partitions, and returns where they end now."""
        produce = produce_request(WIDE, batch(b"x"), partition=self.partitions[0])
        answer = ask(self.producer, frame(ApiKey.PRODUCE, PRODUCE_VERSION, produce))
        (line,) = decoded(ApiKey.PRODUCE, PRODUCE_VERSION, answer).responses[0].partition_responses
        assert line.error_code == 0, line
        return int(line.base_offset) + 1

    def round(self) -> None:
        """All wait, and all are woken by one event."""
        ends_s = time.monotonic() + 2.0 + self.wanted / 2_000
        fetch = waiting(self.partitions, BEYOND_THE_END_S * 1_000, self.offset)
        for connected in self.sockets:
            if self.end == "expiry":
                left_ms = max(1, round((ends_s - time.monotonic()) * 1_000))
                fetch = waiting(self.partitions, left_ms, self.offset)
            connected.sendall(fetch)
        self.counts["rounds"] += 1
        if self.end == "leaving":
            pause(READ_S)
            self.leave()
            return
        if self.end == "append":
            pause(READ_S)
            self.offset = self.append()
        self.receive()

    def leave(self) -> None:
        for connected in self.sockets:
            connected.close()
        self.counts["closed"] += len(self.sockets)
        self.sockets = []
        self.stand()

    def receive(self) -> None:
        """One answer on each; those that do not come are not waited for."""
        poll, missing = select.epoll(), {connected.fileno(): connected for connected in self.sockets}
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
    swarm.stand()
    print(json.dumps({"stands": len(swarm.sockets)}), flush=True)
    deadline_s = time.monotonic() + seconds
    while time.monotonic() < deadline_s:
        swarm.round()
    print(json.dumps(swarm.counts), flush=True)


if __name__ == "__main__":
    main()
