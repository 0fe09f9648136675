"""Processor time that processes used, and how long their threads waited for a processor."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

NS_PER_MS = 1_000_000
WEB_COMMAND = "gunicorn"


@dataclass(frozen=True, slots=True)
class ProcessorTime:
    """Milliseconds used and waited for, of all threads that are alive."""

    used_ms: float
    waited_ms: float

    def since(self, before: ProcessorTime, calls: int) -> dict[str, float]:
        """Returns the differences per call, for a result of a benchmark."""
        return {
            "cpu_ms": round((self.used_ms - before.used_ms) / calls, 1),
            "waited_for_cpu_ms": round((self.waited_ms - before.waited_ms) / calls, 1),
        }


def processor_time(processes: Iterable[psutil.Process]) -> ProcessorTime:
    """Returns the sum over the threads of some processes; those that end meanwhile are left out."""
    used_ns = waited_ns = 0
    for process in processes:
        for thread in Path(f"/proc/{process.pid}/task").glob("*/schedstat"):
            try:
                used, waited, _ = thread.read_text().split()
            except OSError:
                continue
            used_ns, waited_ns = used_ns + int(used), waited_ns + int(waited)
    return ProcessorTime(used_ns / NS_PER_MS, waited_ns / NS_PER_MS)


def web_processes(supervisor: psutil.Process) -> list[psutil.Process]:
    """Returns the processes that answer HTTP requests."""
    return [child for child in supervisor.children(recursive=True) if WEB_COMMAND in child.cmdline()]
