"""Server-sent events: responses without an end, which occupy a connection of the web server but no thread."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

from django.db import close_old_connections
from django.http import StreamingHttpResponse

EVENT_STREAM: Final = "text/event-stream"


class LiveBody(Protocol):
    """Body of a response without an end, whose steps `config.web.live` calls.

    `owner` identifies the client whose fair share of the server's threads the steps take.
    """

    owner: str

    def step(self) -> tuple[bytes, float | None]:
        """Returns the next part and the seconds to wait before the next step; None at the end."""
        ...

    def close(self) -> None:
        """Releases resources of the response, such as its count in a limit; idempotent."""
        ...


class ServedBody:
    """A `LiveBody` whose steps run outside of a request, in any free thread. Each step renews that thread's connection
    to the database if it is too old, as Django does around a request.
    """

    def __init__(self, body: LiveBody) -> None:
        self.body = body
        self.owner = body.owner

    def step(self) -> tuple[bytes, float | None]:
        close_old_connections()
        try:
            return self.body.step()
        finally:
            close_old_connections()


class LiveResponse(StreamingHttpResponse):
    """Events of a `LiveBody`. A server without support for it ends the response after the first parts, and the reader
    connects again.
    """

    def __init__(self, body: LiveBody) -> None:
        super().__init__(_first_parts(body), content_type=f"{EVENT_STREAM}; charset=utf-8")
        self.live = ServedBody(body)
        self.headers["Cache-Control"] = "no-store"
        self.headers["X-Accel-Buffering"] = "no"  # without buffering by nginx

    def close(self) -> None:
        super().close()
        self.live.body.close()


def event(data: str, *, name: str = "", event_id: str = "") -> str:
    """Returns one server-sent event as text; its data may have several lines."""
    head = (f"event: {name}\n" if name else "") + (f"id: {event_id}\n" if event_id else "")
    return head + "".join(f"data: {line}\n" for line in data.split("\n")) + "\n"


def _first_parts(body: LiveBody) -> Iterator[bytes]:
    """Yields the head of the stream, and the events that are available at once."""
    yield body.step()[0]
    yield body.step()[0]
