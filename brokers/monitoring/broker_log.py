"""Last lines of a broker's own log, for operators: read from its file if the broker runs on this machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from django.conf import settings

from brokers.models import Broker

LINES_MAX: Final = 50
LINE_CHARS_MAX: Final = 500
# Bytes read from the end of the file, independent of the length of its lines.
READ_BYTES_MAX: Final = 64 * 1024
AGENT_DIR: Final = "agent"
LOG_FILE: Final = "broker.log"


def log_file_of(broker: Broker) -> Path:
    """Returns the file that the agent of this machine uses for the log of the broker's process."""
    return Path(settings.STATE_DIR) / AGENT_DIR / broker.cluster_id / str(broker.number) / LOG_FILE


def last_lines(broker: Broker) -> list[str] | None:
    """Returns the last lines of the broker's log, oldest first, truncated to a bounded length and without control
    characters. None if this machine has no log of it.
    """
    try:
        with log_file_of(broker).open("rb") as file:
            size_bytes = file.seek(0, os.SEEK_END)
            file.seek(max(0, size_bytes - READ_BYTES_MAX))
            tail = file.read(READ_BYTES_MAX)
    except OSError:
        return None
    lines = tail.decode("utf-8", "replace").splitlines()
    if size_bytes > READ_BYTES_MAX:
        lines = lines[1:] or lines  # the first line is incomplete
    return [_printable(line) for line in lines if line.strip()][-LINES_MAX:]


def _printable(line: str) -> str:
    cut = line[:LINE_CHARS_MAX] + (" …" if len(line) > LINE_CHARS_MAX else "")
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in cut)
