"""Monitoring of child processes: a dead child is restarted, with increasing delays if it keeps dying."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from subprocess import SubprocessError

from brokers.infra.log_rotation import rotate
from config.embedded.process import Child
from config.supervisor.progress import StartProgress

CHECK_EVERY_S = 0.25
BACKOFF_FIRST_S = 0.5
BACKOFF_MAX_S = 30.0
# A child that lived this long was healthy: its next death restarts the backoff.
HEALTHY_AFTER_S = 60.0


def next_backoff_s(previous_s: float, lived_s: float) -> float:
    """Returns the delay before a dead child is restarted."""
    if lived_s >= HEALTHY_AFTER_S or previous_s == 0:
        return BACKOFF_FIRST_S
    return min(previous_s * 2, BACKOFF_MAX_S)


class Stage(IntEnum):
    """Stage of children: a higher stage needs the lower ones, and is stopped before them."""

    SERVICE = 0
    PROGRAM = 1


@dataclass(slots=True)
class _Watched:
    child: Child
    stage: Stage
    started_s: float
    backoff_s: float = 0.0
    restart_at_s: float | None = None


@dataclass(slots=True)
class Watch:
    """Children, monitored one by one and stopped stage by stage, those of a stage concurrently."""

    progress: StartProgress
    on_change: Callable[[dict[str, int]], None]
    clock: Callable[[], float] = time.monotonic
    # Log of the monitoring process, if it writes one.
    own_log: Path | None = None
    _watched: list[_Watched] = field(default_factory=list)

    def add(self, child: Child, stage: Stage) -> None:
        """Adds a child that was just started."""
        self._watched.append(_Watched(child, stage, self.clock()))
        self._note_change()

    def pids(self) -> dict[str, int]:
        """Returns the process ids of running children."""
        return {w.child.name: w.child.process.pid for w in self._watched if w.child.process and w.child.is_running}

    def tick(self) -> None:
        """Detects dead children and restarts those that are due."""
        now_s = self.clock()
        if self.own_log is not None:
            rotate(self.own_log)
        for watched in self._watched:
            rotate(watched.child.log_file)
            if watched.restart_at_s is not None:
                if now_s >= watched.restart_at_s:
                    self._restart(watched, now_s)
            elif watched.child.exit_code is not None:
                self._schedule_restart(watched, now_s, f"ended with code {watched.child.exit_code}")

    def run(self) -> None:
        """Monitors forever; a stop signal raises out of it (`config.supervisor.signals`)."""
        while True:
            time.sleep(CHECK_EVERY_S)
            self.tick()

    def stop(self) -> list[str]:
        """Stops all children. Returns the names that had to be killed."""
        killed = []
        for stage in sorted(Stage, reverse=True):
            children = [watched.child for watched in self._watched if watched.stage is stage]
            for child in children:
                child.request_stop()
            killed += [child.name for child in children if not child.wait_stopped()]
        self._watched.clear()
        self._note_change()
        return killed

    def _restart(self, watched: _Watched, now_s: float) -> None:
        try:
            watched.child.start()
        except (OSError, SubprocessError) as error:
            # Out of memory or disk: other children keep running.
            self._schedule_restart(watched, now_s, f"cannot be started ({error})")
            return
        watched.started_s = now_s
        watched.restart_at_s = None
        self.progress.step(f"{watched.child.name} started again")
        self._note_change()

    def _schedule_restart(self, watched: _Watched, now_s: float, event: str) -> None:
        lived_s = 0.0 if watched.restart_at_s is not None else now_s - watched.started_s
        watched.backoff_s = next_backoff_s(watched.backoff_s, lived_s)
        watched.restart_at_s = now_s + watched.backoff_s
        self.progress.step(
            f"{watched.child.name} {event}; starting it again in {watched.backoff_s:g} s (see {watched.child.log_file})"
        )

    def _note_change(self) -> None:
        """Records the processes for cleanup after a killed supervisor; a full disk must not stop the product."""
        try:
            self.on_change(self.pids())
        except OSError as error:
            self.progress.step(f"Cannot note what runs: {error}")
