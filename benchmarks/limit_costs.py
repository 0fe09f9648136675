"""Cost of limits for a produce and a fetch, in nanoseconds of CPU: `python -m benchmarks.limit_costs`.

A broker runs in this process, and connection sessions are called without a socket: of an instance without limits, and
of one instance with each kind of limit, in turn. Figures are the best of many short rounds. `PENSTOCK_NATIVE=0`
measures the Python sources.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any

from brokers.native.finder import install as install_compiled_modules

ROUNDS, COUNT = 100, 200
FRAME_SIZE_BYTES = 4
# A limit that is never reached.
HIGH = str(10**12)
BYTES = {"producer_byte_rate": HIGH, "consumer_byte_rate": HIGH}
# The limits of clients by instance, with their names in the output.
KINDS: dict[str, tuple[str, dict[str, str]]] = {
    "ins-aaaaaaaa": ("no limit of a client", {}),
    "ins-bbbbbbbb": ("bytes", BYTES),
    "ins-cccccccc": ("request time", {"request_percentage": "100000"}),
    "ins-dddddddd": ("bytes, request time", BYTES | {"request_percentage": "100000"}),
}


class _Channel:
    """A connection that writes nothing."""

    peer_host = "127.0.0.1"
    closed = False
    # Nothing waits on this channel.
    turns: Any = None

    def respond(self, frame: bytes, delay_ms: int = 0, mute: Any = None) -> None:
        assert not delay_ms

    def respond_parts(self, parts: Any, delay_ms: int = 0, on_written: Any = None, mute: Any = None) -> None:
        assert not delay_ms
        for part in parts:
            if not isinstance(part, bytes):
                part.release()

    def finish_without_response(self, delay_ms: int = 0, mute: Any = None) -> None:
        assert not delay_ms

    def close(self, reason: str) -> None:
        raise AssertionError(reason)


def _frame(api_key: int, version: int, request: Any) -> memoryview:
    from brokers.engine.protocol.apis import ApiKey
    from brokers.engine.protocol.codec import encode_request
    from brokers.engine.protocol.headers import encode_request_frame

    body = encode_request(ApiKey(api_key), version, request)
    return memoryview(bytearray(encode_request_frame(ApiKey(api_key), version, 5, "rdkafka", body)))


def _frames() -> dict[tuple[str, str], memoryview]:
    """Returns request frames by call and topic."""
    from brokers.engine.protocol.apis import ApiKey
    from tests.testkit.records import batch, fetch_request, produce_request

    frames = {}
    for topic in ("free", "limited"):
        frames["produce", topic] = _frame(ApiKey.PRODUCE, 9, produce_request(topic, batch(b"x" * 1_000)))
        frames["fetch", topic] = _frame(ApiKey.FETCH, 12, fetch_request(topic, partition_max_bytes=2_000))
    return frames


def _session(broker: Any, instance_id: str) -> Any:
    from brokers.engine.access.principals import ANONYMOUS, Principal
    from brokers.engine.handlers.api_table import DISPATCH_TABLE
    from brokers.engine.handlers.session import Session
    from brokers.engine.protocol.apis import ADVERTISED_TENANT

    channel: Any = _Channel()
    return Session(
        broker.broker.services, channel, Principal(ANONYMOUS, instance_id), ADVERTISED_TENANT, DISPATCH_TABLE
    )


def _nanoseconds(session: Any, frame: memoryview) -> float:
    started = time.thread_time_ns()
    for _ in range(COUNT):
        session.on_frame(frame, FRAME_SIZE_BYTES, len(frame))
    return (time.thread_time_ns() - started) / COUNT


async def _measure(directory: Path) -> None:
    from tests.testkit.in_process import InProcessBroker

    async with InProcessBroker(directory) as broker:
        sessions = {}
        for instance_id, (_, limits) in KINDS.items():
            client = await broker.client(await broker.create_instance(instance_id))
            await broker.create_topic(client, "free")
            await broker.create_topic(
                client, "limited", penstock_produce_byte_rate=HIGH, penstock_consume_byte_rate=HIGH
            )
            if limits:
                await broker.set_quota(instance_id, limits, client_id=None)
            sessions[instance_id] = _session(broker, instance_id)
        frames = _frames()
        best: dict[tuple[str, str, str], float] = {}
        for _ in range(ROUNDS):
            for (call, topic), frame in frames.items():
                for instance_id, session in sessions.items():
                    cell = (call, topic, instance_id)
                    best[cell] = min(best.get(cell, float("inf")), _nanoseconds(session, frame))
            await asyncio.sleep(0)
        for (call, topic, instance_id), nanoseconds in best.items():
            print(f"{call:<8} {topic:<8} {KINDS[instance_id][0]:<22} {nanoseconds:9.0f} ns")


if __name__ == "__main__":
    install_compiled_modules()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as home:
        asyncio.run(_measure(Path(home)))
