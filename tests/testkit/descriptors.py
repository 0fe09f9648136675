"""Exhaustion of descriptors: a process that has none left, or that is refused one at a given attempt."""

from __future__ import annotations

import contextlib
import gc
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock


@contextlib.contextmanager
def exhausted_descriptors() -> Iterator[None]:
    """Uses up all descriptors, except for those that are closed meanwhile."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    gc.collect()  # what earlier tests forgot to close is not closed in the middle of this one
    was_collecting = gc.isenabled()
    gc.disable()
    # The limit is a number, not a count: whatever is closed has to lie below it, so the gaps between are filled.
    highest = max(int(entry.name) for entry in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, hard))
    fillers = []
    try:
        with contextlib.suppress(OSError):
            while True:
                fillers.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for filler in fillers:
            os.close(filler)
        if was_collecting:
            gc.enable()


# Descriptors that are left within the limit.
DESCRIPTORS_LEFT = 20


class RefusedOpens:
    """While `at_work`, refuses `count` attempts to open anything, from number `first`, counted from 0. Attempts that
    follow a check for free descriptors are not counted, since there are some.
    """

    def __init__(self, first: int, count: int, code: int) -> None:
        self.first, self.count, self.code = first, count, code
        self.attempts = 0
        self._room = 0

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        opened = os.open

        def attempt(path: Any, *arguments: Any, **more: Any) -> int:
            looks = path == os.devnull
            if self._room and not looks:
                self._room -= 1
                return opened(path, *arguments, **more)
            if self._room == DESCRIPTORS_LEFT:
                return opened(path, *arguments, **more)
            number, self.attempts = self.attempts, self.attempts + 1
            if self.first <= number < self.first + self.count:
                raise OSError(self.code, os.strerror(self.code))
            if looks:
                self._room = DESCRIPTORS_LEFT
            return opened(path, *arguments, **more)

        with mock.patch.object(os, "open", attempt):
            yield

    @property
    def was_needed(self) -> bool:
        return self.attempts > self.first
