"""What a person at the terminal sees while things start and stop."""

from __future__ import annotations

import sys
import time
from typing import TextIO


class Progress:
    """Prints one line per step, with the seconds since the start."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self._started = time.monotonic()

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._started

    def step(self, text: str) -> None:
        """Something happened."""
        self._print(f"{self.elapsed_s:6.1f} s  {text}")

    def block(self, text: str) -> None:
        """Something to keep, such as the ready block."""
        self._print(text)

    def _print(self, text: str) -> None:
        try:
            print(text, file=self._out, flush=True)
        except BrokenPipeError:
            # The reader went away (`manage.py up | head`); the product does not stop for that.
            self._out = sys.stderr
