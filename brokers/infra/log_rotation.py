"""Rotation of the log files of child processes. Does not use Django, because it runs before Django starts.

A child process writes to an open file and does not take part in the rotation: the content of the file is copied, and
the file is truncated. The process appends, so its next line becomes the first one; a line written in between may be
lost. The parent process opens the log with `open_log` and calls `rotate` regularly.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

# Largest size of one file, and the number of older files kept beside it as `.1` (the newest) and so on.
LOG_FILE_BYTES_MAX: Final = 16 * 1024 * 1024
LOG_FILES_KEPT: Final = 3
COPIED_AT_ONCE_BYTES: Final = 1024 * 1024


def open_log(file: Path) -> IO[bytes]:
    """Opens a log for a program; creates its directory, and restricts the file to its owner."""
    file.parent.mkdir(parents=True, exist_ok=True)
    rotate(file)
    return os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600), "ab")


def rotate(file: Path, bytes_max: int | None = None, kept: int = LOG_FILES_KEPT) -> bool:
    """Truncates the file if it is larger than `bytes_max` (default: 16 MiB), after copying it to the newest of `kept`
    older files. Returns True if it was truncated. On a full disk there is no copy, because the file must not grow.
    """
    try:
        size_bytes = file.stat().st_size
    except OSError:
        return False
    if size_bytes <= (LOG_FILE_BYTES_MAX if bytes_max is None else bytes_max):
        return False
    draft = file.with_name(f"{file.name}.draft")
    try:
        for number in range(kept - 1, 0, -1):
            older = _rotated_file(file, number)
            if older.exists():
                older.replace(_rotated_file(file, number + 1))
        _copy(file, draft, 2 * size_bytes)
        draft.replace(_rotated_file(file, 1))
    except OSError:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
    with suppress(OSError):
        os.truncate(file, 0)
    return True


def _copy(file: Path, draft: Path, bytes_max: int) -> None:
    """Copies the file to its end, but at most `bytes_max`, in case a program writes without pause."""
    with file.open("rb") as source, draft.open("wb") as target:
        os.fchmod(target.fileno(), os.fstat(source.fileno()).st_mode)
        while bytes_max > 0 and (piece := source.read(COPIED_AT_ONCE_BYTES)):
            target.write(piece)
            bytes_max -= len(piece)


def _rotated_file(file: Path, number: int) -> Path:
    return file.with_name(f"{file.name}.{number}")
