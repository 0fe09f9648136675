"""An HTTPS server on loopback with answers set by a test."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.testkit.tls import make_certificate

TIMEOUT_S = 10.0


class HttpsServer:
    """An HTTPS server that sends `answer` verbatim, headers included, after waiting for `stalls` if that is set."""

    def __init__(self, directory: Path) -> None:
        certificate = make_certificate(directory, "https")
        self.ca_file = str(directory / "ca.pem")
        self.answer = b""
        self.requests: list[bytes] = []
        self.stall_until: threading.Event | None = None
        self.sends_slowly = False
        self._is_open = True
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}/keys"

    def answers(self, document: object, status: str = "200 OK", **headers: str) -> None:
        body = json.dumps(document).encode()
        lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        self.answer = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{lines}\r\n".encode() + body

    def close(self) -> None:
        self._is_open = False
        self._socket.close()
        if self.stall_until is not None:
            self.stall_until.set()

    def _serve(self) -> None:
        while self._is_open:
            try:
                plain, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._handle_connection, args=(plain,), daemon=True).start()

    def _handle_connection(self, plain: socket.socket) -> None:
        with contextlib.suppress(OSError), plain:
            plain.settimeout(TIMEOUT_S)
            with self._context.wrap_socket(plain, server_side=True) as encrypted:
                request = b""
                while b"\r\n\r\n" not in request:
                    part = encrypted.recv(4096)
                    if not part:
                        return
                    request += part
                head, _, body = request.partition(b"\r\n\r\n")
                content_length = re.search(rb"(?i)content-length: (\d+)", head)
                while content_length is not None and len(body) < int(content_length[1]):
                    part = encrypted.recv(4096)
                    if not part:
                        return
                    request, body = request + part, body + part
                self.requests.append(request)
                if self.stall_until is not None:
                    self.stall_until.wait(TIMEOUT_S)
                self._send(encrypted)

    def _send(self, encrypted: ssl.SSLSocket) -> None:
        if not self.sends_slowly:
            encrypted.sendall(self.answer)
            return
        never = threading.Event()
        encrypted.sendall(b"HTTP/1.1 200 OK\r\n")
        while self._is_open:
            encrypted.sendall(b"X: y\r\n")
            never.wait(0.05)


@contextmanager
def https_server(directory: Path) -> Iterator[HttpsServer]:
    server = HttpsServer(directory)
    try:
        yield server
    finally:
        server.close()
