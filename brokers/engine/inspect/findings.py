"""Output of the inspection tools (`Printer`), and the findings of a verification (`Findings`).

A row has plain values and is printed as text or as a JSON line. A fault is damage; a note is an unusual state that is
valid or that the next start of the broker repairs.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TextIO

Value = str | int | bool | None | list["Value"] | dict[str, "Value"]
Row = dict[str, Value]

KIND: Final = "row"
Emit = Callable[[Row], None]


def escaped(data: bytes) -> str:
    """Returns bytes as text that is safe on a terminal: unprintable bytes are escaped, backslashes doubled."""
    text = data.replace(b"\\", b"\\\\").decode("utf-8", errors="backslashreplace")
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode("ascii") for sign in text)


class Printer:
    """Writes rows to `out`, one per line."""

    def __init__(self, out: TextIO, *, as_json: bool) -> None:
        self._out = out
        self._as_json = as_json

    def row(self, row: Row) -> None:
        if self._as_json:
            self._out.write(json.dumps(row) + "\n")
        else:
            fields = (f"{name}={_text(value)}" for name, value in row.items() if name != KIND and value is not None)
            self._out.write(f"{row[KIND]}: {' '.join(fields)}\n")


def _text(value: Value) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return f'"{value}"' if " " in value or not value else value
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else str(value)


@dataclass(slots=True)
class Findings:
    """Reports each finding at once and counts them. `partition` is the partition being verified, "" for the root."""

    emit: Emit
    partition: str = ""
    faults: int = 0
    notes: int = 0
    counts: dict[str, int] = field(default_factory=dict)

    def report_fault(self, file: str, problem: str, *, position: int | None = None, offset: int | None = None) -> None:
        """Reports something that is damaged, missing or contradictory."""
        self.faults += 1
        self._report("fault", file, problem, position, offset)

    def report_note(self, file: str, problem: str, *, position: int | None = None, offset: int | None = None) -> None:
        """Reports something worth knowing that does no harm."""
        self.notes += 1
        self._report("note", file, problem, position, offset)

    def add_to_count(self, counter: str, number: int = 1) -> None:
        """Adds to the number of checked `segments`, `batches`, `records` or `bytes`."""
        self.counts[counter] = self.counts.get(counter, 0) + number

    def _report(self, kind: str, file: str, problem: str, position: int | None, offset: int | None) -> None:
        row: Row = {KIND: kind, "partition": self.partition or None, "file": file}
        row.update({"position": position, "offset": offset, "what": problem})
        self.emit(row)
