"""Child process that cannot outlive its parent: its own session, a log file, and a parent-death signal."""

from __future__ import annotations

import ctypes
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from brokers.infra.log_rotation import open_log

PR_SET_PDEATHSIG = 1
LOG_TAIL_BYTES = 4_096
POLL_S = 0.02
OUTGOING_PORTS_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")
OUTGOING_PORTS = range(32_768, 61_000)
LOWEST_SERVICE_PORT = 10_000
PORTS_END = 65_536
# Files of children are accessible to their owner only.
PRIVATE_UMASK = 0o077

# Loaded before any fork: a child between fork and exec must not import or allocate much.
LIBC = ctypes.CDLL(None, use_errno=True)


class StartFailed(Exception):
    """A service did not start. `detail` states what happened, `next_step` what the reader can do about it."""

    def __init__(self, detail: str, next_step: str = "") -> None:
        super().__init__(detail)
        self.detail = detail
        self.next_step = next_step


@dataclass(kw_only=True, slots=True)
class Child:
    """Supervised program: how to start and stop it, and its process while it runs."""

    name: str
    command: Sequence[str]
    log_file: Path
    environment: Mapping[str, str] | None = None
    directory: Path | None = None
    stop_signal: signal.Signals = signal.SIGTERM
    stop_timeout_s: float = 10.0
    # Runs in the child before exec, for example to drop root privileges; the parent-death signal is set afterwards,
    # because the kernel resets it when credentials change.
    before_exec: Callable[[], None] | None = None
    process: subprocess.Popen[bytes] | None = field(default=None)

    def start(self) -> None:
        """Starts the program. The calling thread must live as long as the child, because its end counts as the
        parent's.
        """
        parent_pid = os.getpid()
        before_exec, death_signal = self.before_exec, int(self.stop_signal)

        def prepare() -> None:
            # Signals that the parent blocks or ignores would stay so across exec.
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            if before_exec is not None:
                before_exec()
            LIBC.prctl(PR_SET_PDEATHSIG, death_signal, 0, 0, 0)
            if os.getppid() != parent_pid:
                os._exit(1)

        with open_log(self.log_file) as log:
            self.process = subprocess.Popen(
                list(self.command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=None if self.environment is None else dict(self.environment),
                cwd=self.directory,
                start_new_session=True,
                umask=PRIVATE_UMASK,
                preexec_fn=prepare,
            )

    @property
    def exit_code(self) -> int | None:
        """Exit code; None while the program runs or was never started."""
        return None if self.process is None else self.process.poll()

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def request_stop(self) -> None:
        """Sends the stop signal; `wait_stopped` waits for the end."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(self.stop_signal)

    def wait_stopped(self) -> bool:
        """Waits for the end and kills the whole session after a timeout. Returns False if it was killed."""
        if self.process is None:
            return True
        try:
            self.process.wait(self.stop_timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            return False
        return True

    def stop(self) -> bool:
        """Sends the stop signal and waits; see `wait_stopped`."""
        self.request_stop()
        return self.wait_stopped()

    def log_tail(self) -> str:
        """Returns the end of the program's log, for an error message."""
        if not self.log_file.exists():
            return ""
        with self.log_file.open("rb") as stream:
            stream.seek(0, os.SEEK_END)
            stream.seek(max(0, stream.tell() - LOG_TAIL_BYTES))
            return stream.read().decode("utf-8", "replace").strip()


def wait_until(
    is_ready: Callable[[], bool], *, child: Child, timeout_s: float, meanwhile: Callable[[], None] = lambda: None
) -> None:
    """Polls until `is_ready`, and calls `meanwhile` in between.

    Raises:
        StartFailed: the child ended first, or time ran out.
    """
    deadline = time.monotonic() + timeout_s
    while not is_ready():
        code = child.exit_code
        if code is not None:
            last = "\n".join(child.log_tail().splitlines()[-8:])
            raise StartFailed(f"{child.name} ended with code {code} while starting:\n{last}", f"See {child.log_file}.")
        if time.monotonic() > deadline:
            raise StartFailed(f"{child.name} did not answer within {timeout_s:g} s.", f"See {child.log_file}.")
        meanwhile()
        time.sleep(POLL_S)


def free_port(preferred: int | None = None) -> int:
    """Returns a free loopback TCP port: the preferred one if it is free, otherwise one that the kernel picks."""
    if preferred is not None and port_is_free(preferred):
        return preferred
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def service_port(preferred: int | None = None, avoid: Container[int] = ()) -> int:
    """Returns a free loopback TCP port outside of the range for outgoing connections, so that it stays free on
    restarts.

    The preferred port is used if it qualifies; otherwise one above the kernel's range for outgoing connections, or
    below it, and none of `avoid`. If that range covers all ports, the kernel picks one.
    """
    outgoing = outgoing_ports()
    if preferred is not None and preferred not in outgoing and preferred not in avoid and port_is_free(preferred):
        return preferred
    for ports in (range(outgoing.stop, PORTS_END), range(LOWEST_SERVICE_PORT, outgoing.start)):
        for port in random.sample(ports, len(ports)):
            if port not in avoid and port_is_free(port):
                return port
    return free_port(preferred)


def outgoing_ports() -> range:
    """Returns the range of ports for outgoing connections; the kernel's default if it is unknown."""
    try:
        first, last = (int(word) for word in OUTGOING_PORTS_FILE.read_text(encoding="ascii").split())
    except (OSError, ValueError):
        return OUTGOING_PORTS
    return range(first, last + 1)


def port_is_free(port: int, host: str = "127.0.0.1") -> bool:
    """True if a server could listen on the port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
