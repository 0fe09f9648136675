"""A broker process that waits for another one to end, so that a restart waits for no imports (REP-34, decision 68).

It touches nothing before it is called. Whoever started it holds one end of a socket, whose other end is its standard
input: when that end is gone, called or not, it ends by itself, so that no process waits for an agent that died.
"""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable, Sequence
from typing import IO

from brokers.contract.process import CALLED, STANDS_BY
from brokers.infra.child_environment import broker_variables


class Successor:
    """One that was started and not called yet."""

    def __init__(self, command: Sequence[str], log: IO[bytes], before_exec: Callable[[], None] | None = None) -> None:
        self._channel, theirs = socket.socketpair()
        self._channel.setblocking(False)
        self._said = b""
        with theirs:
            self.child = subprocess.Popen(
                list(command),
                stdin=theirs.fileno(),
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=broker_variables(),
                preexec_fn=before_exec,
            )

    @property
    def is_alive(self) -> bool:
        return self.child.poll() is None

    @property
    def is_ready(self) -> bool:
        """Whether it has nothing more to do before it is called."""
        if len(self._said) < len(STANDS_BY):
            try:
                self._said += self._channel.recv(len(STANDS_BY))
            except BlockingIOError:
                return False
            except OSError:
                return False  # it ended
        return self._said == STANDS_BY

    def call(self) -> subprocess.Popen[bytes]:
        """It goes on, as soon as it is ready. Gives back the process, which is the caller's from here on."""
        try:
            self._channel.sendall(CALLED)
        except OSError:
            return self.child  # it ended, and whoever watches it will see that
        finally:
            self._channel.close()
        return self.child

    def end(self) -> None:
        """It is not needed."""
        self._channel.close()
        self.child.kill()
        self.child.wait()
