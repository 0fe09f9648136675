"""TLS handshakes of a stranger from one address, as fast as the broker takes them:
`python -m tests.adversarial.stranger_swarm PORT CONNECTIONS SECONDS [ADDRESS]`.

Each connection sends an ordinary hello, closes at the answer, and connects again. Prints one JSON line after the first
answer, and one with its results at the end.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import socket
import sys
import time
from typing import Final

from tests.adversarial.handshake_swarm import HOST, NICENESS, ordinary_hello

STRANGER: Final = "127.0.0.66"


class Strangers:
    def __init__(self, port: int, address: str) -> None:
        self._port = port
        self._address = address
        self._hello = ordinary_hello()
        self._poll = select.epoll()
        self._sockets: dict[int, socket.socket] = {}
        self.counts = {"begun": 0, "answered": 0, "closed": 0}

    def start_handshake(self) -> None:
        connection = socket.socket()
        connection.setblocking(False)
        connection.bind((self._address, 0))
        with contextlib.suppress(BlockingIOError):
            connection.connect((HOST, self._port))
        self._sockets[connection.fileno()] = connection
        self._poll.register(connection.fileno(), select.EPOLLOUT)
        self.counts["begun"] += 1

    def handle_events(self, wait_s: float) -> None:
        """Handles events of the connections; starts another handshake for each that is over."""
        for fd, event in self._poll.poll(wait_s):
            connection = self._sockets[fd]
            if event == select.EPOLLOUT:
                with contextlib.suppress(OSError):
                    connection.send(self._hello)
                self._poll.modify(fd, select.EPOLLIN)
                continue
            received = b""
            with contextlib.suppress(OSError):
                received = connection.recv(1)
            self.counts["answered" if received else "closed"] += 1
            self._poll.unregister(fd)
            self._sockets.pop(fd).close()
            self.start_handshake()


def main() -> None:
    port, connections, seconds = map(int, sys.argv[1:4])
    os.nice(NICENESS)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    strangers = Strangers(port, sys.argv[4] if len(sys.argv) > 4 else STRANGER)
    for _ in range(connections):
        strangers.start_handshake()
    deadline_s = time.monotonic() + seconds
    is_printed = False
    while time.monotonic() < deadline_s:
        strangers.handle_events(0.05)
        if strangers.counts["answered"] and not is_printed:
            is_printed = True
            print(json.dumps({"stands": connections}), flush=True)
    print(json.dumps(strangers.counts), flush=True)


if __name__ == "__main__":
    main()
