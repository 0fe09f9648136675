"""Life cycle of the process: event loop, takeover from a predecessor, limit of descriptors, stop, and periodic work."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any, Final

import structlog

from brokers.contract.process import CONTINUE_MESSAGE, READY_MESSAGE

log = structlog.get_logger(__name__)

STOP_TIMEOUT_S: Final = 5.0
# Time for which a thread may keep the interpreter from the event loop: a fifth of Python's default.
THREAD_TURN_S: Final = 0.001
# Descriptors of the process reserved for segments in use, logs being flushed, ports, peers and ZooKeeper.
RESERVED_DESCRIPTORS: Final = 2_000
_STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_STANDARD_INPUT: Final = 0
PRIVATE_UMASK: Final = 0o077
PRIVATE_DIRECTORY: Final = 0o700


def make_directories_private(directories: Iterable[Path]) -> None:
    """Makes existing log directories private (mode 0700).

    An earlier version created directories and files that other users can read; a private directory protects its files.
    """
    for directory in directories:
        try:
            if directory.is_dir():
                directory.chmod(PRIVATE_DIRECTORY)
        except OSError as error:
            log.warning("log_directory_open_to_others", directory=str(directory), reason=error.strerror)


def wait_for_takeover() -> bool:
    """Waits until the predecessor of this process, which still serves clients, has ended (decision 68).

    Reports over standard input, which is a socket, that this process is ready. Returns False if the parent ended or
    cancelled the takeover.
    """
    try:
        os.write(_STANDARD_INPUT, READY_MESSAGE)
        message = os.read(_STANDARD_INPUT, len(CONTINUE_MESSAGE))
    except OSError:
        return False
    devnull = os.open(os.devnull, os.O_RDONLY)
    os.dup2(devnull, _STANDARD_INPUT)
    os.close(devnull)
    return message == CONTINUE_MESSAGE


def run(main: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Runs `main` on uvloop, or on asyncio's own loop if that is not installed. Returns its exit code."""
    sys.setswitchinterval(THREAD_TURN_S)
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main())
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())


def raise_descriptor_limit() -> int:
    """Raises the limit of descriptors to the maximum of this process, and returns it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def limit_connections(descriptors: int, wanted: int) -> int:
    """Returns the number of connections that clients may have, at most `wanted`, and logs a reduction.

    Connections must leave descriptors for logs, without which nothing can be read or written.
    """
    granted = min(wanted, max(descriptors - RESERVED_DESCRIPTORS, descriptors // 2))
    if granted < wanted:
        log.warning("connections_limited", wanted=wanted, granted=granted, descriptors=descriptors)
    return granted


def exit_code(stop: Stop) -> int:
    """Returns the exit code of the process: 1 after a fault, else 0."""
    return 0 if stop.fault is None else 1


class Stop:
    """A request to stop, by a signal or by a fault that ends the process."""

    def __init__(self) -> None:
        self._requested = asyncio.Event()
        self.fault: str | None = None

    def listen(self, loop: asyncio.AbstractEventLoop) -> None:
        """Makes SIGTERM and SIGINT request the stop."""
        for number in _STOP_SIGNALS:
            loop.add_signal_handler(number, self.request)

    def request(self) -> None:
        """Requests a clean stop."""
        self._requested.set()

    def fail(self, reason: str) -> None:
        """Stops the process after a fault of the broker itself, or in conditions in which it may not serve."""
        if self.fault is None:
            self.fault = reason
            log.error("process_must_stop", reason=reason)
        self._requested.set()

    async def wait(self) -> None:
        """Waits until a stop is requested."""
        await self._requested.wait()


class Periodic:
    """Periodic and background work. If any of it ends, with or without an exception, the process stops."""

    def __init__(self, stop: Stop) -> None:
        self._stop = stop
        self._tasks: list[asyncio.Task[None]] = []

    def every(self, interval_s: float, work: Callable[[], object | Awaitable[object]]) -> None:
        """Runs `work` repeatedly, each time `interval_s` seconds after the end of the previous run."""
        self._start(self._repeat(lambda: interval_s, work))

    def aligned(
        self, interval_ms: int, now_ms: Callable[[], int], work: Callable[[], object | Awaitable[object]]
    ) -> None:
        """Runs `work` at multiples of the interval on the wall clock."""
        self._start(self._repeat(lambda: (interval_ms - now_ms() % interval_ms) / 1000, work))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name=getattr(work, "__qualname__", repr(work)))
        task.add_done_callback(self._on_task_end)
        self._tasks.append(task)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Runs work that does not end by itself, and returns its task; `stop` cancels it."""
        self._start(work)
        return self._tasks[-1]

    async def _repeat(self, delay_s: Callable[[], float], work: Callable[[], object | Awaitable[object]]) -> None:
        while True:
            await asyncio.sleep(delay_s())
            result = work()
            if asyncio.iscoroutine(result):
                await result

    def _on_task_end(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        if task.exception() is not None:
            log.error("background_work_failed", exc_info=task.exception())
            self._stop.fail(f"background work failed: {task.exception()!r}")
        else:
            self._stop.fail(f"background work ended: {task.get_name()}")

    async def stop(self) -> None:
        """Cancels all work and waits until it has ended."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
