"""Memory of responses that their clients do not read: counted by instance, and limited (I.6).

Slices of files are not counted: they are sent from the page cache, and take no memory of the process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

# Maximum of all connections of one instance; beyond it the longest idle ones are closed until there is less.
UNSENT_BYTES_PER_INSTANCE_MAX: Final = 16_777_216


class UnsentBytes:
    """Unsent bytes of one instance. `on_excess` is called inside a request when there are too many."""

    __slots__ = ("_bytes_max", "_on_excess", "count")

    def __init__(
        self, on_excess: Callable[[], object] | None = None, bytes_max: int = UNSENT_BYTES_PER_INSTANCE_MAX
    ) -> None:
        self._on_excess = on_excess
        self._bytes_max = bytes_max
        self.count = 0

    @property
    def are_too_many(self) -> bool:
        return self.count > self._bytes_max

    def add(self, count: int) -> None:
        self.count += count
        if self.count > self._bytes_max and self._on_excess is not None:
            self._on_excess()

    def remove(self, count: int) -> None:
        self.count -= count
