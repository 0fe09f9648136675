"""Connection of a task to a tenant's S3: a proxy (CONNECT) on loopback to a single host outside our network.

pyarrow resolves names and follows redirects by itself. The proxy resolves and checks each address and connects to
exactly that address, as `tenants.outbound` does for other requests.
"""

from __future__ import annotations

import contextlib
import select
import socket
import socketserver
import threading
import time
from ipaddress import ip_address
from typing import Any, Final

from tenants.outbound import Network, is_allowed

HEAD_BYTES_MAX: Final = 8_192
CHUNK_BYTES: Final = 65_536
CONNECT_TIMEOUT_S: Final = 10.0
IDLE_S: Final = 60.0
ADDRESSES_TRIED_MAX: Final = 4

Networks = tuple[Network, ...]


class Tunnel:
    """Context manager of the proxy. It connects only to `server_port` of `host` and of its subdomains (buckets), and
    ends all connections after `within_s` seconds.
    """

    def __init__(self, host: str, server_port: int, *, refused: Networks, private: Networks, within_s: float) -> None:
        self.host, self.server_port = host, server_port
        self.refused, self.private = refused, private
        self.deadline_s = time.monotonic() + within_s
        self._server = _Server(("127.0.0.1", 0), _Connection)
        self._server.tunnel = self
        self.port: int = self._server.server_address[1]

    def __enter__(self) -> Tunnel:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def remaining_s(self) -> float:
        """Seconds until all connections are ended; 0 after that."""
        return max(0.0, self.deadline_s - time.monotonic())

    def connect(self, host: str, port: int) -> socket.socket:
        """Connects to an allowed host. Raises `OSError` if it is another host or does not answer in time."""
        if port != self.server_port or not (host == self.host or host.endswith("." + self.host)):
            raise OSError("another host")
        return connect_outside(host, port, self.refused, self.private, min(CONNECT_TIMEOUT_S, self.remaining_s))


def connect_outside(host: str, port: int, refused: Networks, private: Networks, within_s: float) -> socket.socket:
    """Connects to an allowed address of a host within `within_s` seconds in total, name resolution included.

    The name is resolved here, so that the checked address is used.

    Raises:
        OSError: the host has no allowed address, or none of them answers in time.
        UnicodeError: the host is no name that can be resolved.
    """
    deadline_s = time.monotonic() + within_s
    resolved = _resolve_host(host, port, within_s)
    allowed_addresses = [
        address for address in dict.fromkeys(resolved) if is_allowed(ip_address(address), refused, private)
    ]
    tried_addresses = allowed_addresses[:ADDRESSES_TRIED_MAX]
    for index, address in enumerate(tried_addresses):
        remaining_s = deadline_s - time.monotonic()
        if remaining_s <= 0:
            break
        with contextlib.suppress(OSError):
            # Each address gets its share, so that a silent one leaves time for the others.
            return socket.create_connection((address, port), remaining_s / (len(tried_addresses) - index))
    raise OSError("no public address answers")


def _resolve_host(host: str, port: int, within_s: float) -> list[str]:
    """Returns the addresses of a host. Raises `OSError`, `UnicodeError`."""
    addresses: list[str] = []
    failures: list[Exception] = []

    def resolve() -> None:
        try:
            addresses.extend(str(info[4][0]) for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as failure:
            failures.append(failure)

    # A separate thread, because the resolver observes no deadline of ours. It ends when the resolver gives up.
    worker = threading.Thread(target=resolve, name="resolver", daemon=True)
    worker.start()
    worker.join(within_s)
    if worker.is_alive():
        raise TimeoutError("the name was not resolved in time")
    if failures:
        raise failures[0]
    return addresses


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    tunnel: Tunnel


class _Connection(socketserver.BaseRequestHandler):
    server: _Server

    def handle(self) -> None:
        self.request.settimeout(IDLE_S)
        with contextlib.suppress(OSError, ValueError):
            host, port = self._requested_address()
            try:
                server_socket = self.server.tunnel.connect(host, port)
            except OSError:
                self.request.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
                return
            with server_socket:
                self.request.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                _copy_both_ways(self.request, server_socket, self.server.tunnel)

    def _requested_address(self) -> tuple[str, int]:
        head = b""
        while b"\r\n\r\n" not in head:
            part = self.request.recv(HEAD_BYTES_MAX)
            head += part
            if not part or len(head) > HEAD_BYTES_MAX:
                raise ValueError("no request")
        method, target, _ = head.split(b"\r\n", 1)[0].decode("ascii").split(" ")
        if method != "CONNECT":
            raise ValueError("another method")
        host, _, port = target.rpartition(":")
        return host.strip("[]").lower(), int(port)


def _copy_both_ways(client_socket: Any, server_socket: Any, tunnel: Tunnel) -> None:
    """Copies data in both directions until either side closes, both are idle for `IDLE_S`, or the time is over."""
    while (remaining_s := tunnel.remaining_s) and (
        ready := select.select([client_socket, server_socket], [], [], min(IDLE_S, remaining_s))[0]
    ):
        for sender in ready:
            data = sender.recv(CHUNK_BYTES)
            if not data:
                return
            (server_socket if sender is client_socket else client_socket).sendall(data)
