"""Regular expressions of tenants (RE2) whose cost is bounded. Pure.

RE2 takes time in proportion to the text times the size of the compiled expression, at worst: an expression of 200
characters may compile to thousands of instructions, each of which is evaluated for each byte. Therefore the size is
limited, and the searched part of a text is derived from it.
"""

from __future__ import annotations

from typing import Any, Final

import re2
from django.utils.translation import gettext_noop

from instances.messages import pattern_literals
from tenants.errors import Message

MEMORY_BYTES_MAX: Final = 1 << 20
# Instructions of a compiled expression: one for each letter, and for each possible repetition of a letter.
PROGRAM_SIZE_MAX: Final = 1_000
# Instructions times bytes of one search: 0.1 s where each costs 5 ns, the most that was measured.
WORK_MAX: Final = 20_000_000
SEARCHED_BYTES_MAX: Final = 1_000_000


class WrongPattern(ValueError):
    """The text is not an expression of RE2, or compiles to too large a program. The message is for its author."""


class Pattern:
    """A compiled expression. Raises `WrongPattern`."""

    def __init__(self, text: str) -> None:
        self._text = text
        options = re2.Options()
        options.max_mem = MEMORY_BYTES_MAX
        options.never_capture = True
        options.log_errors = False
        try:
            self._compiled: Any = re2.compile(text, options)
        except re2.error:
            raise WrongPattern(
                Message(gettext_noop("This is no regular expression of RE2, or too large a one."))
            ) from None
        self._size: int = max(1, self._compiled.programsize)
        if self._size > PROGRAM_SIZE_MAX:
            raise WrongPattern(
                Message(gettext_noop("The regular expression is too large: repeat less, or fewer times."))
            )

    @property
    def searched_bytes_max(self) -> int:
        """Bytes of the beginning of a text that are searched."""
        return min(SEARCHED_BYTES_MAX, WORK_MAX // self._size)

    @property
    def literal(self) -> bytes:
        """Bytes that are part of every match; empty if none are known."""
        return pattern_literals.longest_literal(self._text).encode()

    def work(self, text_bytes: int) -> int:
        """Returns the maximum cost of a search, in instructions times bytes."""
        return self._size * min(text_bytes, self.searched_bytes_max)

    def is_in(self, raw: bytes) -> bool:
        """True if the expression matches somewhere in the searched beginning of a text."""
        beginning = raw if len(raw) <= self.searched_bytes_max else raw[: self.searched_bytes_max]
        return self._compiled.search(beginning) is not None
