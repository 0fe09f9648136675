"""Connection of a task to a tenant's database: a relay on loopback to one checked address.

libpq has neither a deadline for a statement nor a size limit for an answer. The relay enforces both by closing the
connection, and it connects only to the address that was checked. TLS is between libpq and the server.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time

from archives.tunnel import AT_ONCE_BYTES, Networks, connect_outside


class Relay:
    """Context manager of the relay. libpq connects once to `port` on loopback.

    Afterwards, `is_late` is true if `within_s` seconds passed before the connection ended, and `is_too_long` if the
    server sent more than `answer_bytes_max`.

    Raises on entering:
        OSError: the host has no allowed address, or none of them answers within `within_s` seconds.
        UnicodeError: the host is no name that can be resolved.
    """

    def __init__(
        self,
        host: str,
        port_outside: int,
        *,
        refused: Networks,
        private: Networks,
        within_s: float,
        answer_bytes_max: int,
    ) -> None:
        self._host, self._port_outside = host, port_outside
        self._refused, self._private = refused, private
        self._ends_s = time.monotonic() + within_s
        self._answer_bytes_max = answer_bytes_max
        self._sockets: list[socket.socket] = []
        self.port = 0
        self.is_late = False
        self.is_too_long = False

    def __enter__(self) -> Relay:
        outside = connect_outside(self._host, self._port_outside, self._refused, self._private, self._left_s())
        listener = socket.create_server(("127.0.0.1", 0), backlog=1)
        self._sockets += [outside, listener]
        self.port = listener.getsockname()[1]
        self._thread = threading.Thread(target=self._run, args=(listener, outside), name="relay", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for open_socket in self._sockets:
            with contextlib.suppress(OSError):
                open_socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        for open_socket in self._sockets:
            open_socket.close()

    def _run(self, listener: socket.socket, outside: socket.socket) -> None:
        with contextlib.suppress(OSError):
            listener.settimeout(max(0.01, self._left_s()))
            inside = listener.accept()[0]
            self._sockets.append(inside)
            try:
                self._pump(inside, outside)
            except TimeoutError:
                self.is_late = True
            finally:
                for side in (inside, outside):
                    with contextlib.suppress(OSError):
                        side.shutdown(socket.SHUT_RDWR)

    def _pump(self, inside: socket.socket, outside: socket.socket) -> None:
        """Copies data in both directions until either side closes. Raises `TimeoutError` at the deadline."""
        answered = 0
        while ready := select.select([inside, outside], [], [], self._left_s())[0]:
            for side in ready:
                data = side.recv(AT_ONCE_BYTES)
                if not data:
                    return
                answered += len(data) if side is outside else 0
                if answered > self._answer_bytes_max:
                    self.is_too_long = True
                    return
                other = outside if side is inside else inside
                other.settimeout(max(0.01, self._left_s()))
                other.sendall(data)
        raise TimeoutError

    def _left_s(self) -> float:
        return max(0.0, self._ends_s - time.monotonic())
