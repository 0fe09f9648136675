"""Log files that stay small while their programs write to them. Without Django, for whoever starts before it.

A program is given an open file and knows of no rotation: what is in the file is copied, and the file emptied. Programs
append, so the next line is the first one again; a line written in between may be missing from both. Whoever starts a
program opens its log with `open_log` and calls `rotate` every now and then.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

# Of one file, and how many older ones are kept beside it as `.1` (the newest) and so on.
LOG_FILE_BYTES_MAX: Final = 16 * 1024 * 1024
LOG_FILES_KEPT: Final = 3
COPIED_AT_ONCE_BYTES: Final = 1024 * 1024


def open_log(file: Path) -> IO[bytes]:
    """To be handed to a program; its folder is made, and only its owner may read it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    rotate(file)
    return os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600), "ab")


def rotate(file: Path, bytes_max: int | None = None, kept: int = LOG_FILES_KEPT) -> bool:
    """Starts the file anew if it is larger than that. A full disk leaves the older files out, not the program without
    a log: what matters is that the file does not grow.
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
            older = _numbered(file, number)
            if older.exists():
                older.replace(_numbered(file, number + 1))
        _copy(file, draft, 2 * size_bytes)
        draft.replace(_numbered(file, 1))
    except OSError:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
    with suppress(OSError):
        os.truncate(file, 0)
    return True


def _copy(file: Path, draft: Path, bytes_max: int) -> None:
    """To the end, but behind a program that writes without end not for ever."""
    with file.open("rb") as source, draft.open("wb") as target:
        os.fchmod(target.fileno(), os.fstat(source.fileno()).st_mode)
        while bytes_max > 0 and (piece := source.read(COPIED_AT_ONCE_BYTES)):
            target.write(piece)
            bytes_max -= len(piece)


def _numbered(file: Path, number: int) -> Path:
    return file.with_name(f"{file.name}.{number}")
