"""Findings of a verification: faults, and notes on unusual states that are valid or that the next start repairs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from brokers.engine.inspect.rows import KIND, Row

Emit = Callable[[Row], None]


@dataclass(slots=True)
class Findings:
    """Reports each finding at once and counts them. `partition` is the partition being verified, "" for the root."""

    emit: Emit
    partition: str = ""
    faults: int = 0
    notes: int = 0
    counts: dict[str, int] = field(default_factory=dict)

    def fault(self, file: str, problem: str, *, position: int | None = None, offset: int | None = None) -> None:
        """Reports something that is damaged, missing or contradictory."""
        self.faults += 1
        self._report("fault", file, problem, position, offset)

    def note(self, file: str, problem: str, *, position: int | None = None, offset: int | None = None) -> None:
        """Reports something worth knowing that does no harm."""
        self.notes += 1
        self._report("note", file, problem, position, offset)

    def count(self, counter: str, number: int = 1) -> None:
        """Adds to the number of checked `segments`, `batches`, `records` or `bytes`."""
        self.counts[counter] = self.counts.get(counter, 0) + number

    def _report(self, kind: str, file: str, problem: str, position: int | None, offset: int | None) -> None:
        row: Row = {KIND: kind, "partition": self.partition or None, "file": file}
        row.update({"position": position, "offset": offset, "what": problem})
        self.emit(row)
