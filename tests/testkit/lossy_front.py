"""TCP front of an HTTP server that loses answers: the request arrives, and the connection ends without a response."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from urllib.parse import urlsplit

RECEIVED_BYTES: Final = 65_536
ANSWER_TIMEOUT_S: Final = 20.0


class LossyFront(socketserver.ThreadingTCPServer):
    """Front of the server at `url`. A request whose first line contains `loses_answers_to` is passed
    on, and its answer is not.
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, url: str) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        parts = urlsplit(url)
        self.upstream = (parts.hostname or "", parts.port or 80)
        self.loses_answers_to: str | None = None
        self.lost_count = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Connection(socketserver.BaseRequestHandler):
    """One connection of a client, with one of its own to the server."""

    server: LossyFront

    def handle(self) -> None:
        with socket.create_connection(self.server.upstream, ANSWER_TIMEOUT_S) as upstream, contextlib.suppress(OSError):
            while request := self._request():
                upstream.sendall(request)
                answer = _message(upstream)
                named = self.server.loses_answers_to
                if named is not None and named.encode() in request.partition(b"\r\n")[0]:
                    self.server.loses_answers_to = None
                    self.server.lost_count += 1
                    return
                self.request.sendall(answer)

    def _request(self) -> bytes:
        return _message(self.request)


def _message(source: socket.socket) -> bytes:
    """Returns a request or a response with its body; empty at the end of the connection."""
    received = b""
    while b"\r\n\r\n" not in received:
        part = source.recv(RECEIVED_BYTES)
        if not part:
            return b""
        received += part
    head, end, body = received.partition(b"\r\n\r\n")
    names = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
    missing = int(names.get(b"content-length", b"0")) - len(body)
    while missing > 0:
        part = source.recv(RECEIVED_BYTES)
        if not part:
            return b""
        body, missing = body + part, missing - len(part)
    return head + end + body


@contextmanager
def lossy_front(url: str) -> Iterator[LossyFront]:
    """Serves a front of `url` until the end of the block."""
    with LossyFront(url) as front:
        thread = threading.Thread(target=front.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield front
        finally:
            front.shutdown()
            thread.join()
