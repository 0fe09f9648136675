"""What a person at the terminal sees while things start and stop."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

# A wait is ordinary for so long, and is then said now and again.
WAIT_SAID_AFTER_S = 10.0
WAIT_SAID_EVERY_S = 30.0


class Progress:
    """Prints one line per step, with the seconds since the start."""

    def __init__(self, out: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._out = out or sys.stdout
        self._clock = clock
        self._started = clock()

    @property
    def elapsed_s(self) -> float:
        return self._clock() - self._started

    def step(self, text: str) -> None:
        """Something happened."""
        self._print(f"{self.elapsed_s:6.1f} s  {text}")

    def waiting(self, what: str, log_file: Path) -> Callable[[], None]:
        """To be called while somebody waits for `what`: says so when that takes long, and where to look."""
        due_s = self._clock() + WAIT_SAID_AFTER_S

        def still() -> None:
            nonlocal due_s
            if self._clock() >= due_s:
                due_s += WAIT_SAID_EVERY_S
                self.step(f"Still waiting for {what} (see {log_file})")

        return still

    def block(self, text: str) -> None:
        """Something to keep, such as the ready block."""
        self._print(text)

    def _print(self, text: str) -> None:
        try:
            print(text, file=self._out, flush=True)
        except BrokenPipeError:
            # The reader went away (`manage.py up | head`); the product does not stop for that.
            self._out = sys.stderr
        except OSError:
            # Nor for a line that finds no room on the disk, or no terminal any more.
            return
