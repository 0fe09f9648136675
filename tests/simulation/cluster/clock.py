"""Simulated time, and an event loop for each process on it. Everything runs in one thread; calls that are due at the
same time are made in the order of their requests.
"""

from __future__ import annotations

import asyncio
import inspect
from asyncio import events
from collections import deque
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from itertools import count
from typing import Any, Final

US_PER_MS: Final = 1_000
US_PER_S: Final = 1_000_000
# Wall clock at the beginning of a run.
BEGAN_MS: Final = 1_700_000_000_000
# Calls at one time, above which the run is in an endless loop.
CALLS_AT_ONCE_MAX: Final = 100_000


class Killed(BaseException):
    """The process was killed; no code of the engine may catch this."""


class Livelock(AssertionError):
    """The simulation makes calls endlessly without time passing."""


class Handle:
    """A scheduled call of `loop`, or of the world with None; `call` is None after it was cancelled."""

    __slots__ = ("arguments", "call", "loop")

    is_message = False

    def __init__(self, loop: ProcessLoop | None, call: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        self.loop = loop
        self.call: Callable[..., object] | None = call
        self.arguments = arguments

    def cancel(self) -> None:
        self.call = None

    def cancelled(self) -> bool:
        return self.call is None


class Message(Handle):
    """A call for data in a socket of a process."""

    __slots__ = ()

    is_message = True


class World:
    """All scheduled calls. `now_us` counts from the beginning of the run.

    `turn` is the process whose call is being made, None for calls of the world.
    """

    def __init__(self) -> None:
        self.now_us = 0
        self.turn: ProcessLoop | None = None
        self._coming: list[tuple[int, int, Handle]] = []
        self._numbers = count(1)
        self._ready: deque[Handle] = deque()
        # Schedules a call right after the current one.
        self.soon: Callable[[Handle], object] = self._ready.append

    @property
    def now_ms(self) -> int:
        return self.now_us // US_PER_MS

    def waiting(self) -> Iterable[Handle]:
        """Returns the calls that are due."""
        return tuple(self._ready)

    def at(self, due_us: int, handle: Handle) -> Handle:
        heappush(self._coming, (due_us, next(self._numbers), handle))
        return handle

    def after(self, delay_us: int, call: Callable[..., object], *arguments: Any) -> Handle:
        """Schedules a call of the world."""
        return self.at(self.now_us + delay_us, Handle(None, call, arguments))

    def run_for(self, delay_us: int) -> None:
        """Advances the time and makes all calls that become due."""
        end_us = self.now_us + delay_us
        try:
            self._run_until(end_us)
        finally:
            self.turn = None
            events._set_running_loop(None)
        self.now_us = end_us

    def _run_until(self, end_us: int) -> None:
        """Makes the calls until a time; without helper functions, because most of a run is spent here."""
        ready, coming = self._ready, self._coming
        calls = 0
        while True:
            if ready:
                calls += 1
                if calls > CALLS_AT_ONCE_MAX:
                    raise Livelock(
                        f"{calls} calls at {self.now_ms} ms, "
                        f"the next ones {[_handle_text(waiting) for waiting in ready]}"
                    )
                handle = ready.popleft()
                call = handle.call
                if call is None:
                    continue
            elif coming and coming[0][0] <= end_us:
                due_us, _, handle = heappop(coming)
                call = handle.call
                if call is None:
                    continue
                if due_us > self.now_us:
                    self.now_us = due_us
                    calls = 0
            else:
                break
            loop = handle.loop
            if loop is not self.turn:
                self.turn = loop
                if loop is not None:
                    events._set_running_loop(loop)
            if loop is None:
                call(*handle.arguments)
            elif loop.is_still:
                loop.hold(handle)
            else:
                loop.has_run = True
                try:
                    call(*handle.arguments)
                except Killed:
                    loop.is_dying = True
                if loop.is_dying:
                    # Also if a task swallowed `Killed`.
                    self.turn = None
                    loop.on_death()


def _handle_text(handle: Handle) -> str:
    task = getattr(handle.call, "__self__", None)
    return repr(task.get_coro() if isinstance(task, asyncio.Task) else handle.call)


def _close_unstarted(handle: Handle) -> None:
    """Closes the coroutine of a task that will never start, so that no warning is given for it."""
    task = getattr(handle.call, "__self__", None)
    work = task.get_coro() if isinstance(task, asyncio.Task) else None
    if inspect.iscoroutine(work) and inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
        work.close()


def _do_nothing() -> None:
    """Does nothing; the `on_death` of processes whose disk does not kill them."""


class ProcessLoop(asyncio.AbstractEventLoop):
    """Event loop of one process. While it is paused its calls wait; after its end they are dropped.

    `disk` is the disk that the functions of `os` use in its turns. Once it `is_dying` the current call is the last one,
    and `on_death` ends it. `has_run` is set by its turns and reset by checkers.
    """

    def __init__(self, world: World, name: str, disk: Any = None, on_death: Callable[[], object] = _do_nothing) -> None:
        self._world = world
        self._soon = world.soon
        self._at = world.at
        self.name = name
        self.disk = disk
        self.on_death = on_death
        self.is_over = False
        self.is_paused = False
        # True if it is paused or over.
        self.is_still = False
        self.is_dying = False
        self.has_run = True
        self.held: list[Handle] = []
        self.faults: list[str] = []

    # -- pausing -------------------------------------------------------------------------------------------------------

    def pause(self) -> None:
        self.is_paused = self.is_still = True

    def resume(self, *, messages_first: bool) -> None:
        """Makes the held calls now: in their order, or first those for sockets and then overdue timers."""
        self.is_paused = False
        self.is_still = self.is_over
        held, self.held = self.held, []
        if messages_first:
            held.sort(key=lambda handle: not handle.is_message)
        for handle in held:
            self._world.soon(handle)

    def hold(self, handle: Handle) -> None:
        """Keeps a call that became due while the process is paused."""
        if self.is_over:
            _close_unstarted(handle)
        else:
            self.held.append(handle)

    def end(self) -> None:
        self.is_over = self.is_still = True
        for handle in (*self._world.waiting(), *self.held):
            if handle.loop is self:
                _close_unstarted(handle)
        self.held.clear()

    def message_at(self, due_us: int, call: Callable[..., object], *arguments: Any) -> Handle:
        return self._at(due_us, Message(self, call, arguments))

    # -- interface of asyncio ------------------------------------------------------------------------------------------

    def time(self) -> float:
        return self._world.now_us / US_PER_S

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        handle = Handle(self, callback, args)
        self._soon(handle)
        return handle

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        due_us = self._world.now_us + max(0, round(delay * US_PER_S))
        return self._at(due_us, Handle(self, callback, args))

    def call_at(self, when: float, callback: Callable[..., object], *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        # Never early: a caller that finds its deadline not reached would schedule the same time again.
        due_us = max(self._world.now_us, int(when * US_PER_S) + 1)
        return self._at(due_us, Handle(self, callback, args))

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: Any = None, context: Any = None) -> asyncio.Task[Any]:  # type: ignore[override]
        return asyncio.Task(coro, loop=self)

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:  # type: ignore[override]
        """Runs the function at once: threads of the engine only wait for disks."""
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self.is_over

    def is_closed(self) -> bool:
        return self.is_over

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Records an unhandled error as a fault, except after the end of the process."""
        error = context.get("exception")
        if error is not None and not self.is_over:
            self.faults.append(f"{context.get('message')}: {error!r}")


class ProcessClock:
    """Clocks of a process, of which the wall clock may jump; implements the engine's `clock.Clock`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.jumped_ms = 0

    def now_ms(self) -> int:
        return BEGAN_MS + self._world.now_us // US_PER_MS + self.jumped_ms

    def monotonic_ms(self) -> int:
        return 1_000 + self._world.now_us // US_PER_MS
