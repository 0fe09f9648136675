"""Processes of a run of the supervisor: its children by process id, their descendants by an environment variable.

Every program started here inherits a variable that names the run, so that a grandchild whose parent died (a broker, a
JVM of Spark) is found, too. A few programs overwrite their environment for a nicer name in `ps`; those are children,
which are identified by process id and start, because process ids are reused.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, field

import psutil

from brokers.infra.child_environment import RUN_VARIABLE
from brokers.infra.process_identity import identity_of

POLL_S = 0.1
NAME_WORDS = 5
TERMINATE_WAIT_S = 5.0
KILL_WAIT_S = 5.0


@dataclass(frozen=True, slots=True)
class RunProcesses:
    """Name of a run, and its children as (process id, identity).

    The identity is the value of `identity_of`; in a note of an older version it is the start in seconds since 1970,
    which moves with the clock.
    """

    run: str
    children: tuple[tuple[int, str | float], ...] = field(default=())

    def members(self) -> list[psutil.Process]:
        """Returns the running processes, without this one."""
        children = set(self.children)
        return [process for process in psutil.process_iter() if self._has(process, children)]

    def _has(self, process: psutil.Process, children: Set[tuple[int, str | float]]) -> bool:
        pid = process.pid
        try:
            if pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                return False
            is_child = (pid, identity_of(pid)) in children or (pid, process.create_time()) in children
            return is_child or process.environ().get(RUN_VARIABLE) == self.run
        except (psutil.Error, OSError):
            return False

    def end(self, *, grace_period_s: float) -> list[str]:
        """Waits `grace_period_s` for all processes to end, then terminates, then kills them. Returns the names of those
        that had to be terminated.
        """
        if self._have_ended_within(grace_period_s):
            return []
        remaining = self.members()
        names = sorted({_name(process) for process in remaining})
        _send(remaining, psutil.Process.terminate)
        if not self._have_ended_within(TERMINATE_WAIT_S):
            _send(self.members(), psutil.Process.kill)
            self._have_ended_within(KILL_WAIT_S)
        return names

    def _have_ended_within(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while self.members():
            if time.monotonic() >= deadline:
                return False
            time.sleep(POLL_S)
        return True


def _name(process: psutil.Process) -> str:
    """Returns program and first words: enough to recognise it, too little to contain a secret."""
    try:
        arguments = process.cmdline() or [process.name()]
        return " ".join([os.path.basename(arguments[0]), *arguments[1:NAME_WORDS]])  # noqa: PTH119  (a name, not a path)
    except psutil.Error:
        return str(process.pid)


def _send(processes: Iterable[psutil.Process], send: Callable[[psutil.Process], None]) -> None:
    for process in processes:
        try:
            send(process)
        except psutil.Error:
            continue
