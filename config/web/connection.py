"""Connection: received bytes, the request parsed from them, and the bytes to send."""

from __future__ import annotations

import socket
from typing import Any

from gunicorn.http.message import Request
from gunicorn.http.unreader import IterUnreader

from config.web.addresses import client_address, neighbourhood
from config.web.deadlines import ConnectionPhase, due_s, response_due_s
from config.web.framing import Body, ChunkedBody, SizedBody, end_of_head
from config.web.live import SteppedResponse
from config.web.outgoing import Outgoing


class WebConnection:
    """Connection of the event loop; in `ConnectionPhase.WORK` a thread uses `request` and `outgoing`."""

    def __init__(self, sock: socket.socket, peer: Any, server: Any, outgoing: Outgoing, *, is_proxy: bool) -> None:
        self.sock = sock
        self.peer = peer
        self.server = server
        self.outgoing = outgoing
        self.is_proxy = is_proxy
        self.client = neighbourhood(peer[0])
        self.phase = ConnectionPhase.HEAD
        self.since_s = 0.0
        self.events = 0  # events registered with the selector
        self.request: Request | None = None
        self.is_keep_alive = False
        self.is_closed = False
        self.lingered_bytes = 0
        self.blocked_since_s: float | None = None  # when the socket stopped accepting the whole response
        self.blocked_at_bytes = 0
        self.requests = 0
        self.live: SteppedResponse | None = None
        self.step_due_s = 0.0
        self._buffer = bytearray()
        self._searched_bytes = 0
        self._body: Body | None = None
        self._body_bytes = 0
        self._unreader = IterUnreader(())

    @property
    def buffered_bytes(self) -> int:
        return len(self._buffer) + self._body_bytes + self.outgoing.unsent_bytes

    @property
    def has_begun(self) -> bool:
        """True if a part of a request has arrived."""
        return bool(self._buffer) or self.request is not None

    def enter(self, phase: ConnectionPhase, now_s: float) -> None:
        self.phase, self.since_s = phase, now_s

    def due_s(self) -> float | None:
        """Time at which the connection is closed unless bytes are sent or received, or its phase ends, before."""
        if self.blocked_since_s is not None:
            return response_due_s(self.blocked_since_s, self.outgoing.sent_bytes - self.blocked_at_bytes)
        return due_s(self.phase, self.since_s)

    def receive(self, data: bytes) -> None:
        self._buffer += data

    def read_request(self, cfg: Any, now_s: float) -> bool:
        """Returns True if a complete request has arrived; `request` then contains it with its body.

        Raises:
            Refused: the request is refused; the rest of it is not received.
            Exception: gunicorn's parser cannot read the header.
        """
        if self.request is None:
            end = end_of_head(self._buffer, self._searched_bytes)
            if end is None:
                self._searched_bytes = len(self._buffer)
                return False
            self.requests += 1
            self._unreader = IterUnreader((bytes(self._buffer[:end]),))
            self.request = Request(cfg, self._unreader, self.peer, self.requests)
            self._body = _body_of(self.request, end)
            self.enter(ConnectionPhase.BODY, now_s)
        assert self._body is not None
        end_of_body = self._body.end(self._buffer)
        if end_of_body is None:
            return False
        body = bytes(self._buffer[self._body.start : end_of_body])
        self._unreader.iter = iter((body,))
        self._body_bytes = len(body)
        self.request._expected_100_continue = False  # the body is complete, so gunicorn need not request it
        del self._buffer[:end_of_body]
        self._searched_bytes = 0
        return True

    def take_continue_request(self) -> bool:
        """Returns True if the client waits for 100 Continue, and False from then on."""
        if self.request is None or not self.request._expected_100_continue:
            return False
        self.request._expected_100_continue = False
        return True

    def client_of(self, trusted: Any) -> str:
        """Returns the client of the request for the sharing of threads."""
        assert self.request is not None
        if not self.is_proxy:
            return self.client
        forwarded = ",".join(value for name, value in self.request.headers if name == "X-FORWARDED-FOR")
        return neighbourhood(client_address(self.peer[0], forwarded, trusted))

    def forget_request(self) -> None:
        self.request, self._body, self._body_bytes = None, None, 0


def _body_of(request: Request, start: int) -> Body:
    """Returns the framing of the body announced in the header. Raises `Refused`."""
    reader = request.body.reader
    if hasattr(reader, "length"):
        return SizedBody(start, reader.length)
    return ChunkedBody(start)
