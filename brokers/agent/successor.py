"""Standby broker process that waits for another one to end, so that a restart does not wait for imports (REP-34,
decision 68).

It has no effects before it is activated. Its standard input is a socket to the agent: when the agent's end closes, the
process ends, so that no process waits for a dead agent.
"""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable, Sequence
from typing import IO

from brokers.contract.process import CONTINUE_MESSAGE, READY_MESSAGE
from brokers.infra.child_environment import broker_variables


class Successor:
    """Standby process that is not activated yet."""

    def __init__(self, command: Sequence[str], log: IO[bytes], before_exec: Callable[[], None] | None = None) -> None:
        self._channel, child_end = socket.socketpair()
        self._channel.setblocking(False)
        self._received = b""
        with child_end:
            self.child = subprocess.Popen(
                list(command),
                stdin=child_end.fileno(),
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
        """True if it has finished its preparation."""
        if len(self._received) < len(READY_MESSAGE):
            try:
                self._received += self._channel.recv(len(READY_MESSAGE))
            except BlockingIOError:
                return False
            except OSError:
                return False  # it ended
        return self._received == READY_MESSAGE

    def activate(self) -> subprocess.Popen[bytes]:
        """Makes the process serve as soon as it is ready, and returns it; the caller becomes its owner."""
        try:
            self._channel.sendall(CONTINUE_MESSAGE)
        except OSError:
            return self.child  # it ended, which its monitor will detect
        finally:
            self._channel.close()
        return self.child

    def end(self) -> None:
        """Ends a process that is not needed."""
        self._channel.close()
        self.child.kill()
        self.child.wait()
