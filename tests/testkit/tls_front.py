"""A TLS proxy in front of a service that has no TLS."""

from __future__ import annotations

import socket
import socketserver
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

HOST = "127.0.0.1"
# libpq's request for TLS, and PostgreSQL's answer that it is available.
POSTGRES_ASKS = bytes.fromhex("0000000804d2162f")
POSTGRES_AGREES = b"S"
CHUNK_BYTES = 65_536


class TlsFront(socketserver.ThreadingTCPServer):
    """A proxy whose connections are forwarded to those of `connect`. `seen` counts completed handshakes."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, certificate: Path, connect: Callable[[], socket.socket], *, is_postgres: bool = False) -> None:
        super().__init__((HOST, 0), socketserver.BaseRequestHandler)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(certificate)
        self.handshake_count = 0
        self._connect = connect
        self._is_postgres = is_postgres

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def finish_request(self, request: Any, client_address: Any) -> None:
        with suppress(OSError):
            if self._is_postgres:
                if request.recv(len(POSTGRES_ASKS), socket.MSG_WAITALL) != POSTGRES_ASKS:
                    return
                request.sendall(POSTGRES_AGREES)
            with self.context.wrap_socket(request, server_side=True) as client, self._connect() as service:
                self.handshake_count += 1
                back = threading.Thread(target=_pass_on, args=(service, client), daemon=True)
                back.start()
                _pass_on(client, service)
                back.join()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(CHUNK_BYTES):
            target.sendall(data)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def unix_connection(path: str) -> socket.socket:
    link = socket.socket(socket.AF_UNIX)
    link.connect(path)
    return link


@contextmanager
def tls_front_of(path: str, certificate: Path, *, is_postgres: bool = False) -> Iterator[TlsFront]:
    """Runs a TLS front of a service on a unix socket."""
    with TlsFront(certificate, lambda: unix_connection(path), is_postgres=is_postgres) as front:
        serving = threading.Thread(target=front.serve_forever, daemon=True)
        serving.start()
        yield front
        front.shutdown()
