"""TLS handshakes of a stranger from one address, as fast as the broker takes them:
`python -m tests.adversarial.stranger_swarm PORT CONNECTIONS SECONDS [ADDRESS]`.

Each connection says an ordinary hello, hangs up at the answer, and comes again. Prints one JSON line when one was
answered, and one with what it did at the end.
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

from tests.adversarial.handshake_swarm import HOST, NICENESS, hello

STRANGER: Final = "127.0.0.66"


class Strangers:
    def __init__(self, port: int, address: str) -> None:
        self._port = port
        self._address = address
        self._hello = hello()
        self._poll = select.epoll()
        self._sockets: dict[int, socket.socket] = {}
        self.counts = {"begun": 0, "answered": 0, "closed": 0}

    def begin(self) -> None:
        opened = socket.socket()
        opened.setblocking(False)
        opened.bind((self._address, 0))
        with contextlib.suppress(BlockingIOError):
            opened.connect((HOST, self._port))
        self._sockets[opened.fileno()] = opened
        self._poll.register(opened.fileno(), select.EPOLLOUT)
        self.counts["begun"] += 1

    def go_on(self, wait_s: float) -> None:
        """Handles what has happened meanwhile; for each that is over another one begins."""
        for fd, event in self._poll.poll(wait_s):
            opened = self._sockets[fd]
            if event == select.EPOLLOUT:
                with contextlib.suppress(OSError):
                    opened.send(self._hello)
                self._poll.modify(fd, select.EPOLLIN)
                continue
            received = b""
            with contextlib.suppress(OSError):
                received = opened.recv(1)
            self.counts["answered" if received else "closed"] += 1
            self._poll.unregister(fd)
            self._sockets.pop(fd).close()
            self.begin()


def main() -> None:
    port, connections, seconds = map(int, sys.argv[1:4])
    os.nice(NICENESS)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    strangers = Strangers(port, sys.argv[4] if len(sys.argv) > 4 else STRANGER)
    for _ in range(connections):
        strangers.begin()
    deadline_s = time.monotonic() + seconds
    is_said = False
    while time.monotonic() < deadline_s:
        strangers.go_on(0.05)
        if strangers.counts["answered"] and not is_said:
            is_said = True
            print(json.dumps({"stands": connections}), flush=True)
    print(json.dumps(strangers.counts), flush=True)


if __name__ == "__main__":
    main()
