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

from archives.tunnel import CHUNK_BYTES, Networks, connect_outside


class Relay:
    """Context manager of the relay. libpq connects once to `port` on loopback.

    Afterwards, `is_late` is true if `within_s` seconds passed before the connection ended, and `is_answer_too_long` if
    the server sent more than `answer_bytes_max`.

    Raises on entering:
        OSError: the host has no allowed address, or none of them answers within `within_s` seconds.
        UnicodeError: the host is no name that can be resolved.
    """

    def __init__(
        self,
        host: str,
        server_port: int,
        *,
        refused: Networks,
        private: Networks,
        within_s: float,
        answer_bytes_max: int,
    ) -> None:
        self._host, self._server_port = host, server_port
        self._refused, self._private = refused, private
        self._deadline_s = time.monotonic() + within_s
        self._answer_bytes_max = answer_bytes_max
        self._sockets: list[socket.socket] = []
        self.port = 0
        self.is_late = False
        self.is_answer_too_long = False

    def __enter__(self) -> Relay:
        server_socket = connect_outside(
            self._host, self._server_port, self._refused, self._private, self._remaining_s()
        )
        listener = socket.create_server(("127.0.0.1", 0), backlog=1)
        self._sockets += [server_socket, listener]
        self.port = listener.getsockname()[1]
        self._thread = threading.Thread(target=self._run, args=(listener, server_socket), name="relay", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for open_socket in self._sockets:
            with contextlib.suppress(OSError):
                open_socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        for open_socket in self._sockets:
            open_socket.close()

    def _run(self, listener: socket.socket, server_socket: socket.socket) -> None:
        with contextlib.suppress(OSError):
            listener.settimeout(max(0.01, self._remaining_s()))
            client_socket = listener.accept()[0]
            self._sockets.append(client_socket)
            try:
                self._copy_both_ways(client_socket, server_socket)
            except TimeoutError:
                self.is_late = True
            finally:
                for sender in (client_socket, server_socket):
                    with contextlib.suppress(OSError):
                        sender.shutdown(socket.SHUT_RDWR)

    def _copy_both_ways(self, client_socket: socket.socket, server_socket: socket.socket) -> None:
        """Copies data in both directions until either side closes. Raises `TimeoutError` at the deadline."""
        answer_bytes = 0
        while readable_sockets := select.select([client_socket, server_socket], [], [], self._remaining_s())[0]:
            for sender in readable_sockets:
                data = sender.recv(CHUNK_BYTES)
                if not data:
                    return
                answer_bytes += len(data) if sender is server_socket else 0
                if answer_bytes > self._answer_bytes_max:
                    self.is_answer_too_long = True
                    return
                receiver = server_socket if sender is client_socket else client_socket
                receiver.settimeout(max(0.01, self._remaining_s()))
                receiver.sendall(data)
        raise TimeoutError

    def _remaining_s(self) -> float:
        return max(0.0, self._deadline_s - time.monotonic())
