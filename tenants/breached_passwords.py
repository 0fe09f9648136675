"""Lookup of leaked passwords in a local file that an operator has downloaded, without network access.

The file is that of Have I Been Pwned "ordered by hash": a line per password with its SHA-1 in upper case hexadecimal, a
colon, and a count. It has 40 GB; a lookup reads about forty positions and keeps nothing in memory.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, register
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

logger = logging.getLogger(__name__)

LINE = re.compile(rb"[0-9A-F]{40}(:\d+)?\s*")
LINE_BYTES_MAX = 128


def contains_password(file: Path, password: str) -> bool:
    """True if the file contains this password. Raises `OSError`."""
    digest = hashlib.sha1(password.encode(), usedforsecurity=False).hexdigest().upper().encode()
    with file.open("rb", buffering=LINE_BYTES_MAX) as stream:
        # The line, if it exists, begins in [low, high).
        low, high = 0, os.fstat(stream.fileno()).st_size
        while low < high:
            middle = (low + high) // 2
            start, line = _first_line_from(stream, middle)
            if start >= high or digest < line[: len(digest)]:
                high = middle
            elif digest > line[: len(digest)]:
                low = start + len(line)
            else:
                return True
    return False


def _first_line_from(stream: IO[bytes], offset: int) -> tuple[int, bytes]:
    """Returns the first line that begins at or after `offset`, with its position."""
    if offset:
        stream.seek(offset - 1)
        stream.readline(LINE_BYTES_MAX)
    else:
        stream.seek(0)
    return stream.tell(), stream.readline(LINE_BYTES_MAX)


class BreachedPasswordValidator:
    """Refuses leaked passwords if a file is configured."""

    def validate(self, password: str, user: Any = None) -> None:
        if not settings.BREACHED_PASSWORDS_FILE:
            return
        try:
            is_breached = contains_password(Path(settings.BREACHED_PASSWORDS_FILE), password)
        except OSError:
            logger.exception("the file of leaked passwords cannot be read")
            return
        if is_breached:
            message = _("This password has leaked from some other place. Choose another one.")
            raise ValidationError(message, code="breached")

    def get_help_text(self) -> str:
        return str(_("Your password can’t be one that has leaked."))


@register(Tags.security)
def file_is_readable(app_configs: Sequence[Any] | None = None, **_options: Any) -> list[CheckMessage]:
    """System check that the configured file exists and has the right format."""
    name = settings.BREACHED_PASSWORDS_FILE
    if not name:
        return []
    try:
        with Path(name).open("rb") as stream:
            has_right_format = LINE.fullmatch(stream.readline(LINE_BYTES_MAX)) is not None
    except OSError as error:
        return [Error(f"PENSTOCK_BREACHED_PASSWORDS_FILE cannot be read: {error}.", id="penstock.E002")]
    if has_right_format:
        return []
    hint = "It is Have I Been Pwned's file ordered by hash: lines of 40 hexadecimal digits of SHA-1, a colon, a count."
    return [Error("PENSTOCK_BREACHED_PASSWORDS_FILE is another kind of file.", hint, id="penstock.E002")]
