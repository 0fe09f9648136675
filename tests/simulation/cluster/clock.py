"""Time that moves by hand, and the event loop of each process on it. One thread; what is due at one time goes in the
order in which it was asked for.
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
# The wall clock when a run begins.
BEGAN_MS: Final = 1_700_000_000_000
# So many calls without time going by: somebody waits for itself.
CALLS_AT_ONCE_MAX: Final = 100_000


class Killed(BaseException):
    """The process is no more; nobody below may catch it."""


class Livelock(AssertionError):
    """The world is busy without end."""


class Handle:
    """A call to come. `loop` is whose it is, None for the world's own; `call` is None when it was cancelled."""

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
    """What a process finds in one of its sockets."""

    __slots__ = ()

    is_message = True


class World:
    """Everything that is going to happen. `now_us` counts from the beginning of the run. `turn` is the process whose
    calls are being made, None when it is nobody's.
    """

    def __init__(self) -> None:
        self.now_us = 0
        self.turn: ProcessLoop | None = None
        self._coming: list[tuple[int, int, Handle]] = []
        self._numbers = count(1)
        self._ready: deque[Handle] = deque()
        # A call that is made as soon as the present one is over.
        self.soon: Callable[[Handle], object] = self._ready.append

    @property
    def now_ms(self) -> int:
        return self.now_us // US_PER_MS

    def waiting(self) -> Iterable[Handle]:
        """Calls that are about to be made."""
        return tuple(self._ready)

    def at(self, due_us: int, handle: Handle) -> Handle:
        heappush(self._coming, (due_us, next(self._numbers), handle))
        return handle

    def after(self, delay_us: int, call: Callable[..., object], *arguments: Any) -> Handle:
        """A call of the world's own."""
        return self.at(self.now_us + delay_us, Handle(None, call, arguments))

    def run_for(self, delay_us: int) -> None:
        """Lets that much time go by, and everything happen that is due in it."""
        end_us = self.now_us + delay_us
        try:
            self._run_until(end_us)
        finally:
            self.turn = None
            events._set_running_loop(None)
        self.now_us = end_us

    def _run_until(self, end_us: int) -> None:
        """Most of a run is spent here, so nothing of the usual case is a function of its own."""
        ready, coming = self._ready, self._coming
        calls = 0
        while True:
            if ready:
                calls += 1
                if calls > CALLS_AT_ONCE_MAX:
                    raise Livelock(
                        f"{calls} calls at {self.now_ms} ms, the next ones {[_sent(item) for item in ready]}"
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
                    # Also when a task kept `Killed` for itself.
                    self.turn = None
                    loop.on_death()


def _sent(handle: Handle) -> str:
    task = getattr(handle.call, "__self__", None)
    return repr(task.get_coro() if isinstance(task, asyncio.Task) else handle.call)


def _never_begun(handle: Handle) -> None:
    """The first step of a task that will not come: nobody is to wonder later why it was not awaited."""
    task = getattr(handle.call, "__self__", None)
    work = task.get_coro() if isinstance(task, asyncio.Task) else None
    if inspect.iscoroutine(work) and inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
        work.close()


def _nothing() -> None:
    """Most processes have no disk that ends them."""


class ProcessLoop(asyncio.AbstractEventLoop):
    """The loop of one process. While it is paused its calls wait; after its end they never come.

    `disk` is what the functions of `os` serve in its turns. Once it `is_dying` its present call is the last, and
    `on_death` ends it. `has_run` says that it had a turn; whoever looks at processes from outside resets it.
    """

    def __init__(self, world: World, name: str, disk: Any = None, on_death: Callable[[], object] = _nothing) -> None:
        self._world = world
        self._soon = world.soon
        self._at = world.at
        self.name = name
        self.disk = disk
        self.on_death = on_death
        self.is_over = False
        self.is_paused = False
        # One of both.
        self.is_still = False
        self.is_dying = False
        self.has_run = True
        self.held: list[Handle] = []
        self.faults: list[str] = []

    # -- whether it runs -----------------------------------------------------------------------------------------------

    def pause(self) -> None:
        self.is_paused = self.is_still = True

    def resume(self, *, messages_first: bool) -> None:
        """What was held comes now: in its order, or first what lies in the sockets and then what is overdue."""
        self.is_paused = False
        self.is_still = self.is_over
        held, self.held = self.held, []
        if messages_first:
            held.sort(key=lambda handle: not handle.is_message)
        for handle in held:
            self._world.soon(handle)

    def hold(self, handle: Handle) -> None:
        """A call whose time came while the process stands still."""
        if self.is_over:
            _never_begun(handle)
        else:
            self.held.append(handle)

    def end(self) -> None:
        self.is_over = self.is_still = True
        for handle in (*self._world.waiting(), *self.held):
            if handle.loop is self:
                _never_begun(handle)
        self.held.clear()

    def message_at(self, due_us: int, call: Callable[..., object], *arguments: Any) -> Handle:
        return self._at(due_us, Message(self, call, arguments))

    # -- what asyncio asks of a loop -----------------------------------------------------------------------------------

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
        # Never early: who finds that its time has not come would ask for the same time again.
        due_us = max(self._world.now_us, int(when * US_PER_S) + 1)
        return self._at(due_us, Handle(self, callback, args))

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: Any = None, context: Any = None) -> asyncio.Task[Any]:  # type: ignore[override]
        return asyncio.Task(coro, loop=self)

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:  # type: ignore[override]
        """At once: threads of the engine only wait for disks."""
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
        """What nobody caught. A task that went with its process is no fault."""
        error = context.get("exception")
        if error is not None and not self.is_over:
            self.faults.append(f"{context.get('message')}: {error!r}")


class ProcessClock:
    """A process's clocks: the wall clock may jump, the other one does not. `clock.Clock` fits."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.jumped_ms = 0

    def now_ms(self) -> int:
        return BEGAN_MS + self._world.now_us // US_PER_MS + self.jumped_ms

    def monotonic_ms(self) -> int:
        return 1_000 + self._world.now_us // US_PER_MS
