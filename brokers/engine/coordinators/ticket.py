"""Handle of a call that may have to wait: for other members, for a commit, or for both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Ticket:
    """Handle of one pending call, which is answered at most once.

    `error_reply(code)` makes the reply of this call for an error code. `on_reply` gets a reply that comes after
    `Runtime.perform` has returned.
    """

    __slots__ = ("_error_reply", "done", "on_reply")

    def __init__(self, error_reply: Callable[[int], Any], on_reply: Callable[[Any], object]) -> None:
        self._error_reply = error_reply
        self.on_reply = on_reply
        self.done = False

    def error_reply(self, code: int) -> Any:
        """Returns the reply of this call for an error code."""
        return self._error_reply(code)

    def deliver(self, reply: Any) -> None:
        """Passes the reply to `on_reply`; does nothing if the call was answered or abandoned before."""
        if not self.done:
            self.done = True
            self.on_reply(reply)

    def fail(self, code: int) -> None:
        """Answers the call with an error code, unless it was answered or abandoned before."""
        if not self.done:
            self.deliver(self._error_reply(code))

    def abandon(self) -> None:
        """Drops the reply because the client has disconnected. The decision itself stands."""
        self.done = True
