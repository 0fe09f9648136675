"""Passwords that have leaked, looked up in a file that an operator has fetched: nothing is asked over the network.

The file is that of Have I Been Pwned "ordered by hash": a line for each password, its SHA-1 in capital hexadecimal
digits, a colon, and how often it was seen. It has 40 GB; a look-up reads some forty places of it and keeps nothing in
memory.
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


def holds(file: Path, password: str) -> bool:
    """Whether the file has this password. Raises `OSError`."""
    digest = hashlib.sha1(password.encode(), usedforsecurity=False).hexdigest().upper().encode()
    with file.open("rb", buffering=LINE_BYTES_MAX) as stream:
        # The line looked for begins in [low, high), if it is there at all.
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
    """The first line that begins at `offset` or behind it, and where."""
    if offset:
        stream.seek(offset - 1)
        stream.readline(LINE_BYTES_MAX)
    else:
        stream.seek(0)
    return stream.tell(), stream.readline(LINE_BYTES_MAX)


class BreachedPasswordValidator:
    """Refuses what has leaked, where a file is named."""

    def validate(self, password: str, user: Any = None) -> None:
        if not settings.BREACHED_PASSWORDS_FILE:
            return
        try:
            is_known = holds(Path(settings.BREACHED_PASSWORDS_FILE), password)
        except OSError:
            logger.exception("the file of leaked passwords cannot be read")
            return
        if is_known:
            words = _("This password has leaked from some other place. Choose another one.")
            raise ValidationError(words, code="breached")

    def get_help_text(self) -> str:
        return str(_("Your password can’t be one that has leaked."))


@register(Tags.security)
def file_is_readable(app_configs: Sequence[Any] | None = None, **_options: Any) -> list[CheckMessage]:
    """A system check: the file that is named is there, and is of that kind."""
    name = settings.BREACHED_PASSWORDS_FILE
    if not name:
        return []
    try:
        with Path(name).open("rb") as stream:
            is_right = LINE.fullmatch(stream.readline(LINE_BYTES_MAX)) is not None
    except OSError as error:
        return [Error(f"PENSTOCK_BREACHED_PASSWORDS_FILE cannot be read: {error}.", id="penstock.E002")]
    if is_right:
        return []
    hint = "It is Have I Been Pwned's file ordered by hash: lines of 40 hexadecimal digits of SHA-1, a colon, a count."
    return [Error("PENSTOCK_BREACHED_PASSWORDS_FILE is another kind of file.", hint, id="penstock.E002")]
