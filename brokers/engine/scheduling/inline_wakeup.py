"""An awaitable whose task continues inside the call that ends the wait.

A future wakes its task in the next iteration of the event loop, where the code that ended the wait can neither measure
nor limit what the task does. `InlineWakeup.wake` runs the task at once, until its next wait, so that the caller can
charge the step to an account and stop after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextvars import Context
from typing import Any


class InlineWakeup:
    """A wait of one task.

    It implements what `asyncio.Task` needs of an awaitable, and nothing else of `asyncio.Future`.
    """

    __slots__ = ("_asyncio_future_blocking", "_callback", "_context", "_is_cancelled", "_is_done", "_loop", "_message")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._asyncio_future_blocking = False
        self._loop = loop
        self._callback: Callable[[Any], object] | None = None
        self._context: Context | None = None
        self._is_done = self._is_cancelled = False
        self._message: Any = None

    def wake(self) -> None:
        """Ends the wait and runs the waiting task until its next wait; if called within another task, in the next
        iteration of the event loop. Does nothing if the wait was cancelled.
        """
        if self._is_done:
            return
        self._is_done = True
        callback, self._callback = self._callback, None
        context, self._context = self._context, None
        if callback is None:
            return
        if asyncio.current_task(self._loop) is not None:
            self._loop.call_soon(callback, self, context=context)
        elif context is None:
            callback(self)
        else:
            context.run(callback, self)

    def on_turn(self) -> None:
        """Continues in the turn of the instance: the task keeps the turn until its next wait."""
        self.wake()

    def __await__(self) -> Generator[Any, None, None]:
        if not self._is_done:
            self._asyncio_future_blocking = True
            yield self
        self.result()

    # -- for `asyncio.Task` -------------------------------------------------------------------------------------------

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def done(self) -> bool:
        return self._is_done

    def cancelled(self) -> bool:
        return self._is_cancelled

    def result(self) -> None:
        if self._is_cancelled:
            raise asyncio.CancelledError if self._message is None else asyncio.CancelledError(self._message)

    def add_done_callback(self, callback: Callable[[Any], object], *, context: Context | None = None) -> None:
        assert self._callback is None, "only one task can wait"
        if self._is_done:
            self._loop.call_soon(callback, self, context=context)
        else:
            self._callback, self._context = callback, context

    def cancel(self, msg: Any = None) -> bool:
        """Ends the wait with `CancelledError`, in the next iteration of the event loop like a future."""
        if self._is_done:
            return False
        self._is_done = self._is_cancelled = True
        self._message = msg
        callback, self._callback = self._callback, None
        if callback is not None:
            self._loop.call_soon(callback, self, context=self._context)
        return True
