"""Longest turn of the event loop for the longest legal requests, in ms of CPU: `python -m benchmarks.longest_turns`.

A broker runs in this process, and a client sends each request several times. A line has the least and the greatest of
the longest turns, and the callback of the last one. CPU time is counted, so programs beside it hardly matter; wall time
is what `python -m tests.adversarial` measures. `PENSTOCK_NATIVE=0` measures the Python sources. Arguments are names of
calls, for example `metadata`; without any, all calls are measured, which takes minutes.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import tempfile
import time
from asyncio.events import Handle
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from brokers.native.finder import install as install_compiled_modules

REPETITIONS: Final = 3
RESPONSE_TIMEOUT_S: Final = 30.0
INSTANCE_ID: Final = "ins-aaaaaaaa"


class LongestTurn:
    """Measures callbacks of the event loop of this thread, and keeps the longest one since `reset`."""

    def __init__(self) -> None:
        self.ms = 0.0
        self.callback: Any = None

    def install(self) -> None:
        run_handle: Callable[[Handle], None] = Handle._run

        def run_measured(handle: Any) -> None:
            callback = handle._callback
            started_ns = time.thread_time_ns()
            run_handle(handle)
            spent_ms = (time.thread_time_ns() - started_ns) / 1e6
            if spent_ms > self.ms:
                self.ms, self.callback = spent_ms, callback

        setattr(Handle, "_run", run_measured)  # noqa: B010 (mypy allows no assignment to a method)

    def reset(self) -> None:
        self.ms, self.callback = 0.0, None

    def description(self) -> str:
        """Returns the name of the coroutine or function that ran in the longest turn."""
        owner = getattr(self.callback, "__self__", self.callback)
        if isinstance(owner, asyncio.Task):
            coroutine = owner.get_coro()
            return f"task {getattr(coroutine, '__qualname__', coroutine)}"
        return getattr(self.callback, "__qualname__", repr(self.callback))


async def _measure(directory: Path, calls: list[str]) -> None:
    from brokers.engine.protocol.apis import ADVERTISED_TENANT
    from tests.adversarial.hostile import TOPIC, longest_requests
    from tests.adversarial.test_long_requests import OTHER_APIS
    from tests.testkit.in_process import InProcessBroker

    longest = LongestTurn()
    longest.install()
    async with InProcessBroker(directory) as broker:
        port = await broker.create_instance(INSTANCE_ID)
        await broker.create_topic(await broker.client(port), TOPIC)
        # A broker collects garbage seldom and in small parts; the modules of this process are not a broker's.
        gc.collect()
        gc.freeze()
        gc.disable()
        for api_key in OTHER_APIS:
            name = api_key.name.lower()
            if calls and name not in calls:
                continue
            for path, frame in longest_requests(api_key, ADVERTISED_TENANT[api_key][1], TOPIC):
                turns_ms = [await _longest_ms(longest, port, frame) for _ in range(REPETITIONS)]
                print(
                    f"{name:<32} {path:<36} {len(frame):>9,} bytes   "
                    f"{min(turns_ms):5.1f} to {max(turns_ms):5.1f} ms   {longest.description()}",
                    flush=True,
                )


async def _longest_ms(longest: LongestTurn, port: int, frame: bytes) -> float:
    """Sends a request on a new connection, and returns the longest turn until its response or the end of it."""
    from tests.testkit.wire import WireClient

    client = await WireClient.connect(port)
    longest.reset()
    await client.send_raw(frame)
    try:
        await asyncio.wait_for(client.receive_frame(), RESPONSE_TIMEOUT_S)
    except (asyncio.IncompleteReadError, ConnectionError):
        pass  # refused: the connection is closed
    finally:
        client.writer.close()
    return longest.ms


if __name__ == "__main__":
    install_compiled_modules()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as home:
        asyncio.run(_measure(Path(home), sys.argv[1:]))
