"""Note with the state of the compiled modules on a host: written by its agent, and reported by its brokers."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

# File written by the agent; its brokers inherit the variable.
VARIABLE: Final = "PENSTOCK_NATIVE_NOTE"
REASON_CHARS_MAX: Final = 500


class Build(StrEnum):
    UNKNOWN = "unknown"
    SWITCHED_OFF = "switched_off"
    PENDING = "pending"
    RUNNING = "running"
    COMPLETE = "complete"
    IMPOSSIBLE = "impossible"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """State of a build since `since_ms` (ms since 1970). `reason` names a missing tool or the file with the compiler's
    output.
    """

    build: Build
    reason: str = ""
    since_ms: int = 0

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"reason": self.reason[:REASON_CHARS_MAX]}


NOTHING_KNOWN: Final = Note(build=Build.UNKNOWN)


def write(file: Path, note: Note) -> None:
    """Writes the note atomically, because brokers read it at any time. Raises OSError."""
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    draft.write_text(json.dumps(note.as_json()), encoding="utf-8")
    draft.replace(file)


def read(file: Path) -> Note:
    """Returns the note, or `NOTHING_KNOWN` if there is no readable one."""
    try:
        body = json.loads(file.read_text(encoding="utf-8"))
        return Note(build=Build(body["build"]), reason=str(body["reason"]), since_ms=int(body["since_ms"]))
    except (OSError, ValueError, KeyError, TypeError):
        return NOTHING_KNOWN


def of_this_host() -> Note:
    """Returns the note of the agent that started this process; `NOTHING_KNOWN` without an agent."""
    file_name = os.environ.get(VARIABLE)
    return read(Path(file_name)) if file_name else NOTHING_KNOWN
