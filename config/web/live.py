"""Responses without an end, such as live messages: between their parts they hold a connection and no thread.

A WSGI application marks such a response by an attribute `live` of its iterable. The server calls `step` in a thread of
the lane "live", sends what it returns, and calls it again after `wait_s`. Servers that do not know the attribute
iterate over the response, which then ends after its first part.
"""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from gunicorn.http.wsgi import Response

if TYPE_CHECKING:
    from config.web.worker import Worker


class SteppedBody(Protocol):
    """Parts of a response without an end. In the lane, its steps count as requests of the client `owner`."""

    owner: str

    def step(self) -> tuple[bytes, float | None]:
        """Returns the next part, which may be empty, and the seconds to wait before the next step; None at the end."""
        ...


class SteppedResponse:
    """Live response in progress."""

    def __init__(self, body: SteppedBody, parts: Any, response: Response, environ: dict[str, Any]) -> None:
        self._body = body
        self._parts = parts
        self._response = response
        self._environ = environ
        self._begun = datetime.now(UTC)
        self._is_finished = False
        self.wait_s: float | None = 0.0

    @property
    def owner(self) -> str:
        return self._body.owner

    def step(self) -> bool:
        """Sends the next part; returns True if it was the last one. Raises `OSError` if the client is gone."""
        data, self.wait_s = self._body.step()
        self._response.write(data)
        if self.wait_s is None:
            self._response.close()
        return self.wait_s is None

    def finish(self, worker: Worker, request: Any) -> None:
        """Writes the access log and lets the application release its resources; idempotent."""
        if self._is_finished:
            return
        self._is_finished = True
        with contextlib.suppress(OSError):
            worker.log.access(self._response, request, self._environ, datetime.now(UTC) - self._begun)
        self._parts.close()
