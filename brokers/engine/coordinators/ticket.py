"""A call that may have to wait: for other members, for a commit, or for both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Ticket:
    """Answered once. `failed(code)` makes the reply of this call for an error code; `on_reply` is told the reply if it
    comes after `perform` has returned.
    """

    __slots__ = ("_failed", "done", "on_reply")

    def __init__(self, failed: Callable[[int], Any], on_reply: Callable[[Any], object]) -> None:
        self._failed = failed
        self.on_reply = on_reply
        self.done = False

    def failure(self, code: int) -> Any:
        return self._failed(code)

    def deliver(self, reply: Any) -> None:
        """Does nothing if it was answered, or if nobody waits any more."""
        if not self.done:
            self.done = True
            self.on_reply(reply)

    def fail(self, code: int) -> None:
        if not self.done:
            self.deliver(self._failed(code))

    def abandon(self) -> None:
        """The client went away. What it asked for stays decided."""
        self.done = True
