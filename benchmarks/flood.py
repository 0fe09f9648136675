"""Floods of one client id over raw sockets, from a process of its own: as many requests as a broker accepts.

  python -m benchmarks.flood --bootstrap HOST:PORT --kind produce --client-id C --topic T --batch-bytes N \\
      --clients 10 --seconds 60 [--move-interval-s 10]

prints one JSON line at its end, or earlier when SIGTERM ends it: the bytes of answered produces, or the number of other
answers, in each tenth of a second since the first answer; the number of errors by code; and the throttle times. It uses
no client library, so 100 clients are 100 sockets without threads.

  produce      batches of one record to every partition of the topic, or to one after the other
  requests     ApiVersions, 1,000,000 a minute
  metadata     of all topics
  mutations    each connection makes a topic of one partition and deletes it again
  connections  opened, greeted and closed, one after the other
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import uvloop

from benchmarks.raw_requests import (
    API_VERSIONS,
    Target,
    create_topic,
    delete_topic,
    leaders_of,
    metadata,
    produce,
    read_api_versions,
    read_mutation,
    read_produced,
    read_throttled,
)

CLONE = Path(__file__).resolve().parent.parent
KINDS = ("produce", "requests", "metadata", "mutations", "connections")
SLOT_MS: Final = 100
# Requests of a connection that are in flight at once.
WINDOW: Final = 5
REQUESTS_PER_S: Final = 1_000_000 / 60
PACED_WINDOW: Final = 2_000
PACE_S: Final = 0.01
FIRST_ANSWER_S: Final = 30


class PreparedRequest(NamedTuple):
    """A request to send: its frame, and the bytes or the number that its response counts for (`weight`).

    `read` returns the error code and the throttle time in ms of its response.
    """

    frame: bytes
    weight: int
    read: Callable[[bytes], tuple[int, int]]


NextRequest = Callable[[], PreparedRequest]


@dataclass
class Tally:
    """Counts of responses. `slots` has the weight of the responses in each slot since the first one, at `began_s`
    on the clock of the event loop.
    """

    began_s: float | None = None
    slots: list[int] = field(default_factory=list)
    errors: Counter[int] = field(default_factory=Counter)
    throttles_ms: list[int] = field(default_factory=list)
    answers: int = 0
    lost: int = 0

    def record_response(self, now_s: float, weight: int, error: int, throttle_ms: int) -> None:
        """Counts a response and its throttle time; `slots` count only responses without an error."""
        if self.began_s is None:
            self.began_s = now_s
        self.answers += 1
        if throttle_ms:
            self.throttles_ms.append(throttle_ms)
        if error:
            self.errors[error] += 1
            return
        self.slots[self._extend_to_slot(now_s)] += weight

    def _extend_to_slot(self, now_s: float) -> int:
        """Returns the slot of the given time; adds the empty slots before it."""
        slot = int((now_s - (self.began_s or now_s)) * 1000 / SLOT_MS)
        self.slots += [0] * (slot + 1 - len(self.slots))
        return slot

    def end(self, now_s: float) -> None:
        """Ends the counting, with empty slots up to now."""
        self._extend_to_slot(now_s)

    def summary(self) -> dict[str, Any]:
        delays_ms = sorted(self.throttles_ms) or [0]
        return {
            "slots": self.slots,
            "answers": self.answers,
            "lost": self.lost,
            "errors": {str(code): times for code, times in sorted(self.errors.items())},
            "throttled": len(self.throttles_ms),
            "throttle_ms_mean": round(statistics.fmean(delays_ms), 1),
            "throttle_ms_p50": delays_ms[len(delays_ms) // 2],
            "throttle_ms_p99": delays_ms[min(len(delays_ms) - 1, int(len(delays_ms) * 0.99))],
            "throttle_ms_max": delays_ms[-1],
        }


class FloodConnection(asyncio.Protocol):
    """One connection. Responses arrive in the order of the requests."""

    def __init__(self, flood: Flood, next_request: NextRequest, partition: int) -> None:
        self.partition = partition
        self._flood = flood
        self._next_request = next_request
        self._in_flight: list[PreparedRequest] = []
        self._received = bytearray()
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)  # the transports of uvloop are no subclass of it
        self.fill()

    def fill(self) -> None:
        """Sends requests up to the window, if it is this connection's turn and the flood is not paced."""
        if not self._flood.is_paced and self._flood.is_turn_of(self.partition):
            self.send(WINDOW - len(self._in_flight))

    def send(self, request_count: int) -> None:
        """Sends `request_count` requests, but has at most `PACED_WINDOW` of them in flight."""
        if self._transport is None or self._transport.is_closing():
            return
        requests = [
            self._next_request() for _ in range(max(0, min(request_count, PACED_WINDOW - len(self._in_flight))))
        ]
        self._in_flight += requests
        if requests:
            self._transport.write(b"".join(request.frame for request in requests))

    def data_received(self, data: bytes) -> None:
        received, answered = self._received, 0
        received += data
        while len(received) >= 4 and len(received) >= (end := 4 + int.from_bytes(received[:4], "big")):
            request = self._in_flight[answered]
            answered += 1
            self._flood.record_response(request.weight, *request.read(bytes(received[4:end])))
            del received[:end]
        del self._in_flight[:answered]
        self.fill()

    def connection_lost(self, error: Exception | None) -> None:
        if not self._flood.has_ended:
            self._flood.tally.lost += 1

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class Flood:
    """All connections of one kind, and their tally."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.is_paced = args.kind == "requests"
        self.tally = Tally()
        self.has_ended = False
        self._connections: list[FloodConnection] = []
        self._partitions = 1
        self._has_begun = asyncio.Event()

    def record_response(self, weight: int, error: int, throttle_ms: int) -> None:
        """Counts a response."""
        self.tally.record_response(self.now_s(), weight, error, throttle_ms)
        self._has_begun.set()

    def now_s(self) -> float:
        return asyncio.get_running_loop().time()

    def is_turn_of(self, partition: int) -> bool:
        """True if connections of this partition may send now; with a move interval, of one partition at a time."""
        if self.has_ended:
            return False
        move_interval_s, began_s = self.args.move_interval_s, self.tally.began_s
        if not move_interval_s:
            return True
        move_count = 0 if began_s is None else int((self.now_s() - began_s) / move_interval_s)
        return partition == move_count % self._partitions

    async def run(self) -> Tally:
        """Runs until the time is over or SIGTERM ends the flood; returns the counts."""
        if self.args.kind == "connections":
            tasks = [asyncio.create_task(self._open_and_close()) for _ in range(self.args.clients)]
        else:
            tasks = [asyncio.create_task(self._drive_connections())]
            await self._connect()
        await self._wait_for_end()
        self.has_ended = True
        self.tally.end(self.now_s())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in self._connections:
            connection.close()
        return self.tally

    async def _wait_for_end(self) -> None:
        async with asyncio.timeout(FIRST_ANSWER_S):
            await self._has_begun.wait()
        ended = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.args.seconds):
                await ended.wait()

    async def _connect(self) -> None:
        loop, args = asyncio.get_running_loop(), self.args
        sources = self._request_sources()
        for _ in range(args.clients):
            for partition, (target, new_source) in enumerate(sources):
                connection = FloodConnection(self, new_source(), partition)
                self._connections.append(connection)
                await loop.create_connection(lambda connection=connection: connection, *target)  # type: ignore[misc]

    def _request_sources(self) -> list[tuple[Target, Callable[[], NextRequest]]]:
        """Returns for each partition the address to which a client connects, and a factory of its source of requests.

        Requests of other kinds than produces count as those of one partition.
        """
        args, client_id = self.args, self.args.client_id
        host, _, port = args.bootstrap.split(",")[0].rpartition(":")
        first_target: Target = host, int(port)
        if args.kind == "produce":
            leaders = leaders_of(first_target, args.topic)
            self._partitions = len(leaders)
            read = read_produced(args.topic)
            frames = [produce(client_id, args.topic, index, args.batch_bytes) for index in range(len(leaders))]
            frames_by_leader = zip(leaders, frames, strict=True)
            return [(target, _repeated(frame, read, len(frame) - 4)) for target, frame in frames_by_leader]
        if args.kind == "mutations":
            run, numbers = time.time_ns(), count()
            return [(first_target, lambda: _mutations(client_id, f"flood-{run}-{next(numbers)}"))]
        if args.kind == "metadata":
            return [(first_target, _repeated(metadata(client_id), read_throttled))]
        return [(first_target, _repeated(API_VERSIONS, read_api_versions))]

    async def _drive_connections(self) -> None:
        """Sends paced requests, and wakes connections whose turn begins."""
        started_s, sent_count = self.now_s(), 0.0
        while True:
            await asyncio.sleep(PACE_S)
            if self.is_paced and self._connections:
                request_count = (self.now_s() - started_s) * REQUESTS_PER_S - sent_count
                sent_count += request_count
                for connection in self._connections:
                    connection.send(round(request_count / len(self._connections)))
            elif self.args.move_interval_s:
                for connection in self._connections:
                    connection.fill()

    async def _open_and_close(self) -> None:
        host, _, port = self.args.bootstrap.split(",")[0].rpartition(":")
        while not self.has_ended:
            try:
                reader, writer = await asyncio.open_connection(host, int(port))
                writer.write(API_VERSIONS)
                await reader.readexactly(4)
                self.record_response(1, 0, 0)
                writer.transport.abort()
            except (OSError, asyncio.IncompleteReadError):
                self.tally.lost += 1
                await asyncio.sleep(PACE_S)


def _repeated(frame: bytes, read: Callable[[bytes], tuple[int, int]], weight: int = 1) -> Callable[[], NextRequest]:
    """Returns a factory of sources that repeat one request. The weight of a produce is the size that quotas count."""
    request = PreparedRequest(frame, weight, read)
    return lambda: lambda: request


def _mutations(client_id: str, prefix: str) -> NextRequest:
    def requests() -> Iterator[PreparedRequest]:
        for number in count():
            name = f"{prefix}-{number}"
            yield PreparedRequest(create_topic(client_id, name), 1, read_mutation)
            yield PreparedRequest(delete_topic(client_id, name), 1, read_mutation)

    return requests().__next__


def begin(
    bootstrap: str, kind: str, client_id: str, *, seconds: float, module: str = "benchmarks.flood", **options: Any
) -> subprocess.Popen[bytes]:
    """Starts a flood, or the load of another module with the same arguments, in a process of its own; see `finish`."""
    words = [
        word
        for name, value in options.items()
        if value is not None
        for word in (f"--{name.replace('_', '-')}", str(value))
    ]
    return subprocess.Popen(
        [
            sys.executable, "-m", module, "--bootstrap", bootstrap, "--kind", kind,
            "--client-id", client_id, "--seconds", str(seconds), *words,
        ],
        stdout=subprocess.PIPE, cwd=CLONE,
    )  # fmt: skip


def finish(process: subprocess.Popen[bytes], after_s: float | None = None) -> dict[str, Any]:
    """Returns the flood's figures; ends it after `after_s`. Raises SystemExit if the process failed."""
    try:
        out, _ = process.communicate(timeout=after_s)
    except subprocess.TimeoutExpired:
        process.terminate()
        out, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"a flood ended with {process.returncode}")
    result: dict[str, Any] = json.loads(out)
    return result


def per_s(flood: dict[str, Any], after_s: float, until_s: float) -> float:
    """Returns the responses per second between two times since the first response."""
    slots = flood["slots"][round(after_s * 1000 / SLOT_MS) : round(until_s * 1000 / SLOT_MS)]
    return sum(slots) / (until_s - after_s)


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.flood", description="One flood.")
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--kind", choices=KINDS, required=True)
    parser.add_argument("--client-id", required=True)
    parser.add_argument("--topic", default="flood")
    parser.add_argument("--batch-bytes", type=int, default=100_000)
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--move-interval-s", type=float, default=0.0, help="seconds at each partition; 0: all at once")
    print(json.dumps(uvloop.run(Flood(parser.parse_args()).run()).summary()))


if __name__ == "__main__":
    main()
