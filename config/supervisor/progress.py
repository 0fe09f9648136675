"""Terminal output while services start and stop."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

# Waiting is reported after this time, and then periodically.
WAIT_REPORTED_AFTER_S = 10.0
WAIT_REPORT_INTERVAL_S = 30.0


class StartProgress:
    """Prints one line per step with the seconds since the start."""

    def __init__(self, out: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._out = out or sys.stdout
        self._clock = clock
        self._started = clock()

    @property
    def elapsed_s(self) -> float:
        return self._clock() - self._started

    def step(self, text: str) -> None:
        """Prints a step."""
        self._print(f"{self.elapsed_s:6.1f} s  {text}")

    def waiting(self, description: str, log_file: Path) -> Callable[[], None]:
        """Returns a function to call while waiting, which periodically reports `description` and its log file."""
        due_s = self._clock() + WAIT_REPORTED_AFTER_S

        def report() -> None:
            nonlocal due_s
            if self._clock() >= due_s:
                due_s += WAIT_REPORT_INTERVAL_S
                self.step(f"Still waiting for {description} (see {log_file})")

        return report

    def block(self, text: str) -> None:
        """Prints a block of text, such as the ready block."""
        self._print(text)

    def _print(self, text: str) -> None:
        try:
            print(text, file=self._out, flush=True)
        except BrokenPipeError:
            # The reader is gone (`manage.py up | head`); the product keeps running.
            self._out = sys.stderr
        except OSError:
            # A full disk or a closed terminal must not stop it either.
            return
